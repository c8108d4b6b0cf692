"""Before a lock that many threads want."""

import threading

from logger import crowded
from logger.crowded import let_holder_go_on


class Watched:
    """A lock that counts who looks whether it is held."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.looks = 0

    def locked(self) -> bool:
        self.looks += 1
        return self.lock.locked()


def test_the_holder_goes_on_meanwhile() -> None:
    watched, held = Watched(), threading.Event()

    def hold() -> None:
        with watched.lock:
            held.set()
            while watched.looks < 3:  # which it can see only if it runs between two looks
                pass

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    assert held.wait(60)
    let_holder_go_on(watched)  # type: ignore[arg-type]
    assert 3 <= watched.looks < crowded.LOOKS
    holder.join(60)
    assert not holder.is_alive()


def test_a_lock_that_nobody_gives_back_is_looked_at_so_often_and_no_more() -> None:
    watched = Watched()
    with watched.lock:
        let_holder_go_on(watched)  # type: ignore[arg-type]
    assert watched.looks == crowded.LOOKS


def test_a_free_lock_is_not_taken() -> None:
    lock = threading.Lock()
    let_holder_go_on(lock)
    assert not lock.locked()
