from hypothesis import settings

settings.register_profile("untimed", deadline=None, max_examples=50)  # the machine may be busy
settings.load_profile("untimed")
