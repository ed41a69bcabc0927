"""Members of a group: voters, which count, and learners, which only follow.

    change asked for --changed--> Configuration --pack--> entry in the group's own log
    entry applied --unpack--> Members --> guard, election, core, replicator, state check

One change affects one replica: a learner is added, a learner becomes a voter, a voter becomes a
learner, or a replica is removed. Majorities before and after such a change have a replica in
common, so no joint configurations are needed (Ongaro's thesis, section 4.1).

A node that leaves and comes back is another replica: its instance is the version that added it.
Messages to or from an older instance are not taken for the newer instance's.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from storage.errors import CorruptionError

CONFIGURATION = 0x08  # the first byte of a configuration entry
MAX_VOTERS = 9
MAX_LEARNERS = 250  # an entry counts them in one byte
_VERSION = 1
_HEAD = struct.Struct("<BBBBxxxxQ")  # kind, version of the layout, voters, learners, version
_MEMBER = struct.Struct("<iQQ")
_PLACE = struct.Struct("<QQ")  # index, term


class Member(NamedTuple):
    """One replica. instance: the version that added it. directory: its node's, 0: not known.

    Those that the group began with have instance 0.
    """

    node: int
    instance: int = 0
    directory: int = 0


@dataclass(frozen=True, slots=True)
class Configuration:
    """Replicas of a group. Each change raises `version` by one; groups begin with 0."""

    version: int
    voters: tuple[Member, ...]
    learners: tuple[Member, ...] = ()

    def member(self, node: int) -> Member | None:
        return next((one for one in self.voters + self.learners if one.node == node), None)

    def __str__(self) -> str:
        return f"version {self.version}, voters {_nodes(self.voters)}, learners " + _nodes(
            self.learners
        )


NOBODY = Configuration(0, ())


class ChangeStep(Enum):
    ADD = "add"  # as a learner
    PROMOTE = "promote"  # from learner to voter
    DEMOTE = "demote"  # from voter to learner, the same instance
    REMOVE = "remove"
    CONFIRM = "confirm"  # the same members: earlier members decide nothing any more


@dataclass(frozen=True, slots=True)
class ConfigurationChange:
    """One step. expected: the version that it changes. directory: of a node that is added."""

    step: ChangeStep
    node: int
    expected: int
    directory: int = 0


class ChangeRefusedError(Exception):
    """The change was refused; `configuration` is the one in force."""

    def __init__(self, text: str, configuration: Configuration) -> None:
        super().__init__(f"{text} ({configuration})")
        self.configuration = configuration


def changed(now: Configuration, change: ConfigurationChange) -> Configuration:
    """Returns the configuration after one step. Raises ChangeRefusedError."""

    def refused(text: str) -> ChangeRefusedError:
        return ChangeRefusedError(f"{change.step.value} of node {change.node}: {text}", now)

    if change.expected != now.version:
        raise refused(f"version {change.expected} is not in force")
    step, member, version = change.step, now.member(change.node), now.version + 1
    if step is ChangeStep.CONFIRM:
        return replace(now, version=version)
    if step is ChangeStep.ADD:
        if member is not None:
            raise refused("it has a replica")
        member = Member(change.node, version, change.directory)
    elif member is None:
        raise refused("it has no replica")
    elif step is ChangeStep.PROMOTE and member in now.voters:
        raise refused("it is a voter")
    elif step is ChangeStep.DEMOTE and member in now.learners:
        raise refused("it is a learner")
    voters, learners = _without(now.voters, member), _without(now.learners, member)
    if step is ChangeStep.PROMOTE:
        if len(voters) >= MAX_VOTERS:
            raise refused(f"more than {MAX_VOTERS} voters")
        voters = (*voters, member)
    elif step is not ChangeStep.REMOVE:
        if len(learners) >= MAX_LEARNERS:
            raise refused(f"more than {MAX_LEARNERS} learners")
        learners = (*learners, member)
    if not voters:
        raise refused("it is the last voter")
    return Configuration(version, voters, learners)


def pack_configuration(configuration: Configuration) -> bytes:
    members = configuration.voters + configuration.learners
    counts = len(configuration.voters), len(configuration.learners)
    head = _HEAD.pack(CONFIGURATION, _VERSION, *counts, configuration.version)
    return head + b"".join(_MEMBER.pack(*one) for one in members)


def unpack_configuration(data: bytes) -> Configuration:
    """Unpacks a configuration. Raises CorruptionError."""
    try:
        kind, layout, voters, learners, version = _HEAD.unpack_from(data)
    except struct.error as error:
        raise CorruptionError(f"configuration of {len(data)} bytes: {error}") from error
    if kind != CONFIGURATION or layout != _VERSION:
        raise CorruptionError(f"configuration of unknown type {kind} or layout {layout}")
    if len(data) != _HEAD.size + (voters + learners) * _MEMBER.size:
        text = f"configuration of {len(data)} bytes for {voters} voters and {learners} learners"
        raise CorruptionError(text)
    members = tuple(map(Member._make, _MEMBER.iter_unpack(data[_HEAD.size :])))
    if len({one.node for one in members}) != len(members):
        raise CorruptionError("configuration names a node twice")
    return Configuration(version, members[:voters], members[voters:])


@dataclass(frozen=True, slots=True)
class Placed:
    """A configuration and its entry's place; index 0: the group began with it."""

    index: int
    term: int
    configuration: Configuration


