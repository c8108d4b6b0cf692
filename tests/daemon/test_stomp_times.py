"""What is overdue on a STOMP connection, by its times alone."""

import pytest

from qmgr.daemon.stomp_times import Times, Timing

TIMING = Timing(connect=10.0, frame=60.0, beat=1.0, wanted_beat=10.0, tolerance=2.0, linger=2.0, tick=0.25)


def times() -> Times:
    return Times(TIMING, received_at=100.0, sent_at=100.0, deadline=110.0)


@pytest.mark.parametrize(
    ("offered", "wanted", "theirs", "ours"),
    [(0.0, 0.0, 0.0, 0.0), (5.0, 0.5, 10.0, 1.0), (20.0, 3.0, 20.0, 3.0), (0.0, 3.0, 0.0, 3.0), (20.0, 0.0, 20.0, 0.0)],
)
def test_heart_beats_are_the_slower_of_what_both_say(offered: float, wanted: float, theirs: float, ours: float) -> None:
    of_one = times()
    of_one.agree(offered=offered, wanted=wanted)
    assert (of_one.wanted_beat, of_one.beat) == (theirs, ours)
    assert of_one.is_silent(99.9 + 2 * theirs) is False
    assert of_one.is_silent(100.0 + 2 * theirs) is (theirs > 0)
    assert of_one.is_beat_due(99.4 + ours) is False
    assert of_one.is_beat_due(99.5 + ours) is (ours > 0)


def test_a_frame_has_its_time_anew_once_its_client_is_heard_again() -> None:
    of_one = times()
    of_one.hear_again(120.0)
    assert (of_one.received_at, of_one.frame_began) == (120.0, 0.0), "none has begun"
    assert not of_one.is_frame_late(1e6)
    of_one.frame_began = 120.0
    of_one.hear_again(130.0)
    assert [of_one.is_frame_late(at) for at in (189.0, 190.0)] == [False, True]


def test_a_loop_that_stood_still_excuses_what_has_begun_and_nothing_else() -> None:
    of_one = times()
    of_one.excuse(30.0, 125.0)
    assert (of_one.received_at, of_one.deadline) == (125.0, 140.0), "what comes is not later than now"
    assert (of_one.frame_began, of_one.stalled_since) == (0.0, 0.0)
    of_one.deadline = 0.0
    of_one.excuse(30.0, 200.0)
    assert not of_one.is_over(1e6)


@pytest.mark.parametrize(("waits", "until"), [(True, 260.0), (False, 202.0)])
def test_at_the_end_who_has_not_read_all_has_more_time_for_it(waits: bool, until: float) -> None:
    of_one = times()
    of_one.await_end(200.0, (5, 1), waits=waits)
    assert [of_one.is_over(at) for at in (until - 1, until)] == [False, True]
    assert [of_one.has_read(progress) for progress in ((5, 1), (5, 2), (5, 2), (4, 2))] == [False, True, False, True]
