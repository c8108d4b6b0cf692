"""Before a lock that many threads want for some microseconds each: let its holder go on, instead of sleeping on it.

A thread that sleeps on a lock is given it before it has Python's own lock (the GIL). The one that runs meanwhile soon
wants it too, meets a lock whose owner can't run, and sleeps on it in its turn: from then on each call takes a switch of
threads, though the lock is free nearly all the time (a lock convoy). Eight threads with units of work of 100 puts were
three times slower by that.
"""

import os
import threading

LOOKS = 500  # half a millisecond: who holds it for longer is worth sleeping for


def let_holder_go_on(lock: threading.Lock) -> None:
    """Let other threads run until nobody holds the lock, or for LOOKS looks. Takes nothing and promises nothing."""
    left = LOOKS
    while left and lock.locked():
        os.sched_yield()  # it lets go of the GIL
        left -= 1
