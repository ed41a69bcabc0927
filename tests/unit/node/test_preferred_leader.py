"""A preferred node's wait before it leads again: doubled, capped, forgotten."""

from __future__ import annotations

from cluster.node.leadership.preferred_leader import HEALTHY, MAX_WAIT, PreferredLeader

DELAY = 5.0


def lose(preferred: PreferredLeader, now: float, after: float = 1.0) -> float:
    """Leads for a while and loses that; returns when."""
    preferred.seen(now, leads=True)
    preferred.seen(now + after, leads=False)
    return now + after


def test_who_never_led_here_need_not_wait() -> None:
    preferred = PreferredLeader(DELAY)
    preferred.seen(0.0, leads=False)
    assert preferred.may_return(0.0)


def test_the_wait_doubles_with_each_loss_up_to_a_limit() -> None:
    preferred, now, waits = PreferredLeader(DELAY), 0.0, []
    for _ in range(100):
        now = lose(preferred, now)
        waits.append(preferred.wait)
        assert not preferred.may_return(now + preferred.wait - 0.01)
        now += preferred.wait
        assert preferred.may_return(now)
    assert waits[:4] == [5.0, 10.0, 20.0, 40.0]
    assert waits[-1] == MAX_WAIT == max(waits)


def test_a_leadership_that_lasted_is_a_new_beginning() -> None:
    preferred, now = PreferredLeader(DELAY), 0.0
    for _ in range(3):
        now = lose(preferred, now)
    assert preferred.wait == 20.0
    now = lose(preferred, now, after=HEALTHY * 20.0 - 1)
    assert preferred.wait == 40.0
    lose(preferred, now, after=HEALTHY * 40.0)
    assert preferred.wait == DELAY


def test_a_handover_that_failed_is_a_loss() -> None:
    preferred = PreferredLeader(DELAY)
    preferred.handed_over(10.0)
    preferred.seen(12.0, leads=False)
    assert not preferred.may_return(12.0 + DELAY - 0.01)
    preferred.handed_over(20.0)
    preferred.seen(20.5, leads=False)
    assert preferred.wait == 2 * DELAY


def test_without_a_delay_the_first_return_is_at_once_and_the_next_is_not() -> None:
    preferred = PreferredLeader(0.0)
    now = lose(preferred, 0.0)
    assert preferred.may_return(now)
    now = lose(preferred, now)
    assert not preferred.may_return(now + 1.0)
    assert preferred.may_return(now + 2.0)


def test_a_delay_beyond_the_limit_stays() -> None:
    preferred = PreferredLeader(2 * MAX_WAIT)
    lose(preferred, lose(preferred, 0.0))
    assert preferred.wait == 2 * MAX_WAIT
