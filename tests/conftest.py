"""What all tests share."""

import signal

from hypothesis import HealthCheck, settings

# A shell starts what runs in the background with Ctrl-C ignored, and so would be every process that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# the machine may be busy
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
