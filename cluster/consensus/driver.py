"""Driver of Raft for all groups of a node: the only loop that touches them.

    inbound messages, timeouts, proposals
        -> advance the groups that have work
        -> one write for all of them            begin(), once for each slice of the work
        -> send messages that promise nothing
        -> one fsync for all of them            sync()
        -> send acks and votes held until then  finish()

Only this module enforces "persist before send". The three phases are plain calls, so that the
simulator runs them at times of its own choosing. The node runs `sync` in a thread, because
RocksDB's flush frees the GIL. Meanwhile the node may send heartbeats, which promise nothing; it
does nothing else here.

A `begin` does a bounded part of the waiting work (`is_cut` says that there is more). Between two of
them the node does its other work; one fsync covers all of them.

If the disk is full, the driver keeps the batch and sends nothing until it is written: peers see
silence and elect another leader, and readers go on. If an fsync fails, the node must end: nobody
can tell which data the kernel dropped.
"""

from __future__ import annotations

import heapq
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable

from cluster.consensus.background_reads import BackgroundReads, Start
from cluster.consensus.group import Group
from cluster.consensus.heartbeats import Heartbeats
from cluster.consensus.learner_rate import LearnerRate
from cluster.consensus.message import (
    DURABLE,
    OF_NODES,
    AppendReply,
    GroupMessage,
    Heartbeat,
    HeartbeatReply,
    Message,
    Snapshot,
)
from cluster.consensus.peer_window import PeerWindows
from cluster.consensus.port import Clock
from cluster.consensus.replay_budget import ReplayBudget
from cluster.consensus.snapshots import Checked, checking
from cluster.consensus.tombstone import Tombstone
from storage.errors import StorageFullError
from storage.kv import KeyValue, WriteBatch

log = logging.getLogger(__name__)

Send = Callable[[int, list[Message]], None]

SLICE_OPERATIONS = 512  # of the write batch: entries, rows. A slice ends soon after.
MAX_SLICES = 8  # before one fsync, so that the first slice's callers do not wait forever


