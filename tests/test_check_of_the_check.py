"""The check of the check: leave out one kind of sync, and the crash sweep must notice. Else it proves nothing.

Faults 19 is one of these: a checkpoint that claims more than the queue files hold.
"""

from collections.abc import Callable

import pytest

from tests.sim.life import Life, Setup, Violation
from tests.sim.loss import LOSE_ALL, mixed
from tests.test_crash import ACKNOWLEDGED, born, checkpoints, secondaries, sweep

Ignore = Callable[[str, str], bool]

KINDS: dict[str, Ignore] = {
    "log extent": lambda kind, path: kind == "sync" and path.endswith(".LOG"),
    "control file": lambda kind, path: kind == "sync" and path.endswith(".lfh"),
    "segment (row 19)": lambda kind, path: kind == "sync" and path.endswith(".seg"),
    "checkpoint file": lambda kind, path: kind == "sync" and "amqalchk" in path,
    "directory": lambda kind, path: kind == "sync_dir",
    "directory of the queues": lambda kind, path: kind == "sync_dir" and "/queues" in path,
    "directory of the checkpoint file": lambda kind, path: kind == "sync_dir" and path.endswith("/qmgrs/SIM"),
    "directory of the log extents": lambda kind, path: kind == "sync_dir" and path.endswith("/active"),
}


def hunt(ignore: Ignore | None) -> None:
    """Short lives with everything in them; raises Violation where a promise is broken."""

    for verb in ("put", "commit", "define", "delete"):
        life = Life()
        try:
            born(life)
            life.disk.ignore_sync = ignore
            ACKNOWLEDGED[verb](life)
            life.crash(LOSE_ALL)
            life.restart()
        except Violation:
            raise
        except Exception as exc:
            raise Violation(f"{verb}: {exc!r}") from exc

    def prelude(life: Life) -> None:
        born(life)
        life.disk.ignore_sync = ignore  # from here on: creation is not what is checked

    def script(life: Life) -> None:
        checkpoints(life)
        life.define("NEW")
        life.put("NEW", size=4000)
        life.checkpoint()
        secondaries(life)
        life.end()
        life.start()
        life.check()
        life.put("A", size=10)

    sweep(
        script,
        lambda moment: [LOSE_ALL if moment % 2 else mixed(moment)],
        setup=Setup(primary_files=2, secondary_files=2),
        prelude=prelude,
        every=1,
    )


def test_with_every_sync_in_place_the_hunt_finds_nothing() -> None:
    hunt(None)


@pytest.mark.parametrize("kind", KINDS)
def test_row_19_a_sync_left_out_is_noticed(kind: str) -> None:
    with pytest.raises(Violation):
        hunt(KINDS[kind])
