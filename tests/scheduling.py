"""Which worker runs which test: those on Spark share its session and run in one, the others go to whoever is free.

The marks of pytest-xdist for that (3.8) have no effect with pytest 9.2. So here the name of a test says it: the
fixture `spark` has a parameter of that name, and with it all tests that use it, by whatever way. So has the fixture
`day`, which takes seconds to make.
"""

import re

from xdist.scheduler import LoadScopeScheduling

SHARED = re.compile(r"[\[-](spark|day)[\]-]")


class Scheduling(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        """What runs together."""
        found = SHARED.search(nodeid)
        return found[1] if found else nodeid