class Driver:
    """Owner of the groups of one node and of their shared write batch.

    send: hands messages for one peer to the network; never blocks.
    wake: tells the runner that there is work.
    learners: how fast they are filled; None: without a limit.
    replay: limits how much a start may apply again, over all groups.
    start_read: runs a read of the disk elsewhere; see `background_reads`.
    """

    def __init__(
        self,
        kv: KeyValue,
        clock: Clock,
        send: Send,
        wake: Callable[[], None],
        replay: ReplayBudget,
        start_read: Start,
        learners: LearnerRate | None = None,
    ) -> None:
        self._kv = kv
        self._clock = clock
        self._send = send
        self._wake = wake
        self.replay = replay
        self.reads = BackgroundReads(start_read, self.touch)
        self.windows = PeerWindows(learners)
        self.groups: dict[int, Group] = {}
        self.batch: WriteBatch = kv.batch()
        self._inbound: list[tuple[int, Message]] = []
        self._with_work: set[int] = set()
        self._next_group = 0  # the next slice begins with it
        self.is_cut = self._is_saving = False
        self._syncing: dict[int, Group] = {}
        self._in_sync = False
        self._held: dict[int, list[Message]] = {}
        self._due: list[tuple[float, int]] = []
        self._heartbeats = Heartbeats(clock, self.groups, self.touch)
        self._replies: list[tuple[int, Message]] = []  # sent by the driver, not by a group
        # Tombstones of removed replicas, which answer in their place.
        self.tombstones: dict[int, Tombstone] = {}
        self.storage_full = False

    # -- calls by the node --------------------------------------------------------

    def add(self, group: Group) -> None:
        gid = group.config.group
        assert gid not in self.groups
        self.groups[gid] = group
        self.touch(gid)

    def remove(self, gid: int) -> Group:
        self.on_stopped(gid)
        group = self.groups.pop(gid)
        self._with_work.discard(gid)
        self._syncing.pop(gid, None)
        return group

    def on_stopped(self, gid: int) -> None:
        """Hands over the leadership of a failed replica, by silence."""
        self._heartbeats.unquiesce(gid)
        self.replay.leave(gid)

    def touch(self, gid: int) -> None:
        """Marks group `gid` as having a proposal or other work."""
        self._with_work.add(gid)
        self._wake()

    def receive(self, sender: int, messages: Iterable[Message]) -> None:
        if self.storage_full:
            return  # no promise is possible; Raft sends important messages again
        self._inbound += [(sender, message) for message in messages]
        self._wake()

    def set_link(self, peer: int, up: bool) -> None:
        for gid, group in self.groups.items():
            # A leader may be in a configuration that is not known here yet.
            concerned = peer in group.members.peers or peer == group.leader_id
            group.set_link(peer, up)
            if concerned:
                self._schedule(group, group.next_due())
                if up or group.is_quiescent:
                    self._with_work.add(gid)
        self._wake()

    @property
    def timeout_due(self) -> float:
        """Returns the earliest timeout of all groups."""
        due = self._due[0][0] if self._due else float("inf")
        return min(due, self._heartbeats.due)

    def next_due(self) -> float:
        """Returns the latest time for the next `begin`; now if there is work already."""
        return self._clock() if self._inbound or self._with_work else self.timeout_due

    # -- the three phases -----------------------------------------------------------

    def begin(self) -> bool:
        """Advances groups and writes; returns whether `sync` and `finish` must follow.

        While `is_cut`, another `begin` may do more of the work before the sync.
        """
        assert not self._in_sync
        self.is_cut = self._is_saving = False
        self.reads.next_round()
        if self.storage_full and not self._write():
            return bool(self._syncing)
        touched = self._advance()
        # A large state is saved in many slices without an fsync for each.
        is_cut = self._is_full() or self._is_saving
        self.is_cut = is_cut and bool(self._inbound or self._with_work)
        if self.replay.total > self.replay.limit:
            for gid in self.replay.overdue():
                self.groups[gid].checkpoint_early()
                if self.groups[gid].has_work:
                    self._with_work.add(gid)
        if not self._write():
            # No effect of these groups may be visible until it is written.
            self._with_work |= {group.config.group for group in touched}
            self.is_cut = False
            return bool(self._syncing)
        eager: dict[int, list[Message]] = defaultdict(list)
        for group in touched:
            is_safe = self._is_safe(group)
            for peer, message in group.out:
                held = not is_safe and isinstance(message, DURABLE)
                (self._held.setdefault(peer, []) if held else eager[peer]).append(message)
            group.out.clear()
            if not is_safe:
                group.journal.begin_sync()
                self._syncing[group.config.group] = group
        for peer, message in self._coalesced():
            eager[peer].append(message)
        for peer, messages in eager.items():
            self._send(peer, messages)
        return bool(self._syncing)

    def _is_safe(self, group: Group) -> bool:
        """Whether all its writes are durable, including writes of earlier slices."""
        journal = group.journal
        if journal.dirty or group.config.group in self._syncing:
            return False
        return journal.durable_index >= journal.last_index

    def sync(self) -> None:
        """Makes the last write durable. Blocks. Raises storage.StorageError: end the node."""
        self._in_sync = True
        self._kv.sync()

    def finish(self) -> None:
        """Sends the messages and answers that waited for the sync."""
        self._in_sync = False
        for gid, group in self._syncing.items():
            group.journal.end_sync()
            if group.has_work:
                self._with_work.add(gid)
        held, self._held, self._syncing = self._held, {}, {}
        for peer, messages in held.items():
            self._send(peer, [message for message in messages if self._stands(message)])

    def _stands(self, message: Message) -> bool:
        """Whether the message still holds; an entry of an older term may have been replaced."""
        if not isinstance(message, AppendReply):
            return True
        group = self.groups.get(message.group)
        return group is not None and message.term >= group.term

    # -- during a sync -----------------------------------------------------------------

    def send_heartbeats(self) -> None:
        """Sends heartbeats of the leaders here. Nothing is received, decided or written."""
        out: dict[int, list[Message]] = defaultdict(list)
        for peer, heartbeat in self._heartbeats.again():
            out[peer].append(heartbeat)
        for group in self.groups.values():
            for peer, append in group.bare_heartbeats():
                out[peer].append(append)
        for peer, messages in out.items():
            self._send(peer, messages)

    def give_leadership_away(self) -> None:
        """Asks one follower of each group led here to stand for election."""
        for group in self.groups.values():
            for successor, ask in group.give_leadership_away():
                self._send(successor, [ask])

    def check(self, snapshot: Snapshot, done: Callable[[Checked], None]) -> None:
        """Checks and loads a leader's snapshot in a thread, then calls `done` with it."""
        check = checking(self.groups[snapshot.group].machine, snapshot)
        self.reads.ask(snapshot.group, check, done)

    def install(self, sender: int, checked: Checked) -> bool:
        """Replaces a group's log by a leader's snapshot, between two rounds; durable.

        Returns whether the leader may go on from there. Raises SnapshotError if the snapshot is not
        sound; nothing is changed then. Raises StorageError: end the node.
        """
        assert not self._syncing and not self._held and not self._in_sync
        assert not self.storage_full, "waiting writes come first"
        gid = checked.snapshot.group
        group = self.groups[gid]
        base = group.journal.base_index
        # A quiescent group may still take itself for the leader.
        self._heartbeats.unquiesce(gid)
        self.touch(gid)
        taken = group.install(sender, checked)
        if taken and group.journal.base_index != base:
            self._kv.write(self.batch)
            self.batch = self._kv.batch()
            self._kv.sync()
            group.reopen(checked)
        return taken

    # -- parts ------------------------------------------------------------------------

    def _advance(self) -> list[Group]:
        """Advances groups that have messages, work or a timeout; returns them."""
        touched = self._deliver()
        with_work, self._with_work = self._with_work - touched.keys(), set()
        due = self._take_due()
        for gid, group in touched.items():
            self._advance_one(gid, group)
        # Groups that this slice does not reach come first in the next.
        waiting = sorted(with_work, key=lambda gid: (gid < self._next_group, gid))
        for number, gid in enumerate(waiting):
            if self._is_full():
                self._with_work |= set(waiting[number:])
                self._next_group = gid
                break
            if gid in self.groups:
                touched[gid] = self.groups[gid]
                self._advance_one(gid, touched[gid])
        for gid, group in due.items():
            if gid not in touched:
                touched[gid] = group
                self._advance_one(gid, group)
        return list(touched.values())

    def _is_full(self) -> bool:
        """Whether this slice has done enough."""
        return len(self.batch) >= SLICE_OPERATIONS

    def _advance_one(self, gid: int, group: Group) -> None:
        if gid in self._heartbeats.quiescent:
            self._heartbeats.unquiesce(gid)
        group.advance()
        if group.can_quiesce:
            self._heartbeats.quiesce(group)
        if group.has_work:
            self._with_work.add(gid)
            self._is_saving = self._is_saving or group.checkpoints.is_saving
        self._schedule(group, group.next_due())

    def _deliver(self) -> dict[int, Group]:
        """Delivers received messages to their groups; returns these groups."""
        touched: dict[int, Group] = {}
        inbound, self._inbound = self._inbound, []
        for number, (sender, message) in enumerate(inbound):
            if self._is_full():
                self._inbound = inbound[number:]
                break
            self._deliver_one(sender, message, touched)
        return touched

    def _deliver_one(self, sender: int, message: Message, touched: dict[int, Group]) -> None:
        if isinstance(message, Heartbeat):
            reply = self._heartbeats.on_heartbeat(sender, message)
            self._replies.append((sender, reply))
            return
        if isinstance(message, HeartbeatReply):
            self._heartbeats.on_reply(sender, message)
            return
        assert not isinstance(message, OF_NODES), "for the node"
        gid = message.group
        group = self.groups.get(gid)
        if gid in self.tombstones:
            self._answer_for_removed(sender, message)
        if group is not None:
            if gid in self._heartbeats.quiescent:
                if group.is_repeated(sender, message):
                    self._heartbeats.on_repeated(sender)
                    return
                self._heartbeats.unquiesce(gid)  # the message may depose its leader
            group.receive(sender, message)
            touched[gid] = group

    def _answer_for_removed(self, sender: int, message: GroupMessage) -> None:
        answer = self.tombstones[message.group].answer(message)
        if answer is not None:
            self._replies.append((sender, answer))

    def _take_due(self) -> dict[int, Group]:
        """Takes the groups with an expired timeout."""
        found: dict[int, Group] = {}
        now = self._clock()
        while self._due and self._due[0][0] <= now:
            _, gid = heapq.heappop(self._due)
            group = self.groups.get(gid)
            if group is None:
                continue
            group.scheduled_at = float("inf")
            due = group.next_due()
            if due <= now:
                found[gid] = group
            else:
                self._schedule(group, due)
        return found

    def _coalesced(self) -> list[tuple[int, Message]]:
        """Makes heartbeats of quiescent groups, answers to those of others, and of tombstones."""
        out, self._replies = self._replies, []
        if self._clock() >= self._heartbeats.due:
            out += self._heartbeats.send()
        return out

    def _schedule(self, group: Group, due: float) -> None:
        if due < group.scheduled_at:
            group.scheduled_at = due
            heapq.heappush(self._due, (due, group.config.group))

    def _write(self) -> bool:
        """Writes the open batch. False: the disk is full and the batch is kept."""
        if not len(self.batch):
            return True
        try:
            self._kv.write(self.batch)
        except StorageFullError as error:
            if not error.recoverable_in_place:
                raise  # earlier writes may be lost too: restart the node
            if not self.storage_full:
                log.error("storage full, writes wait: %s", error)
            self.storage_full = True
            return False
        if self.storage_full:
            log.warning("storage has space again, writes go on")
        self.storage_full = False
        self.batch = self._kv.batch()
        return True
