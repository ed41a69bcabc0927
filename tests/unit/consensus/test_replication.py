"""A leader's messages to a follower, state by state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cluster.consensus import peer_window, replication
from cluster.consensus.background_reads import BackgroundReads, Done
from cluster.consensus.configuration import Configuration, Member, Placed
from cluster.consensus.learner_rate import LearnerRate
from cluster.consensus.message import Append, AppendReply
from cluster.consensus.peer_window import PeerWindows
from cluster.consensus.replication import FollowerState, Replicator
from tests.unit.consensus.raft_parts import GROUP, Parts, reads_at_once


class Leader:
    """Entries 2..5 of term 1, and the no-op of term 2 at 6."""

    def __init__(self, windows: PeerWindows | None = None) -> None:
        self.parts = Parts()
        self.parts.fill(1, 1, 1, 1, 2)
        shared = PeerWindows() if windows is None else windows
        journal, members = self.parts.journal, self.parts.members
        self.reads: list[tuple[Callable[[], object], Done]] = []  # in flight
        reads = BackgroundReads(lambda *started: self.reads.append(started), lambda group: None)
        self.replicator = Replicator(GROUP, 2, journal, members, (2,), shared, reads)
        self.replicator.commit_index = 5

    def send(self) -> list[Append]:
        out = self.replicator.pending()
        assert all(peer == 2 for peer, _ in out), "node 3 cannot be reached"
        return [message for _, message in out]

    def beat(self) -> list[Append]:
        return [message for _, message in self.replicator.heartbeats()]

    def ack(self, next_index: int) -> None:
        self.replicator.on_reply(2, AppendReply(GROUP, 2, next_index, True), 0.0)

    def refuse(self, next_index: int, rejected: int) -> None:
        self.replicator.on_reply(2, AppendReply(GROUP, 2, next_index, False, rejected), 0.0)

    @property
    def progress(self) -> replication.FollowerProgress:
        return self.replicator.peers[2]


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_probe_sends_one_message_and_waits(leader: Leader) -> None:
    (first,) = leader.send()
    assert (first.prev_index, first.prev_term, first.terms) == (5, 1, (2,))
    leader.parts.fill(2)
    assert leader.send() == []
    again, alive = leader.beat()
    assert again.terms == (2, 2), "a lost probe goes out again with the heartbeat"
    assert (alive.prev_index, alive.commit, alive.data) == (0, 0, ())


def test_a_heartbeat_that_may_overtake_says_nothing_of_the_entries_on_their_way(
    leader: Leader,
) -> None:
    leader.send()
    leader.ack(7)
    (level,) = leader.beat()
    assert (level.prev_index, level.commit) == (6, 5), "nothing is on its way"
    leader.parts.fill(2)
    assert len(leader.send()) == 1
    in_order, alive = leader.beat()
    assert (in_order.prev_index, in_order.data) == (7, ()), "it finds what was lost"
    assert (alive.prev_index, alive.commit, alive.data) == (0, 0, ())
    leader.ack(8)
    assert len(leader.beat()) == 1


def test_acknowledged_follower_gets_entries_as_they_come(leader: Leader) -> None:
    leader.send()
    leader.ack(7)
    assert leader.progress.state is FollowerState.REPLICATE
    for index in (7, 8):
        leader.parts.fill(2)
        (message,) = leader.send()
        assert (message.prev_index, len(message.data)) == (index - 1, 1)
    leader.ack(8)
    assert leader.send() == [], "an acknowledgement sends nothing again"
    assert leader.progress.match == 7


def test_refused_probe_goes_back_and_finds_the_match(leader: Leader) -> None:
    leader.send()
    leader.refuse(3, rejected=5)
    (message,) = leader.send()
    assert (message.prev_index, message.terms) == (2, (1, 1, 1, 2))
    leader.ack(7)
    assert leader.progress.match == 6


def test_one_gap_makes_one_resend(leader: Leader) -> None:
    leader.send()
    leader.ack(7)
    for _ in range(5):
        leader.parts.fill(2)
        leader.send()
    for rejected in (7, 8, 9, 10):  # the message with entry 7 was lost
        leader.refuse(7, rejected)
    (message,) = leader.send()
    assert (message.prev_index, len(message.data)) == (6, 5)
    assert leader.send() == []


def test_late_refusal_is_not_news(leader: Leader) -> None:
    leader.send()
    leader.ack(7)
    leader.refuse(3, rejected=5)
    assert leader.progress.state is FollowerState.REPLICATE
    assert leader.progress.match == 6


def test_lost_link_asks_again_from_the_match(leader: Leader) -> None:
    leader.send()
    leader.ack(7)
    leader.parts.fill(2, 2)
    leader.send()
    leader.replicator.set_link(2, False)
    assert leader.send() == []
    assert leader.beat() == []
    leader.replicator.set_link(2, True)
    (message,) = leader.send()
    assert (message.prev_index, len(message.data)) == (6, 2)


def test_window_bounds_what_is_in_flight(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "MAX_INFLIGHT_MESSAGES", 3)
    monkeypatch.setattr(replication, "MAX_MESSAGE_ENTRIES", 1)
    leader.send()
    leader.ack(7)
    leader.parts.fill(*[2] * 10)
    assert [message.last_index for message in leader.send()] == [7, 8, 9]
    leader.ack(9)
    assert [message.last_index for message in leader.send()] == [10, 11]


def test_message_is_cut_by_bytes_but_holds_one_entry(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication, "MAX_MESSAGE_BYTES", 1)
    leader.parts.fill(2, 2)
    (message,) = leader.send()
    assert len(message.data) == 1


def test_follower_below_the_base_gets_a_snapshot_once(leader: Leader) -> None:
    leader.parts.sync()
    leader.parts.apply(5)
    leader.send()
    leader.refuse(2, rejected=5)
    leader.parts.journal.trim_to(4)
    assert leader.send() == []
    assert leader.replicator.needs_snapshot() == [2]
    assert leader.replicator.needs_snapshot() == []
    (beat,) = leader.beat()
    assert (beat.prev_index, beat.commit) == (0, 0), "the leader lives; nothing is claimed"
    leader.replicator.on_snapshot_sent(2, 4, installed=True)
    (message,) = leader.send()
    assert (message.prev_index, message.terms) == (4, (1, 2))


def test_snapshot_that_failed_is_asked_for_again(leader: Leader) -> None:
    leader.parts.sync()
    leader.parts.apply(5)
    leader.refuse(2, rejected=5)
    leader.parts.journal.trim_to(4)
    leader.replicator.needs_snapshot()
    leader.replicator.on_snapshot_sent(2, 4, installed=False)
    assert leader.replicator.needs_snapshot() == [2]


def test_commit_news_goes_out_once_and_only_to_who_keeps_up(leader: Leader) -> None:
    ((_, probe),) = leader.replicator.pending_and_commits()
    assert probe.terms == (2,), "a probed follower is not told"
    parts = leader.parts
    leader.replicator = Replicator(
        GROUP, 2, parts.journal, parts.members, (2,), PeerWindows(), reads_at_once()
    )
    leader.replicator.commit_index = 5
    leader.send()
    leader.ack(7)
    ((peer, message),) = leader.replicator.pending_and_commits()
    assert (peer, message.prev_index, message.commit, message.data) == (2, 6, 5, ())
    assert leader.replicator.pending_and_commits() == []
    leader.replicator.commit_index = 6
    leader.replicator.feed(2)
    assert [one.commit for one in leader.beat()] == [6], "a heartbeat has the news, too"
    assert leader.replicator.pending_and_commits() == []


def test_groups_share_what_may_be_on_its_way_to_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each had 32 MiB of its own: a thousand groups filled a slow follower's memory."""
    windows = PeerWindows()
    leaders = [Leader(windows) for _ in range(4)]
    size = sum(len(data) for append in leaders[0].send() for data in append.data)
    monkeypatch.setattr(peer_window, "MAX_PEER_BYTES", 2 * size)
    monkeypatch.setattr(peer_window, "MAX_PEER_BYTES_IN_ALL", 3 * size)
    for leader in leaders:
        leader.replicator.pending()
        leader.ack(7)  # from a probe to a stream of messages; nothing is in flight
    assert windows[2].bytes == 0

    def send_one(leader: Leader) -> int:
        leader.parts.fill(2)
        return len(leader.send())

    first = leaders[0]
    assert [send_one(first), send_one(first)] == [1, 1]
    assert windows[2].bytes == 2 * size
    assert send_one(first) == 0, "it has messages on their way, and there is no room"
    assert send_one(leaders[1]) == 1, "it has none: one may go"
    assert send_one(leaders[2]) == 0, "nor may that be without an end"
    first.ack(9)
    assert windows[2].bytes == size
    assert [len(one.send()) for one in (leaders[2], first)] == [1, 1]
    first.replicator.close()
    for leader in leaders:
        leader.replicator.set_link(2, False)
    assert windows[2].bytes == 0, "what is lost, and what no leader waits for, has left"


