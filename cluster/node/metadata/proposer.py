"""This node's part in the metadata group: propose, forward, wait until applied.

services --MetadataCommand--> MetadataProposer --> own group, or the leader's node
                                        |
MetadataMachine.apply (metadata/machine.py) --> on_applied
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from cluster.consensus.group import Group
from cluster.consensus.proposals import Abandoned, Outcome
from cluster.entries import METADATA, UPGRADE, has_unknown_fields
from cluster.errors import FeatureOffError, NotReadyError, ProposalTimeoutError
from cluster.metadata.settings import LEASE_LIFETIME, NAME_EXPIRY
from cluster.metadata.state import MetadataState
from cluster.metadata.topics import INVALID_REQUEST, NOT_SUPPORTED
from cluster.node.health.clock_agreement import ClockAgreement
from cluster.node.metadata.founding import Founding
from cluster.security.caller import RULES_VERSION
from cluster.transport.calls import NotSentError, PeerCallError
from cluster.transport.link import PeerLink
from cluster.transport.versions import UPGRADES
from cluster.v1 import metadata_pb2 as mpb
from cluster.v1 import peer_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

RETRY_WAIT = 0.05  # seconds; a leader is being elected
# Commands that may be repeated when their outcome is unknown.
REPEATABLE = (
    "register_node", "allocate_producer_ids", "lease_name", "create_lease_secret",
    "finalize_upgrade", "found_cluster_settings", "set_cluster_setting", "set_replicas",
    "report_replicas", "repair_replica", "transaction", "change_balance", None,
)  # fmt: skip


# These are proposed by the call that asks for them, and were authorized with it.
OF_CALLERS = frozenset(
    {
        "create_topic", "delete_topic", "alter_topic", "lease_name", "set_cluster_setting",
        "set_replicas", "change_node", "change_balance", "alter_permissions", "alter_quotas",
        "add_partitions", "set_topic_replicas", "finalize_upgrade",
    }
)  # fmt: skip


# Learners of the metadata hear of these at once: new replicas start there, and clients ask any node
# for a topic as soon as they are told that it is created.
LAYOUT = frozenset({"create_topic", "add_partitions", "set_replicas", "set_topic_replicas"})


class MetadataProposer:
    """Proposals to the metadata group, from a leader or not."""

    def __init__(
        self,
        group: Group,
        links: Mapping[int, PeerLink],
        touch: Callable[[], None],
        clocks: ClockAgreement,
        founding: Founding,
        metadata: MetadataState,
    ) -> None:
        """As leader it stamps two of `founding.settings` into commands."""
        self.group = group
        self._links = links
        self._touch = touch
        self._clocks = clocks
        self._founding = founding
        self._metadata = metadata
        self._applied_waiters: list[tuple[int, asyncio.Future[None]]] = []

    def on_applied(self, index: int) -> None:
        if not self._applied_waiters:
            return
        waiting, self._applied_waiters = self._applied_waiters, []
        for wanted, future in waiting:
            if wanted > index:
                self._applied_waiters.append((wanted, future))
            elif not future.done():
                future.set_result(None)

    def exclude_lost(self, lost: int) -> str:
        """See Group.exclude_lost; `lost` is a node. Only while no round is under way."""
        voters = self.group.members.configuration.voters
        why_not = self.group.exclude_lost({one[:2] for one in voters if one.node == lost})
        self._touch()
        return why_not

    async def propose(self, command: mpb.MetadataCommand, timeout: float) -> mpb.MetadataResult:
        """Propose; returns once the command is applied on this node.

        Raises NotReadyError if no leader took it, ProposalTimeoutError if its
        outcome is not known in time, FeatureOffError if not all nodes know it yet.
        A command with a caller's unknown field is rejected here: in the log it stops each replica.
        """
        if has_unknown_fields(command):
            text = "request: it has a field that this release does not know"
            return mpb.MetadataResult(error=INVALID_REQUEST, message=text)
        which = command.WhichOneof("command")
        if which is not None:
            self._metadata.features.require_command(which)
        if which in OF_CALLERS:
            command.rules_version = RULES_VERSION.get()
        once = which not in REPEATABLE
        reason, asked = "the metadata group has no leader", False
        try:
            async with asyncio.timeout(timeout):
                while True:
                    asked = True
                    result, taken, reason = await self._try(command)
                    if result is not None:
                        await self._wait_applied(result.applied_index)
                        return result
                    if taken and once:
                        raise ProposalTimeoutError(reason)
                    asked = False
                    await asyncio.sleep(RETRY_WAIT)
        except TimeoutError:
            if asked and once:
                text = "the metadata group did not commit the command in time, it may do so yet"
                raise ProposalTimeoutError(text) from None
            raise NotReadyError(
                f"the metadata group did not accept the command in time: {reason}"
            ) from None

    async def _try(
        self, command: mpb.MetadataCommand
    ) -> tuple[mpb.MetadataResult | None, bool, str]:
        """Return (result, whether it may have been taken, why there is no result)."""
        if self.group.is_ready:
            answer = await self.propose_here(command.SerializeToString())
        else:
            link = self._links.get(self.group.leader_id)
            if link is None or not link.up:
                return None, False, "the metadata group has no leader that can be reached"
            if command.WhichOneof("command") == "finalize_upgrade" and link.version < UPGRADES:
                raise FeatureOffError(
                    f"the metadata leader, node {link.peer}, runs a release without upgrades; "
                    "upgrade that node first"
                )
            asked = pb.ProposeMetadataRequest(command=command.SerializeToString())
            try:
                response = await link.ask(pb.Request(propose_metadata=asked))
            except PeerCallError as error:
                taken = not isinstance(error, NotSentError)
                return None, taken, f"node {link.peer}: {error}"
            answer = response.propose_metadata
        if answer.not_leader:
            return None, bool(answer.leader_id == -1), "leadership moved"
        return mpb.MetadataResult.FromString(answer.result), True, ""

    async def propose_here(self, command: bytes, asker: int = 0) -> pb.ProposeMetadataResponse:
        """Propose as the metadata leader; stamps the command with clock and settings.

        asker: the node that waits until it has applied the command; 0: this one.

        not_leader with leader_id -1: it was proposed, and its outcome is unknown.
        """
        if not self.group.is_ready:
            return pb.ProposeMetadataResponse(not_leader=True, leader_id=self.group.leader_id)
        stamp_ms = self._clocks.now_ms()
        if not self._clocks.agreed:  # it is about to hand over
            return pb.ProposeMetadataResponse(not_leader=True)
        for first in self._founding.commands():
            self.group.propose(self._entry(first, stamp_ms), lambda outcome: None)
        proposed = mpb.MetadataCommand.FromString(command)
        if why_not := self._metadata.membership.given_up(proposed.join_node):
            refused = mpb.MetadataResult(error=NOT_SUPPORTED, message=why_not)
            return pb.ProposeMetadataResponse(result=refused.SerializeToString())
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(outcome: Outcome) -> None:
            if not future.done():
                future.set_result(outcome)

        once = proposed.WhichOneof("command") not in REPEATABLE  # the others are proposed again
        self.group.propose(self._entry(proposed, stamp_ms), done, outlives_term=once)
        self._touch()
        outcome = await future
        if isinstance(outcome, Abandoned):
            leader_id = outcome.leader_id if outcome.lost else -1
            return pb.ProposeMetadataResponse(not_leader=True, leader_id=leader_id)
        assert isinstance(outcome.result, bytes)
        result = mpb.MetadataResult.FromString(outcome.result)
        result.applied_index = outcome.index
        is_layout = proposed.WhichOneof("command") in LAYOUT
        if asker or is_layout:
            self.group.feed(0 if is_layout else asker)
            self._touch()
        return pb.ProposeMetadataResponse(result=result.SerializeToString())

    def _entry(self, command: mpb.MetadataCommand, stamp_ms: int) -> bytes:
        command.stamp_ms = stamp_ms
        command.lease_lifetime_ms = self._founding.settings[LEASE_LIFETIME]
        command.producer_name_expiry_ms = self._founding.settings[NAME_EXPIRY]
        kind = METADATA
        if command.WhichOneof("command") == "finalize_upgrade":
            kind = UPGRADE
            self._founding.upgrades.complete(command.finalize_upgrade)
        return bytes((kind,)) + command.SerializeToString()

    async def _wait_applied(self, index: int) -> None:
        if self.group.applied_index >= index:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._applied_waiters.append((index, future))
        await future
