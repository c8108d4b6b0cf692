"""Which worker runs which test: those on Spark share its session and run in one, the others go to whoever is free.

The marks of pytest-xdist for that (3.8) have no effect with pytest 9.2. So here the name of a test says it: the
fixture `spark` has a parameter of that name, and with it all tests that use it, by whatever way.
"""

import re

from xdist.scheduler import LoadScopeScheduling

ON_SPARK = re.compile(r"[\[-]spark[\]-]")


class Scheduling(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        """What runs together."""
        return "spark" if ON_SPARK.search(nodeid) else nodeid