# --- learners -----------------------------------------------------------------------------


def test_learners_of_all_groups_are_filled_within_one_limit() -> None:
    now, limit = [100.0], [0]
    rate = LearnerRate(lambda: now[0], lambda: limit[0])
    assert rate.is_open(), "0 is no limit"
    limit[0] = 1000
    rate.is_open()
    now[0] += 60.0
    assert rate.is_open()
    rate.sent(750)  # 250 were left of the minute
    assert not rate.is_open()
    now[0] += 0.5
    assert not rate.is_open(), "500 more than allowed were sent"
    now[0] += 0.01
    assert rate.is_open()
    limit[0] = 0
    rate.sent(10**9)
    assert rate.is_open()
    limit[0] = 1000
    now[0] += 0.01
    assert rate.is_open(), "nothing is owed for what had no limit"


@pytest.mark.parametrize("learns", [True, False])
def test_a_learner_waits_for_the_limit_and_a_voter_does_not(learns: bool) -> None:
    now = [0.0]
    windows = PeerWindows(LearnerRate(lambda: now[0], lambda: 1))
    leader = Leader(windows)
    leader.send()
    if learns:
        now_learns = Configuration(1, (Member(1), Member(3)), (Member(2),))
        leader.parts.members.take(Placed(1, 1, now_learns))
    leader.ack(2)
    sent = leader.send()
    assert bool(sent) is not learns
    now[0] = 10.0
    assert bool(leader.beat()[0].data) is learns


