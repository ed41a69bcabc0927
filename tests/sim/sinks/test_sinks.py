"""A sink has each row once and in order over random lives of its query; each rule is needed."""

from __future__ import annotations

import pytest

from cluster.transactions.coordinator import Coordinator
from cluster.transactions.sinks import MAX_NAMELESS, MAX_RANGES, Asked, BatchBegun
from cluster.transactions.types import Refused, TransactionState
from tests.sim.sinks import weak
from tests.sim.sinks.run import run_seed
from tests.sim.sinks.world import Violation


@pytest.mark.parametrize("first", range(0, 1000, 250))
def test_random_lives_of_a_query(first: int) -> None:
    worlds = [run_seed(seed) for seed in range(first, first + 250)]
    assert sum(world.commits for world in worlds) > 1000
    assert sum(world.refusals for world in worlds) > 100
    assert sum(world.resets for world in worlds) > 10


@pytest.mark.parametrize("name", weak.WEAKNESSES)
def test_a_missing_rule_is_seen(name: str) -> None:
    with weak.WEAKNESSES[name](), pytest.raises((Violation, AssertionError)):
        run_seeds(300)


def run_seeds(count: int) -> None:
    for seed in range(count):
        run_seed(seed)


# -- directed -----------------------------------------------------------------------------


def begin(made: Coordinator, batch: int, *, query: str = "q", reset: str = "") -> BatchBegun:
    ticket = made.draw_ticket("s", jobs=False)
    return made.begin_batch(
        Asked("s", query, "r", ticket, batch, reset=reset), now_ms=1, total_ms=9000
    )


def commit(made: Coordinator, begun: BatchBegun, digest: int = 0) -> None:
    assert begun.transaction is not None
    made.commit(begun.transaction.transaction_id, None, (), 0, digest=digest)


def token(made: Coordinator, batch: int, query: str, reason: str) -> str:
    with pytest.raises(Refused, match="sinkReset=") as refused:
        begin(made, batch, query=query)
    assert refused.value.reason == reason
    return str(refused.value).split("sinkReset=")[1].split(maxsplit=1)[0]


def test_a_batch_follows_the_last_one() -> None:
    made = Coordinator()
    commit(made, begin(made, 5))
    assert begin(made, 5) == BatchBegun(None)
    token(made, 7, "q", "BATCH_GAP")
    token(made, 4, "q", "BATCH_BEHIND")
    commit(made, begin(made, 6))
    for batch in (-1, 2**62):
        with pytest.raises(Refused, match="batch"):
            begin(made, batch)


@pytest.mark.parametrize(
    ("query", "batch", "reason"),
    [("other", 0, "OTHER_QUERY"), ("q", 2, "BATCH_BEHIND"), ("q", 9, "BATCH_GAP")],
)
def test_a_token_works_once_and_for_its_refusal_only(query: str, batch: int, reason: str) -> None:
    made = Coordinator()
    commit(made, begin(made, 5), digest=77)
    given = token(made, batch, query, reason)
    with pytest.raises(Refused):
        begin(made, batch + 1 if query != "q" else 3, query=query, reset=given)
    commit(made, begin(made, batch, query=query, reset=given))
    sink = made.sinks.get("s")
    assert sink is not None and sink.before == ("q", 5, 0, 77)
    assert begin(made, batch, query=query, reset=given) == BatchBegun(None), "ALREADY"
    commit(made, begin(made, batch + 1, query=query, reset=given))
    if query != "q":
        token(made, 6, "q", "OTHER_QUERY")


def test_a_changed_batch_can_be_overruled() -> None:
    made = Coordinator()
    commit(made, begin(made, 0), digest=7)
    asked = Asked("s", "q", "r", 1, 0)
    assert made.check_committed(asked, 0, 7) is not None
    with pytest.raises(Refused, match="has others") as refused:
        made.check_committed(asked, 0, 8)
    assert refused.value.reason == "BATCH_CHANGED"
    given = str(refused.value).split("sinkReset=")[1].split(maxsplit=1)[0]
    assert begin(made, 0, reset=given).transaction is not None


def test_a_query_has_one_sink() -> None:
    made = Coordinator()
    commit(made, begin(made, 0))
    ticket = made.draw_ticket("renamed", jobs=False)
    asked = Asked("renamed", "q", "r", ticket, 0)
    with pytest.raises(Refused, match="sink 's'") as refused:
        made.begin_batch(asked, now_ms=1, total_ms=9000)
    given = str(refused.value).split("sinkReset=")[1].split(maxsplit=1)[0]
    begun = made.begin_batch(asked._replace(reset=given), now_ms=1, total_ms=9000)
    assert begun.transaction is not None
    with pytest.raises(Refused, match="sink 'renamed'"):
        begin(made, 1)


def test_an_operators_reset_takes_any_batch_and_ends_what_is_open() -> None:
    made = Coordinator()
    commit(made, begin(made, 3))
    opened = begin(made, 4).transaction
    made.reset_sink("s")
    assert opened is not None and (opened.state, opened.reason) == (
        TransactionState.ABORTED,
        "sink was reset",
    )
    with pytest.raises(Refused, match="replaced"):
        made.begin_batch(Asked("s", "q", "r", 2, 4), now_ms=1, total_ms=9000)
    commit(made, begin(made, 0, query="other"))
    with pytest.raises(Refused, match="no sink"):
        made.reset_sink("t")


def test_jobs_have_any_order_and_each_number_once() -> None:
    made = Coordinator()

    def job(batch: int) -> BatchBegun:
        ticket = made.draw_ticket("jobs", jobs=True)
        asked = Asked("jobs", "", "r", ticket, batch, jobs=True)
        return made.begin_batch(asked, now_ms=1, total_ms=9000)

    for batch in (2, 1, 9, 3, 8, 10):
        commit(made, job(batch))
    for batch in (1, 2, 3, 8, 9, 10):
        assert job(batch).transaction is None
    sink = made.sinks.get("jobs")
    assert sink is not None and sink.ranges == ((1, 3), (8, 10))
    for batch in range(20, 20 + 2 * MAX_RANGES, 2):
        commit(made, job(batch))
    with pytest.raises(Refused, match="are forgotten") as refused:
        job(4)
    assert refused.value.reason == "BATCH_BEHIND"
    with pytest.raises(Refused, match="batch jobs"):
        made.draw_ticket("jobs", jobs=False)


def test_jobs_without_a_sink_are_remembered_for_a_while() -> None:
    made = Coordinator()
    for number in range(MAX_NAMELESS + 50):
        asked = Asked(f"job-{number}", "", "", 0, 0, jobs=True)
        begun = made.begin_batch(asked, now_ms=1, total_ms=9000)
        assert made.begin_batch(asked, now_ms=1, total_ms=9000).transaction is begun.transaction
        commit(made, begun)
    assert made.sinks.get("job-0") is None and made.get(1) is None
    assert sum(1 for _ in made.sinks) == MAX_NAMELESS
