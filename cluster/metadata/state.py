"""The metadata group's state machine: nodes, topics, producer id blocks, producer names.

Every node holds the whole state. A command is proposed by any node, stamped by the metadata leader,
committed, and applied here in log order. Apply is a deterministic function of the command and the
state before it: time is the highest stamp applied so far. A rejected command changes nothing.
`dump` gives the same bytes on every replica that has applied the same log.

After a change the rest of the node learns from `take_events` which groups to open or close; after
`load` these are the differences to the earlier state.

Lease lifetime and name expiry decide when a replica forgets, so they are the cluster's settings.
Before those are founded, each command carries the times of the leading node's settings. The
shortest times ever stamped are in force: anything forgotten under a shorter time must not count as
valid again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from google.protobuf.message import DecodeError

from cluster.features import (
    COMMANDS,
    KAFKA,
    THIS_RELEASE,
    Features,
    Finalized,
    OlderReleaseError,
    Release,
)
from cluster.metadata import nodes as node_rules
from cluster.metadata import permissions, replicas, transactions
from cluster.metadata import settings as cluster_settings
from cluster.metadata import topics as rules
from cluster.metadata import upgrade as upgrades
from cluster.metadata.commands import MetadataCorruptError, parsed_command
from cluster.metadata.events import (
    Event,
    LayoutChanged,
    SettingsChanged,
    TermsChanged,
    TopicAltered,
    UpgradeFinalized,
    difference,
)
from cluster.metadata.lease_tokens import SECRET_BYTES
from cluster.metadata.producer_names import NameState
from cluster.metadata.snapshot import load_tables, packed_tables
from cluster.metadata.tables import FIRST_PARTITION_GROUP_ID, Tables
from cluster.metadata.topics import (
    DAY_MS,
    PartitionState,
    Rejected,
    TopicSettings,
    TopicState,
    invalid,
)
from cluster.security.permissions import Rule
from cluster.security.quotas import QuotaRow
from cluster.transactions.coordinator import Coordinator
from cluster.transactions.types import Holder
from cluster.v1 import metadata_pb2 as pb

__all__ = [
    "FIRST_PARTITION_GROUP_ID",
    "Event",
    "LayoutChanged",
    "MetadataCorruptError",
    "MetadataState",
    "SettingsChanged",
    "TermsChanged",
    "TopicAltered",
    "UpgradeFinalized",
]

MAX_BLOCK_SIZE = 100_000
MAX_PRODUCER_ID = 2**63 - 1


class MetadataState:
    """The replicated state. All times are milliseconds since the Unix epoch."""

    def __init__(
        self,
        *,
        lease_lifetime_ms: int = DAY_MS,
        name_expiry_ms: int = 7 * DAY_MS,
        release: Release = THIS_RELEASE,
    ) -> None:
        """Begins with times that hold until a command brings others; the same on all nodes.

        release: the versions and features that this node supports.
        """
        assert name_expiry_ms >= lease_lifetime_ms > 0
        self._release = release
        self._defaults = (lease_lifetime_ms, name_expiry_ms)
        self._events: list[Event] = []
        self._tables = Tables()
        self.applied_index = 0

    # --- queries -------------------------------------------------------------------

    @property
    def clock_ms(self) -> int:
        """The highest stamp applied so far."""
        return self._tables.clock_ms

    @property
    def next_producer_id(self) -> int:
        return self._tables.next_producer_id

    @property
    def nodes(self) -> Mapping[int, str]:
        """Node id -> the address that clients use."""
        return MappingProxyType(self._tables.nodes)

    @property
    def lease_lifetime_ms(self) -> int:
        """The lifetime of a producer id in force, regardless of a node's settings."""
        return self._terms(self._tables)[0]

    @property
    def lease_secret(self) -> bytes:
        """The key of lease tokens; empty until the first lease."""
        return self._tables.lease_secret

    @property
    def name_expiry_ms(self) -> int:
        """The idle time after which a name no longer holds its producer id."""
        return self._terms(self._tables)[1]

    @property
    def finalized(self) -> Finalized:
        """The cluster version and the features that are on."""
        return self._tables.finalized

    @property
    def settings(self) -> Mapping[str, int]:
        """The cluster's settings; empty: not founded yet."""
        return MappingProxyType(self._tables.settings)

    @property
    def features(self) -> Features:
        return Features(lambda: self._tables.finalized)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The permission rules: another object after each change."""
        return self._tables.rules

    @property
    def rules_version(self) -> int:
        """Rises with each change of the rules."""
        return self._tables.rules_version

    @property
    def quotas(self) -> tuple[QuotaRow, ...]:
        """The quotas at a node: another object after each change."""
        return self._tables.quotas

    def directory_of(self, node_id: int, instance: int = 0) -> int:
        """The id of the data directory that speaks for the node; 0: any. See nodes.py."""
        return node_rules.directory_of(self._tables, node_id, instance)

    @property
    def membership(self) -> node_rules.NodesView:
        """The nodes and their membership changes."""
        return node_rules.NodesView(self._tables)

    @property
    def coordinator(self) -> Coordinator:
        return self._tables.coordinator

    @property
    def tables(self) -> Tables:
        """The replicated value itself, to read; changes are tried on its `trial`."""
        return self._tables

    @property
    def partition_count(self) -> int:
        return len(self._tables.groups)

    def topic(self, name: str) -> TopicState | None:
        return self._tables.topics.get(name)

    def topics(self) -> list[TopicState]:
        """All topics, by name."""
        return self._tables.topics_by_name()

    def partition(self, group_id: int) -> tuple[TopicState, int, PartitionState] | None:
        """Returns (topic, partition number, partition) of a group."""
        found = self._tables.groups.get(group_id)
        if found is None:
            return None
        topic = self._tables.topics[found[0]]
        return topic, found[1], topic.partitions[found[1]]

    def is_deleted(self, group_id: int) -> bool:
        """Whether the group was of a partition that was deleted."""
        tables = self._tables
        known = FIRST_PARTITION_GROUP_ID <= group_id < tables.next_group_id
        return known and group_id not in tables.groups

    def group_of(self, topic: str, partition: int) -> int | None:
        """Returns the group of a partition; None if there is no such topic or partition."""
        known = self._tables.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return None
        return known.partitions[partition].group_id

    def names(self) -> list[NameState]:
        """Producer names that are in use, by name."""
        return sorted((n for n in self._tables.names if not n.tombstone), key=lambda n: n.name)

    def name(self, name: str) -> NameState | None:
        """Returns a producer name, tombstones included."""
        return self._tables.names.get(name)

    def holder(self, producer_id: int) -> NameState | None:
        """Returns the name that holds a producer id, if there is one."""
        return self._tables.names.holder(producer_id)

    def is_issued(self, producer_id: int) -> bool:
        """Whether the id was issued, as far as this node has applied the log."""
        return 0 < producer_id < self.next_producer_id

    def issued_ms(self, producer_id: int) -> int | None:
        """Returns when an issued id's lease began; None if that is over and forgotten."""
        assert self.is_issued(producer_id), producer_id
        return self._tables.blocks.issued_ms(producer_id)

    def expired_below(self, now_ms: int, lifetime_ms: int) -> int:
        """Returns the expiry watermark: ids below it are expired unless a name holds them."""
        return self._tables.blocks.expired_below(now_ms, lifetime_ms, self.next_producer_id)

    def take_events(self) -> list[Event]:
        """Returns the changes since the last call, in order."""
        events, self._events = self._events, []
        return events

    # --- apply ---------------------------------------------------------------------

    def apply(self, index: int, command: bytes, *, upgrade: bool = False) -> bytes:
        """Applies the committed `command` (a MetadataCommand) at log `index`.

        upgrade: it came in the kind of entry that is reserved for FinalizeUpgrade.

        Returns a serialized MetadataResult; its `error` is empty or says why the command was
        rejected. Raises MetadataCorruptError if it is malformed or has parts unknown to this
        release, and OlderReleaseError.
        """
        assert index > self.applied_index, (index, self.applied_index)
        parsed = parsed_command(index, command)
        which = parsed.WhichOneof("command")
        if upgrade and which != "finalize_upgrade":
            raise MetadataCorruptError(f"{which} in the entry of an upgrade", index=index)
        now_ms = max(self.clock_ms, parsed.stamp_ms)
        stamped, terms = self._tables.stamped, self._terms(self._tables)
        if not self._tables.settings:
            self._tables.stamped = (
                _shorter(stamped[0], parsed.lease_lifetime_ms),
                _shorter(stamped[1], parsed.producer_name_expiry_ms),
            )
        try:
            if which == "finalize_upgrade" and not upgrade:
                # A leader from before the gate took it for its own kind of command and rejects it.
                raise Rejected(rules.NOT_SUPPORTED, "the leader's release knows no upgrades")
            result = self._dispatch(parsed, now_ms)
        except Rejected as rejected:
            self._tables.stamped = stamped
            result = pb.MetadataResult(error=rejected.reason, message=str(rejected))
        else:
            self._tables.clock_ms = now_ms
            if self._tables.stamped != stamped or self._terms(self._tables) != terms:
                self._events.append(TermsChanged())
            self._tables.names.sweep(now_ms, self.name_expiry_ms)
            self._tables.blocks.forget(now_ms, self.lease_lifetime_ms)
        self.applied_index = index
        result.stamp_ms = self.clock_ms
        result.applied_index = index
        return result.SerializeToString(deterministic=True)

    def _allowed(self, command: pb.MetadataCommand) -> str:
        which: str | None = command.WhichOneof("command")
        if which is None:
            raise Rejected(rules.NOT_SUPPORTED, "an empty command does nothing")
        if not self._tables.finalized.has(COMMANDS[which]):
            raise Rejected(
                rules.NOT_SUPPORTED, f"{which}: the upgrade that brings it is not finalized"
            )
        permissions.check_version(self._tables, command)
        return which

    def _dispatch(self, command: pb.MetadataCommand, now_ms: int) -> pb.MetadataResult:
        """Runs one command. Each either raises Rejected, before any change, or succeeds."""
        which = self._allowed(command)
        if which == "transaction":
            return transactions.apply(self._tables, command.transaction, now_ms)
        match which:
            case "register_node":
                return self._register_node(command.register_node)
            case "create_topic":
                return self._create_topic(command.create_topic, now_ms)
            case "delete_topic":
                return self._delete_topic(command.delete_topic)
            case "alter_topic":
                return self._alter_topic(command.alter_topic)
            case "allocate_producer_ids":
                return self._allocate_producer_ids(command.allocate_producer_ids, now_ms)
            case "lease_name":
                return self._lease_name(command.lease_name, now_ms)
            case "create_lease_secret":
                return self._create_lease_secret(command.create_lease_secret)
            case "finalize_upgrade":
                return self._finalize_upgrade(command.finalize_upgrade)
            case changed if changed in replicas.COMMANDS:
                return self._change_replicas(command, now_ms)
            case "found_cluster_settings":
                return self._found_settings(command.found_cluster_settings)
            case "set_cluster_setting":
                return self._set_setting(command.set_cluster_setting.setting)
            case "alter_permissions" | "alter_quotas":
                return permissions.change(self._tables, command)
        raise AssertionError(f"a command without a handler: {which}")

    def _register_node(self, command: pb.RegisterNode) -> pb.MetadataResult:
        if node_rules.register(self._tables, command):
            self._layout_changed()
        return pb.MetadataResult()

    def _create_topic(self, command: pb.CreateTopic, now_ms: int) -> pb.MetadataResult:
        if command.name not in rules.INTERNAL_TOPICS:
            rules.check_topic_name(command.name)
        if command.name in self._tables.topics:
            raise Rejected(rules.TOPIC_ALREADY_EXISTS, f"topic {command.name!r} already exists")
        placements = [tuple(placement.replicas) for placement in command.placements]
        rules.check_placements(placements, node_rules.holders(self._tables))
        settings = TopicSettings().altered(command.config, set_expected_offsets=True)
        settings.check_formats(None, self._tables.finalized)
        settings.check_compaction(self._tables.finalized)
        if len(self._tables.topics) >= rules.MAX_TOPICS:
            raise invalid("name", f"there are {rules.MAX_TOPICS} topics, which is the limit")
        rules.check_room(len(self._tables.groups), len(placements))
        first = self._tables.next_group_id
        partitions = tuple(PartitionState(first + i, nodes) for i, nodes in enumerate(placements))
        topic = TopicState(command.name, self._tables.next_topic_id, partitions, settings, now_ms)
        self._tables.next_group_id += len(partitions)
        self._tables.next_topic_id += 1
        self._tables.put_topic(topic)
        self._layout_changed()
        return pb.MetadataResult()

    def _delete_topic(self, command: pb.DeleteTopic) -> pb.MetadataResult:
        self._tables.drop_topic(self._users_topic(command.name).name)
        self._layout_changed()
        return pb.MetadataResult()

    def _alter_topic(self, command: pb.AlterTopic) -> pb.MetadataResult:
        topic = self._users_topic(command.name)
        settings = topic.settings.altered(
            command.config, set_expected_offsets=command.set_expected_offsets
        )
        settings.check_formats(topic.settings.formats, self._tables.finalized)
        settings.check_compaction(self._tables.finalized)
        if settings != topic.settings:
            topic = replace(topic, settings=settings)
            self._tables.topics[topic.name] = topic
            self._events.append(TopicAltered(topic))
        return pb.MetadataResult()

    def _allocate_producer_ids(
        self, command: pb.AllocateProducerIds, now_ms: int
    ) -> pb.MetadataResult:
        if not 1 <= command.count <= MAX_BLOCK_SIZE:
            raise invalid("count", f"{command.count} must be 1..{MAX_BLOCK_SIZE}")
        first = self._take_ids(command.count, now_ms, command.node_id)
        return pb.MetadataResult(first_producer_id=first)

    def _lease_name(self, command: pb.LeaseName, now_ms: int) -> pb.MetadataResult:
        self._check_ids_left(1)
        common = (command.name, command.nonce, now_ms, self.name_expiry_ms, self.next_producer_id)
        held = (command.held_producer_id, command.held_epoch)
        if command.fence_only:
            name, fresh_id_used, forgotten = self._tables.names.fence(*common)
        else:
            timeout_ms = command.transaction_timeout_ms
            if timeout_ms and not self._tables.finalized.has(KAFKA):
                raise Rejected(rules.NOT_SUPPORTED, "lease_name: Kafka's upgrade is not finalized")
            leased = self._tables.names.lease(*common, held if held[0] else None, timeout_ms)
            name, fresh_id_used, forgotten = leased
        if fresh_id_used:
            self._take_ids(1, now_ms, node_id=0)
        if forgotten:
            self._tables.coordinator.forget_owner(forgotten)
        self._tables.coordinator.fence(name.name, Holder(name.producer_id, name.epoch))
        return pb.MetadataResult(producer_id=name.producer_id, epoch=name.epoch)

    def _create_lease_secret(self, command: pb.CreateLeaseSecret) -> pb.MetadataResult:
        if len(command.secret) != SECRET_BYTES:
            raise invalid("secret", f"has {len(command.secret)} bytes, must have {SECRET_BYTES}")
        # Another node may have been faster; tokens may be out under its secret.
        self._tables.lease_secret = self._tables.lease_secret or command.secret
        return pb.MetadataResult()

    def _change_replicas(self, command: pb.MetadataCommand, now_ms: int) -> pb.MetadataResult:
        if replicas.change(self._tables, command, now_ms):
            self._layout_changed()
        return pb.MetadataResult()

    def _layout_changed(self) -> None:
        self._tables.layout_changed()
        self._events.append(LayoutChanged())

    def _finalize_upgrade(self, command: pb.FinalizeUpgrade) -> pb.MetadataResult:
        finalized = upgrades.check(command, self._tables.finalized, self._tables.nodes)
        self._check_release(finalized)
        if finalized != self._tables.finalized:
            self._tables.finalized = finalized
            self._events.append(UpgradeFinalized())
        return pb.MetadataResult()

    def _found_settings(self, command: pb.FoundClusterSettings) -> pb.MetadataResult:
        if not self._tables.settings:  # else another node was faster
            given = {setting.name: setting.value for setting in command.settings}
            terms = self._terms(self._tables)
            self._change_settings(cluster_settings.founded(given, *terms))
        return pb.MetadataResult()

    def _set_setting(self, setting: pb.ClusterSetting) -> pb.MetadataResult:
        if not self._tables.settings:
            raise Rejected(rules.NOT_SUPPORTED, "the cluster has no settings yet")
        self._change_settings(
            cluster_settings.changed(self._tables.settings, setting.name, setting.value)
        )
        return pb.MetadataResult()

    def _change_settings(self, settings: dict[str, int]) -> None:
        if settings != self._tables.settings:
            self._tables.settings = settings
            self._events.append(SettingsChanged())

    def _check_release(self, finalized: Finalized) -> None:
        lacks = self._release.lacks(finalized)
        if lacks:
            raise OlderReleaseError(
                f"the cluster was upgraded to version {finalized.version}: {lacks}"
            )

    def _take_ids(self, count: int, now_ms: int, node_id: int) -> int:
        self._check_ids_left(count)
        first = self.next_producer_id
        self._tables.next_producer_id += count
        self._tables.blocks.add(first, now_ms, node_id, self.lease_lifetime_ms)
        return first

    def _check_ids_left(self, count: int) -> None:
        if self.next_producer_id + count > MAX_PRODUCER_ID:
            raise Rejected(rules.NOT_SUPPORTED, f"producer ids: {MAX_PRODUCER_ID} is the highest")

    def _users_topic(self, name: str) -> TopicState:
        topic = self._tables.topics.get(name)
        if topic is None:
            raise Rejected(rules.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
        if rules.is_internal(name):
            raise invalid("name", f"{name!r} is internal and cannot be changed")
        return topic

    # --- snapshots -----------------------------------------------------------------

    def dump(self) -> bytes:
        """Returns a serialized MetadataSnapshot: equal states give equal bytes."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """Returns the bytes of `dump` in pieces; the state must not change meanwhile."""
        return packed_tables(self._tables)

    def load(self, data: bytes, index: int = 0) -> None:
        """Replaces the state by a snapshot taken after log `index`.

        `take_events` returns the difference. Raises MetadataCorruptError or OlderReleaseError, and
        changes nothing, if `data` is not a snapshot of this release.
        """
        self.replace(self.parse(data, index), index)

    def parse(self, data: bytes, index: int = 0) -> Tables:
        """Parses a state for `replace`. Raises MetadataCorruptError, OlderReleaseError."""
        try:
            tables = load_tables(data)
        except (DecodeError, ValueError, OverflowError) as error:
            raise MetadataCorruptError(f"metadata snapshot: {error}", index=index) from error
        self._check_release(tables.finalized)
        return tables

    def replace(self, parsed: Tables | None, index: int) -> None:
        """Replaces the state, as `load` does; None: by the state before the first command."""
        tables, index = (Tables(), 0) if parsed is None else (parsed, index)
        before, self._tables = self._tables, tables
        tables.touched.update(before.groups, before.touched)
        self._events += difference(before, tables)
        if self._terms(before) != self._terms(tables):
            self._events.append(TermsChanged())
        self.applied_index = index

    def _terms(self, tables: Tables) -> tuple[int, int]:
        """Returns the lease lifetime and name expiry in force."""
        if tables.settings:
            settings = tables.settings
            return settings[cluster_settings.LEASE_LIFETIME], settings[cluster_settings.NAME_EXPIRY]
        lifetime_ms = tables.stamped[0] or self._defaults[0]
        # An expiry shorter than a lease would free an id that can still be leased.
        return lifetime_ms, max(tables.stamped[1] or self._defaults[1], lifetime_ms)


def _shorter(in_force: int, stamped: int) -> int:
    """Returns the shorter of two times; 0 is none."""
    return min(in_force, stamped) if in_force > 0 and stamped > 0 else max(in_force, stamped, 0)