def test_a_learner_that_had_all_entries_waits_for_no_limit() -> None:
    rate = LearnerRate(lambda: 0.0, lambda: 1)
    leader = Leader(PeerWindows(rate))
    learns = Configuration(1, (Member(1), Member(3)), (Member(2),))
    leader.parts.members.take(Placed(1, 1, learns))
    rate.sent(1000)  # another learner is filled
    leader.send()
    leader.ack(6)
    assert not leader.send(), "it lacks an entry"
    leader.ack(7)
    leader.parts.fill(2)
    (append,) = leader.send()
    assert append.data


def test_a_learner_that_stays_gets_one_message_for_many_entries() -> None:
    """At once after a silence, then with each heartbeat, and when somebody waits there."""
    leader = Leader()
    leader.parts.members.take(Placed(1, 1, Configuration(1, (Member(1), Member(3)), (Member(2),))))
    leader.send()
    leader.ack(7)
    leader.replicator.pending_and_commits()
    leader.beat()

    def commits(*, asks: bool = False) -> list[tuple[int, int]]:
        """Commits one entry more; returns the number of entries and the commit of each message."""
        leader.parts.fill(2)
        assert asks or leader.replicator.pending_and_commits() == [], "it is not committed"
        leader.replicator.commit_index = leader.parts.journal.last_index
        if asks:
            leader.replicator.feed(2)
        sent = leader.replicator.pending_and_commits()
        return [(len(one.data), one.commit) for _, one in sent]

    assert commits() == [(1, 7)]
    assert [commits(), commits()] == [[], []]
    assert [(len(one.data), one.commit) for one in leader.beat()] == [(2, 9), (0, 0)]
    assert commits() == [(1, 10)]
    assert commits() == []
    assert commits(asks=True) == [(2, 12)]
    assert commits() == []
    leader.replicator.feed()
    ((_, told),) = leader.replicator.pending_and_commits()
    assert (len(told.data), told.commit) == (1, 13), "all learners are fed"
    leader.replicator.feed(2)
    ((_, told),) = leader.replicator.pending_and_commits()
    assert (told.data, told.commit) == ((), 13), "it may lack the news alone"
    leader.parts.fill(*[2] * (replication.KEEPS_UP + 1))
    ((_, many),) = leader.replicator.pending_and_commits()
    assert len(many.data) == replication.KEEPS_UP + 1, "it lacks many"
