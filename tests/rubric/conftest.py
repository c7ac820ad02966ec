from hypothesis import HealthCheck, settings

# the machine may be busy
settings.register_profile("untimed", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
