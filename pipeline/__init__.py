"""The data pipeline on Spark: the recovery log and queues as tables and streams, and the jobs that read them."""

from typing import TYPE_CHECKING

__all__ = ["Effects", "consume", "lake", "shared"]  # noqa: F405

if TYPE_CHECKING:
    from pipeline.public import *  # noqa: F403
if not TYPE_CHECKING:
    # Spark starts a process for nearly everything that it asks of a source; each is to load no more than it needs.
    def __getattr__(name: str) -> object:
        if name in __all__:
            from pipeline import public

            return getattr(public, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted([*globals(), *__all__])
