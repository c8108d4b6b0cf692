"""The Python worker of Spark's tasks: its loaded modules are kept out of the garbage collection after each task.

Spark has a worker collect garbage after each task. With numpy and pyarrow loaded that takes some 35 ms, which is most
of what a task costs beside its rows, and finds nothing in them.
"""

import gc


def freeze_loaded() -> None:
    """Called in a worker behind its task: the first time, all that is there by then is kept for good."""
    if not gc.get_freeze_count():
        gc.collect()  # so that no garbage is kept
        gc.freeze()
