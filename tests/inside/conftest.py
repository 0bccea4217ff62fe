"""What all tests in here share."""

import os

from hypothesis import HealthCheck, settings

_QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much]

settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, suppress_health_check=_QUIET
)
settings.register_profile("dev", deadline=None, suppress_health_check=_QUIET)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
