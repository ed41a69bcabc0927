"""The oracle: it follows the paper, and notices a replica that does not."""

from __future__ import annotations

import pytest

from tests.sim import weak_consensus, weak_verdicts  # noqa: F401 - they register mutations
from tests.sim.checker import Checker
from tests.sim.cluster import Cluster
from tests.sim.mutations import named, outcome
from tests.sim.node import Settings
from tests.sim.oracle import Log, Oracle, Role
from tests.sim.schedules import SCHEDULES
from tests.sim.shadow import Disagreement

# With the checker's own rules for consensus off, so that nothing else can notice it first.
CAUGHT_BY = {
    "truncate-without-conflict": "entries_of_old_terms_are_not_counted",
    "commit-without-match": "commit_stops_at_the_last_entry_that_matches",
    "commit-beyond-the-new-entries": "commit_stops_at_the_last_entry_that_matches",
    "stale-appends": "a_jump_of_the_leaders_clock_deletes_nothing",
    "no-log-matching": "late_ack_of_an_old_term_counts_nothing",
    "acks-without-term": "late_ack_of_an_old_term_counts_nothing",
    "acks-before-fsync": "followers_acknowledge_after_their_fsync",
    "votes-without-term": "late_votes_of_an_old_term_elect_nobody",
    "votes-without-voter": "a_vote_that_arrives_twice_counts_once",
    "votes-for-short-logs": "power_fails_in_each_disk_call_of_a_compaction",
    "votes-before-fsync": "late_append_does_not_truncate",
    "vote-forgotten": "late_append_does_not_truncate",
    "hard-state-not-stored": "late_append_does_not_truncate",
    "old-terms-by-counting": "entries_of_old_terms_are_not_counted",
    "no-fsync": "one_vote_a_term_also_after_a_restart",
    "commit-trusted-after-restart": "a_power_cut_of_all_loses_nothing",
    "stale-snapshot-installed": "a_leader_at_rest_is_replaced_by_a_snapshot",
}


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_the_oracle_alone_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for rule in ("leads", "sends", "stands", "believes"):
        monkeypatch.setattr(Checker, rule, lambda *of_a_step: None)
    with named(name).planted():
        assert outcome(SCHEDULES[CAUGHT_BY[name]]).startswith(Disagreement.__name__)


def test_each_step_of_a_run_is_compared() -> None:
    cluster = Cluster(Settings(), seed=1)
    cluster.start()
    cluster.scheduler.run_until(20.0)
    assert cluster.shadow.steps > 30
    assert len(cluster.shadow.replicas) == 3
    leading = [one for one in cluster.shadow.replicas.values() if one.oracle.role is Role.LEADER]
    assert len(leading) == 1
    assert all(one.oracle.commit == 2 for one in cluster.shadow.replicas.values())


# -- the paper's own examples -----------------------------------------------------------------


def server(*terms: int, me: int = 1, nodes: int = 3) -> Oracle:
    """Builds a server whose log has entries of these terms, all synced."""
    peers = [node for node in range(1, nodes + 1) if node != me]
    log = Log(0, 0, [(term, b"%d" % term) for term in terms])
    oracle = Oracle(me, peers, log)
    oracle.term = max(terms, default=0)
    return oracle


@pytest.mark.parametrize(
    ("last", "last_term", "granted"),
    [(3, 2, True), (2, 2, False), (1, 3, True), (9, 1, False)],
)
def test_votes_go_to_logs_that_are_up_to_date(last: int, last_term: int, granted: bool) -> None:
    assert server(1, 2, 2).request_vote(2, 5, last, last_term) is granted


def test_one_vote_a_term() -> None:
    oracle = server()
    assert oracle.request_vote(2, 1, 0, 0)
    assert not oracle.request_vote(3, 1, 0, 0)
    assert oracle.request_vote(2, 1, 0, 0)
    assert oracle.request_vote(3, 2, 0, 0)
    assert not oracle.request_vote(2, 1, 9, 9)


def test_conflicts_are_replaced_and_nothing_else_is() -> None:
    """Figure 7, (f): entries of terms 2 and 3 give way to those of terms 4 to 6."""
    oracle = server(1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3)
    assert oracle.append_entries(2, 8, 10, 6, [], 0) is None
    theirs = [(4, b""), (4, b""), (5, b""), (5, b""), (6, b""), (6, b""), (6, b"")]
    assert oracle.append_entries(2, 8, 3, 1, theirs, 0) == 10
    assert [term for term, _ in oracle.log.entries] == [1, 1, 1, 4, 4, 5, 5, 6, 6, 6]
    assert oracle.append_entries(2, 8, 3, 1, theirs[:2], 10) == 5
    assert (oracle.log.last, oracle.commit) == (10, 5)


def test_a_leader_commits_only_by_entries_of_its_own_term() -> None:
    """Figure 8: an entry of term 2 on a majority in term 4."""
    oracle = server(1, 2, nodes=5)
    oracle.term = 3
    oracle.stand()
    oracle.vote(2, 4)
    oracle.vote(2, 4)
    assert oracle.votes == {1, 2}
    oracle.vote(3, 4)
    assert oracle.role is Role.LEADER
    for follower in (2, 3):
        oracle.appended(follower, 4, 2)
    assert oracle.commit == 0
    oracle.propose((4, b""))
    oracle.appended(2, 4, 3)
    oracle.appended(3, 3, 3)  # late, of another term
    oracle.sync(3)
    assert oracle.commit == 0
    oracle.appended(3, 4, 3)
    assert oracle.commit == 3


def test_a_committed_entry_is_not_replaced() -> None:
    oracle = server(1, 1)
    assert oracle.append_entries(2, 1, 1, 1, [(1, b"1")], 2) == 2
    with pytest.raises(AssertionError, match="committed"):
        oracle.append_entries(3, 2, 1, 1, [(2, b"")], 0)


@pytest.mark.parametrize(("index", "term", "kept"), [(1, 1, True), (2, 1, True), (2, 2, False)])
def test_a_snapshot_replaces_a_log_without_its_last_entry(
    index: int, term: int, kept: bool
) -> None:
    oracle = server(1, 1, 1)
    oracle.install(3, index, term)
    assert (oracle.log.last == 3) is kept
    assert (oracle.log.base == index) is not kept
