"""Sender of a leader's entries to each follower: a pure part, one `FollowerProgress` a peer.

    propose, ack, nack, link up/down, heartbeat due --> Replicator --> Append
                                                              \\----> "needs a snapshot"

A follower is in one of three states (the names are etcd's):

    PROBE      we do not know where its log ends: one message at a time
    REPLICATE  it acknowledges: entries go out as they come, up to a window
    SNAPSHOT   its next entry is below our log's base: wait for the transfer

The core's own sender is not used: it sends acknowledged ranges again, sends
everything at once to a peer of unknown state, and cuts large entries into
pieces by the wrong length (docs/adr/0001).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from cluster.consensus.background_reads import BackgroundReads
from cluster.consensus.configuration import Members
from cluster.consensus.journal import Journal
from cluster.consensus.message import Append, AppendReply
from cluster.consensus.peer_window import PeerWindow, PeerWindows
from cluster.consensus.read_ahead import ReadAhead
from storage.errors import StorageError

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 1024 * 1024  # nothing overtakes a message that is being sent
MAX_MESSAGE_ENTRIES = 1024
MAX_INFLIGHT_BYTES = 32 * 1024 * 1024
MAX_INFLIGHT_MESSAGES = 256
KEEPS_UP = 256  # entries that a learner which stays may lack between two heartbeats


class FollowerState(Enum):
    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


@dataclass(slots=True)
class FollowerProgress:
    """Progress of one follower, as this leader knows it."""

    next: int
    window: PeerWindow  # shared with other groups
    match: int = 0
    version: int = 0  # of the configuration that is in force there
    replied_at: float = float("-inf")  # by this leader's clock
    state: FollowerState = FollowerState.PROBE
    probe_sent: bool = False
    is_filled: bool = False  # it had all entries once: a learner that stays keeps up
    is_fed: bool = False  # a learner has had a commit since the last heartbeat
    ahead: ReadAhead | None = None  # once it has needed entries that are in memory no more
    # (last index, bytes) of messages that are not acknowledged, oldest first.
    inflight: deque[tuple[int, int]] = field(default_factory=deque)
    inflight_bytes: int = 0
    # Why its next entry cannot be read here, if this leader stays nevertheless.
    unreadable: str = ""

    def free_up_to(self, index: int) -> None:
        while self.inflight and self.inflight[0][0] <= index:
            size = self.inflight.popleft()[1]
            self.inflight_bytes -= size
            self.window.bytes -= size

    def sent(self, last: int, size: int) -> None:
        self.inflight.append((last, size))
        self.inflight_bytes += size
        self.window.bytes += size

    def clear_inflight(self) -> None:
        self.inflight.clear()
        self.window.bytes -= self.inflight_bytes
        self.inflight_bytes = 0
        assert self.window.bytes >= 0

    def close(self) -> None:
        """Ends the sending: nothing is sent any more."""
        self.clear_inflight()
        if self.ahead is not None:
            self.ahead.close()

    def probe_from(self, index: int) -> None:
        assert index > self.match
        self.state = FollowerState.PROBE
        self.probe_sent = False
        self.next = index
        self.clear_inflight()

    @property
    def window_bytes(self) -> int:
        """Returns about how many bytes may be sent, if the window is open."""
        return max(1, min(MAX_INFLIGHT_BYTES - self.inflight_bytes, self.window.free))

    @property
    def window_open(self) -> bool:
        return (
            self.inflight_bytes < MAX_INFLIGHT_BYTES
            and len(self.inflight) < MAX_INFLIGHT_MESSAGES
            and self.window.is_open(waits_for_some=bool(self.inflight))
        )


class Replicator:
    """One leader's view of its followers, made for each term that it leads.

    up: peers that can be reached; no messages are made for other peers.
    windows: of all peers; see PeerWindow.
    reads: loads entries that have left memory.
    commit_index: followers may take it as committed; brought up to date before each step.
    """

    def __init__(
        self,
        group: int,
        term: int,
        journal: Journal,
        members: Members,
        up: Iterable[int],
        windows: PeerWindows,
        reads: BackgroundReads,
    ) -> None:
        self._group = group
        self._term = term
        self._journal = journal
        self._members = members
        self.commit_index = 0
        self._up = set(up)
        self._notified_commit = 0
        self._asking: set[int] = set()  # learners that must have a commit now
        start = journal.last_index  # the no-op of this term, just appended
        assert journal.term_at(start) == term
        self._windows = windows
        self._reads = reads
        self.peers = {peer: self._progress(peer, start) for peer in members.peers}

    def _progress(self, peer: int, start: int) -> FollowerProgress:
        return FollowerProgress(next=start, window=self._windows[peer])

    def configuration_changed(self) -> None:
        """Takes new members; their progress begins at the end of our log, as in a new term."""
        before, start = self.peers, self._journal.last_index
        self.peers = {
            peer: before[peer] if peer in before else self._progress(peer, start)
            for peer in self._members.peers
        }
        for peer in before.keys() - self.peers.keys():
            before[peer].close()

    def close(self) -> None:
        """Ends the term as a leader: nothing counts as in flight any more."""
        for progress in self.peers.values():
            progress.close()

    def on_reply(self, peer: int, reply: AppendReply, now: float) -> None:
        progress, next_index = self.peers[peer], reply.next_index
        progress.replied_at = now
        progress.version = max(progress.version, reply.version)
        if reply.success:
            match = next_index - 1
            if match < progress.match or match == 0:
                return
            progress.match = match
            if not progress.is_filled:
                progress.is_filled = match == self._journal.last_index
            progress.free_up_to(match)
            progress.next = max(progress.next, next_index)
            if progress.state is not FollowerState.REPLICATE:
                progress.probe_from(match + 1)
                progress.state = FollowerState.REPLICATE
            return
        if self._is_fresh(progress, reply):
            progress.probe_from(max(min(next_index, reply.rejected), progress.match + 1))

    @staticmethod
    def _is_fresh(progress: FollowerProgress, reply: AppendReply) -> bool:
        """Whether the refusal is new: one gap causes a refusal of each message behind it."""
        if progress.state is FollowerState.REPLICATE:
            return reply.rejected > progress.match
        return progress.state is FollowerState.PROBE and reply.rejected == progress.next - 1

    def set_link(self, peer: int, up: bool) -> None:
        """Notes a link's state; a lost link may have lost messages, so probe again."""
        if up:
            self._up.add(peer)
        else:
            self._up.discard(peer)
        progress = self.peers.get(peer)
        if progress is not None and progress.state is not FollowerState.SNAPSHOT:
            progress.probe_from(progress.match + 1 if progress.match else progress.next)

    def on_snapshot_sent(self, peer: int, index: int, installed: bool) -> None:
        progress = self.peers.get(peer)
        if progress is not None and progress.state is FollowerState.SNAPSHOT:
            progress.probe_from(max(index if installed else progress.next, progress.match) + 1)

    def needs_snapshot(self) -> list[int]:
        """Returns peers with a dropped next entry; each is named once and then waits."""
        behind = []
        for peer in self.reachable():
            progress = self.peers[peer]
            if (
                progress.state is not FollowerState.SNAPSHOT
                and progress.next <= self._journal.base_index
            ):
                progress.state, progress.unreadable = FollowerState.SNAPSHOT, ""
                progress.clear_inflight()
                behind.append(peer)
        return behind

    def heartbeats(self) -> list[tuple[int, Append]]:
        """Makes one message for every follower, with entries that are due anyway.

        Entries in flight may be so for long. So one more message, which refers to no entry,
        overtakes them and says that the leader lives.
        """
        out = []
        self._notified_commit = max(self._notified_commit, self.commit_index)
        self._asking.clear()
        for peer in self.reachable():
            progress = self.peers[peer]
            progress.probe_sent = progress.is_fed = False  # a lost probe is sent again
            sent = self._send(peer, progress)
            out += sent or [(peer, self._empty(progress))]
            if progress.inflight or any(append.data for _, append in sent):
                out.append((peer, Append(self._group, self._term, 0, 0, 0)))
        return out

    def pending(self) -> list[tuple[int, Append]]:
        """Makes all messages that may be sent now."""
        out = []
        for peer in self.reachable():
            out += self._send(peer, self.peers[peer])
        return out

    def pending_and_commits(self) -> list[tuple[int, Append]]:
        """Makes messages for followers that learn of a commit at once.

        A learner that stays learns of the first commit after a heartbeat, and of the next ones
        with the next heartbeat: it is in no majority, and each message costs it a round.
        """
        is_new = self.commit_index > self._notified_commit
        self._notified_commit = max(self._notified_commit, self.commit_index)
        out = []
        for peer in self.reachable():
            progress = self.peers[peer]
            if self._keeps_up(peer, progress):
                if peer in self._asking or (is_new and not progress.is_fed):
                    progress.is_fed = True
                    out += self._send(peer, progress) or [(peer, self._empty(progress))]
                continue
            out += self._send(peer, progress)
            if is_new and progress.state is FollowerState.REPLICATE:
                out.append((peer, self._empty(progress)))
        self._asking.clear()
        return out

    def _keeps_up(self, peer: int, progress: FollowerProgress) -> bool:
        """Whether it is a learner that lacks little: it need not have each entry at once."""
        lacks = self._journal.last_index - progress.next
        return progress.is_filled and lacks < KEEPS_UP and peer not in self._members.voters

    def feed(self, peer: int = 0) -> None:
        """Lets a learner that stays, or 0: each, have all that is committed, in the next step."""
        self._asking |= self.peers.keys() & {peer} if peer else self.peers.keys()

    def level(self) -> bool:
        """Whether enough followers can be reached, and each of them has all entries.

        It also has to have said that the configuration is in force there: at rest it says nothing,
        and a learner that has not said it gets no vote.
        """
        reachable, last = self.reachable(), self._journal.last_index
        voters = sum(peer in self._up for peer in self._members.voters)
        return voters + 1 >= self._members.majority and all(
            self._is_level(self.peers[peer], last) for peer in reachable
        )

    def _is_level(self, progress: FollowerProgress, last: int) -> bool:
        has_all = progress.state is FollowerState.REPLICATE and progress.match == last
        return has_all and progress.version >= self._members.version

    def reachable(self) -> list[int]:
        return [peer for peer in self.peers if peer in self._up]

    def _send(self, peer: int, progress: FollowerProgress) -> list[tuple[int, Append]]:
        out: list[tuple[int, Append]] = []
        last = self._journal.last_index
        if progress.state is FollowerState.PROBE and not progress.probe_sent:
            if progress.next > self._journal.base_index:
                progress.probe_sent = True
                out.append((peer, self._append(progress, last, may_read=False)))
            return out
        is_free = progress.is_filled or peer in self._members.voters
        rate = None if is_free else self._windows.learners
        while (
            progress.state is FollowerState.REPLICATE
            and progress.next <= last
            and progress.window_open
        ):
            if progress.next <= self._journal.base_index or not (rate is None or rate.is_open()):
                break
            append = self._readable(progress, last)
            if append is None or not append.data:
                break
            size = sum(map(len, append.data))
            progress.next += len(append.data)
            progress.sent(progress.next - 1, size)
            if rate is not None:
                rate.sent(size)
            out.append((peer, append))
        if progress.ahead is not None:
            progress.ahead.step_ends()
        return out

    def _readable(self, progress: FollowerProgress, last: int) -> Append | None:
        """Appends as `_append`; None: the next entry is unreadable and nobody else can lead.

        A lone voter that cannot read an entry for a learner cannot read it for anybody: the learner
        is not filled, and the partition goes on with its sound part. Raises StorageError if there
        is another voter, which shall lead then.
        """
        if progress.unreadable:
            return None
        try:
            return self._append(progress, last, may_read=True)
        except StorageError as error:
            if self._members.voters:
                raise
            progress.unreadable = str(error)
            log.error("a replica cannot be filled group=%d entry=%d: %s",
                      self._group, progress.next, error)  # fmt: skip
            return None

    def _append(self, progress: FollowerProgress, last: int, *, may_read: bool) -> Append:
        """Makes entries from progress.next on, as far as loaded; may_read: others are read."""
        first, journal = progress.next, self._journal
        prev = first - 1
        data: list[bytes] = []
        checksums: list[int] = []
        size = 0
        while first + len(data) <= last and len(data) < MAX_MESSAGE_ENTRIES:
            found = journal.in_memory(first + len(data))
            if found is None and may_read:
                found = self._from_disk(progress, first + len(data), last)
            if found is None:
                break
            entry, checksum = found
            if data and size + len(entry) > MAX_MESSAGE_BYTES:
                break
            data.append(entry)
            checksums.append(checksum)
            size += len(entry)
        terms = journal.terms(first, prev + len(data)) if data else ()
        return Append(
            self._group,
            self._term,
            prev,
            journal.term_at(prev),
            self.commit_index,
            terms,
            tuple(data),
            tuple(checksums),
        )

    def _from_disk(
        self, progress: FollowerProgress, index: int, last: int
    ) -> tuple[bytes, int] | None:
        if progress.ahead is None:
            progress.ahead = ReadAhead(self._group, self._journal, self._reads)
        return progress.ahead.entry(index, last, progress.window_bytes)

    def _empty(self, progress: FollowerProgress) -> Append:
        prev = progress.next - 1
        if progress.state is not FollowerState.REPLICATE or prev < self._journal.base_index:
            return Append(self._group, self._term, 0, 0, 0)
        prev_term = self._journal.term_at(prev)
        return Append(self._group, self._term, prev, prev_term, self.commit_index)
