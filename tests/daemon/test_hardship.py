"""What a listener can't do for want of descriptors is said, and not a hundred times."""

from qmgr.daemon.hardship import QUIET_NS, Hardship


def test_it_is_said_once_until_there_was_none_for_a_while() -> None:
    now, said = 0, []
    hardship = Hardship(lambda: now, said.append)
    for _ in range(100):
        hardship.met("first")
        now += QUIET_NS - 1
    assert said == ["first"]
    now += 1
    hardship.met("again")
    assert said == ["first", "again"]
