"""Are the modules of the hot path compiled? See docs/performance.md."""

from importlib import util


def is_compiled() -> bool:
    """All of them are, or none; `recovery.records` is one of them."""
    spec = util.find_spec("recovery.records")
    return spec is not None and spec.origin is not None and not spec.origin.endswith(".py")