def pack_placed(placed: Placed) -> bytes:
    """Packs it for the store and for a snapshot."""
    return _PLACE.pack(placed.index, placed.term) + pack_configuration(placed.configuration)


def unpack_placed(data: bytes) -> Placed:
    """Unpacks it. Raises CorruptionError."""
    if len(data) < _PLACE.size:
        raise CorruptionError(f"configuration of {len(data)} bytes")
    index, term = _PLACE.unpack_from(data)
    return Placed(index, term, unpack_configuration(data[_PLACE.size :]))


class Members:
    """The configuration in force at one replica: the only source for voters and learners.

    peers: the nodes of all other replicas. voters, learners: of these.
    instance: this replica's own.
    """

    def __init__(self, node: int, instance: int, placed: Placed) -> None:
        self.node = node
        self.instance = instance
        self.placed = placed
        self.configuration = placed.configuration
        self.version = 0
        self._instances: dict[int, int] = {}
        self.peers = self.voters = self.learners = ()  # type: tuple[int, ...]
        self.majority = 0
        self.is_voter = self.is_removed = self.has_instances = False
        self.take(placed)

    def take(self, placed: Placed) -> None:
        """Puts `placed` into force."""
        self.placed, now = placed, placed.configuration
        self.configuration = now
        self.version = now.version
        self._instances = {one.node: one.instance for one in now.voters + now.learners}
        self.voters = tuple(one.node for one in now.voters if one.node != self.node)
        self.learners = tuple(one.node for one in now.learners if one.node != self.node)
        self.peers = self.voters + self.learners
        self.majority = len(now.voters) // 2 + 1
        held = self._instances.get(self.node) == self.instance
        self.is_voter = held and any(one.node == self.node for one in now.voters)
        # Only a later change proves removal: a learner also sees configurations before its own.
        self.is_removed = not held and now.version > self.instance
        # If all instances are 0, messages need not name them.
        self.has_instances = bool(self.instance or any(self._instances.values()))

    def exclude_other(self) -> None:
        """Excludes the lost one of two voters: this replica decides alone until another change."""
        assert self.is_voter and len(self.voters) == 1
        del self._instances[self.voters[0]]  # its messages are ignored from now on
        self.voters = ()
        self.peers = self.learners
        self.majority = 1

    @property
    def may_vote(self) -> bool:
        """Whether its log is known to hold the entry that added it, so all that it acknowledged."""
        return self.version >= self.instance

    @property
    def is_alone(self) -> bool:
        """Whether it is the only voter: everything on its disk is committed."""
        return self.is_voter and not self.voters

    def instance_of(self, node: int) -> int:
        return self._instances.get(node, 0)

    def is_member(self, node: int, instance: int) -> bool:
        return self._instances.get(node) == instance

    def counts(self, node: int, instance: int) -> bool:
        """Whether this replica's votes and acknowledgements count."""
        return node in self.voters and self._instances[node] == instance


def _without(members: tuple[Member, ...], gone: Member) -> tuple[Member, ...]:
    return tuple(one for one in members if one != gone)


def _nodes(members: Collection[Member]) -> str:
    return "[" + ", ".join(str(one.node) for one in members) + "]"
