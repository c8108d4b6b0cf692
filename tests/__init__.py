"""The tests; a package, so that `tests.sim` and `tests.model` can be imported from every folder below."""
