"""What is installed: which version, and are the modules of the hot path compiled? See docs/performance.md."""

from importlib import util


def version() -> str:
    from importlib import metadata  # takes as long as a tenth of all else

    try:
        return metadata.version("qmgr")
    except metadata.PackageNotFoundError:
        return "of a source tree"


def is_compiled() -> bool:
    """All of them are, or none; `recovery.records` is one of them."""
    spec = util.find_spec("recovery.records")
    return spec is not None and spec.origin is not None and not spec.origin.endswith(".py")
