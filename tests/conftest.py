"""How deep the random tests look: `ci`, quick, unless HYPOTHESIS_PROFILE=soak or QMGR_SOAK is set."""

import os

from hypothesis import HealthCheck, settings

SOAK = bool(os.environ.get("QMGR_SOAK")) or os.environ.get("HYPOTHESIS_PROFILE") == "soak"

settings.register_profile(
    "ci",
    deadline=None,
    max_examples=60,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("soak", settings.get_profile("ci"), max_examples=5000)
settings.load_profile("soak" if SOAK else "ci")
