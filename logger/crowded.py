"""Before a lock that many threads want for some microseconds each: let its holder go on, instead of sleeping on it.

A thread that sleeps on a lock is given it before it has Python's own lock (the GIL). The one that runs meanwhile soon
wants it too, meets a lock whose owner can't run, and sleeps on it in its turn: from then on each call takes a switch of
threads, though the lock is free nearly all the time (a lock convoy). Eight threads with units of work of 100 puts were
three times slower by that.
"""

import os
import threading
from time import perf_counter_ns

LOOKS = 500  # half a millisecond of the processor: who holds it for longer is worth sleeping for
MOST_NS = 12_000_000  # many want the processor, or the GIL: who looks too seldom for that never finds it free


def let_holder_go_on(lock: threading.Lock) -> None:
    """Let other threads run until nobody holds the lock, for at most LOOKS looks and some MOST_NS.

    Takes nothing and promises nothing. Callers look once themselves, since most find it free, and a call of ours costs
    more than a look.
    """
    left, until = LOOKS, perf_counter_ns() + MOST_NS
    while left and lock.locked() and perf_counter_ns() < until:
        os.sched_yield()  # it lets go of the GIL
        left -= 1
