"""This node's part in the cluster's transactions.

    services --confirm, published, keep_alive--> Transactions --Request--> other nodes
    the metadata's leader: timeouts, decided ones --'  '--> this node's own partitions

Any node may ask the partitions' leaders for staged runs, since applied entries stay, and write
the markers of decided transactions (`markers`). The metadata's leader alone aborts transactions
that no client keeps alive.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from cluster.config.node_config import NodeConfig
from cluster.consensus.proposals import Abandoned, Outcome
from cluster.errors import ClusterError, NotReadyError
from cluster.metadata.state import MetadataState
from cluster.metadata.topics import OFFSETS_TOPIC, Rejected
from cluster.node.leadership.leaders import Leaders
from cluster.node.links.peers import Peers
from cluster.node.metadata.proposer import MetadataProposer
from cluster.node.replicas.replicas import Replicas
from cluster.node.tasks import Tasks
from cluster.node.transactions.markers import Markers, Runs
from cluster.partition.replica import Partition
from cluster.services.outcomes import called_back
from cluster.transactions.coordinator import Coordinator
from cluster.transactions.run_records import expected_of, expected_record
from cluster.transactions.timers import Timers
from cluster.transactions.transaction import TransactionRow
from cluster.transactions.types import (
    BY_GROUP,
    COMMIT_INCOMPLETE,
    EXPIRED,
    FINISHED,
    Expected,
    TransactionState,
)
from cluster.transport.calls import PeerCallError
from cluster.v1 import metadata_pb2 as mpb
from cluster.v1 import peer_pb2 as pb
from cluster.v1 import transactions_pb2 as tpb

log = logging.getLogger(__name__)

MAX_ORPHANS_LOGGED = 10
TIMER_PERIOD = 1.0  # seconds between looks for due work
ORPHANS_PERIOD = 60.0  # seconds between looks for runs that should not exist


def orphaned_runs(
    partitions: Iterable[Partition], coordinator: Coordinator
) -> Iterator[tuple[int, int]]:
    """Yield (group, transaction), if led here: a leader has applied all that was reported."""
    for partition in partitions:
        if not partition.group.is_ready:
            continue
        for number in partition.machine.runs.transactions():
            row = coordinator.get(number)
            ended = coordinator.is_forgotten(number) if row is None else row.state in FINISHED
            if ended:
                yield partition.group.config.group, number


class Transactions:
    """Transactions of one node."""

    def __init__(
        self,
        config: NodeConfig,
        metadata: MetadataState,
        proposer: MetadataProposer,
        replicas: Replicas,
        peers: Peers,
        leaders: Leaders,
        clock: Callable[[], float],
    ) -> None:
        self._node_id = config.node_id
        self._metadata = metadata
        self._group = proposer.group
        self._partitions = replicas.by_group
        self._links = peers.links
        self._leader_of = leaders.leader_of
        self._proposer = proposer
        self._clock = clock
        self._timeout = config.request_timeout_ms / 1000
        self._timers = Timers()
        self.markers = Markers(
            config.node_id,
            metadata,
            self._partitions,
            self._leader_of,
            self._ask,
            self._propose,
        )
        self._wake = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._look_for_orphans_at = 0.0
        self._suspected: set[tuple[int, int]] = set()
        self.orphaned = 0  # runs in partitions led here, of transactions that have ended

    def changed(self) -> None:
        """Look again: the metadata has applied something, or its leader has changed."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)
        if self._group.is_ready and self._metadata.coordinator.has_aborting:
            self._wake.set()

    # -- for the service ----------------------------------------------------------------

    async def confirm(
        self, transaction_id: int, asked: Sequence[Expected], groups: Iterable[int], sink: bool
    ) -> list[Expected]:
        """Return the decision's data of each run, in the order of `asked`.

        Raises Rejected (COMMIT_INCOMPLETE) if the transaction has other runs in these
        groups, NotReadyError if a group's leader cannot be asked.
        """
        by_node: dict[int, list[int]] = defaultdict(list)
        for group in groups:
            by_node[self._leader_of(group)[0]].append(group)
        requests = []
        for node, led in by_node.items():
            here = set(led)
            request = pb.ConfirmRunsRequest(
                transaction_id=transaction_id,
                groups=led,
                runs=[expected_record(run) for run in asked if run.group in here],
                only_winners=sink,
            )
            requests.append(self._confirm_at(node, request))
        found: dict[tuple[int, int, str], Expected] = {}
        for response in await asyncio.gather(*requests):
            if response.differs:
                raise Rejected(COMMIT_INCOMPLETE, response.differs)
            if response.not_led:
                raise NotReadyError(f"group {response.not_led[0]} has no leader that answers")
            for record in response.runs:
                expected = expected_of(record)
                found[expected.run] = expected
        missing = [run for run in asked if run.run not in found]
        if missing:
            text = f"nothing of producer {missing[0].producer_id} was staged in a partition"
            raise Rejected(COMMIT_INCOMPLETE, f"{text} of the commit")
        return [found[run.run] for run in asked]

    async def all_runs(self, transaction_id: int, groups: Iterable[int]) -> list[Expected]:
        """Return all that a transaction has staged in these groups, offsets without a producer id.

        Nothing that was acknowledged before the call is missing. Raises NotReadyError if a group's
        leader cannot be asked.
        """
        by_node: dict[int, list[int]] = defaultdict(list)
        for group in groups:
            by_node[self._leader_of(group)[0]].append(group)
        requests = (
            pb.ConfirmRunsRequest(transaction_id=transaction_id, groups=led, all_runs=True)
            for led in by_node.values()
        )
        asked = map(self._confirm_at, by_node, requests)
        found = list[Expected]()
        for response in await asyncio.gather(*asked):
            if response.not_led:
                raise NotReadyError(f"group {response.not_led[0]} has no leader that answers")
            found += map(expected_of, response.runs)
        return found

    async def _confirm_at(
        self, node: int, request: pb.ConfirmRunsRequest
    ) -> pb.ConfirmRunsResponse:
        if node == self._node_id:
            return await self.confirm_here(request)
        response = await self._ask(node, pb.Request(confirm_runs=request))
        if response is None:
            return pb.ConfirmRunsResponse(not_led=request.groups)
        return response.confirm_runs

    async def published(self, row: TransactionRow) -> Runs:
        """Return the readable runs of a decided transaction by group, once all are readable."""
        return await asyncio.shield(self.markers.begin(row))

    def publish(self, row: TransactionRow) -> None:
        """Publish as `published`, without waiting for it."""
        self.markers.begin(row)

    async def finished(self, row: TransactionRow) -> None:
        """Return once this node's metadata shows that all partitions have applied the outcome."""
        await self.published(row)
        self.markers.hurry()
        while row.state not in (TransactionState.COMMITTED, TransactionState.ABORTED):
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
            row = self._metadata.coordinator.get(row.transaction_id) or row

    async def keep_alive(self, transaction_ids: Sequence[int]) -> list[int]:
        """Keep these alive; returns those that are not open. Raises NotReadyError."""
        request = pb.KeepAliveRequest(transaction_ids=transaction_ids)
        if self._group.is_ready:
            return list(self.keep_alive_here(request).ended)
        response = await self._ask(self._group.leader_id, pb.Request(keep_alive=request))
        if response is None or response.keep_alive.not_leader:
            raise NotReadyError("the metadata group has no leader that answers")
        return list(response.keep_alive.ended)

    async def staged(self, transaction_ids: Sequence[int]) -> tuple[set[int], list[pb.StagedHere]]:
        """Return the nodes that answered, and these transactions' runs in their partitions."""
        request = pb.DescribeRunsRequest(transaction_ids=transaction_ids)
        nodes = list(self._links)
        asked = (self._ask(node, pb.Request(describe_runs=request)) for node in nodes)
        found = list(self.describe_here(request).staged)
        answered = {self._node_id}
        for node, response in zip(nodes, await asyncio.gather(*asked), strict=True):
            if response is not None:
                answered.add(node)
                found += response.describe_runs.staged
        return answered, found

    async def _ask(self, node: int, request: pb.Request) -> pb.Response | None:
        """Ask a node; None: it cannot be reached, or did not answer."""
        link = self._links.get(node)
        if link is None or not link.up:
            return None
        try:
            async with asyncio.timeout(self._timeout):
                return await link.ask(request)
        except (PeerCallError, TimeoutError) as error:
            log.info("transactions: node %d did not answer: %s", node, error)
            return None

    # -- for peers ----------------------------------------------------------------------

    async def confirm_here(self, request: pb.ConfirmRunsRequest) -> pb.ConfirmRunsResponse:
        """Confirm runs of this node's partitions, by the applied entries.

        A yes stays true under any later leader. Only a current leader says no, or names all runs:
        another may have staged runs meanwhile that are not known here.
        """
        response = self._applied_here(request)
        if not (response.differs or request.all_runs):
            return response
        led = [self._partitions[group] for group in request.groups if group in self._partitions]
        outcomes: list[Outcome] = await asyncio.gather(*(called_back(one.confirm) for one in led))
        if any(isinstance(outcome, Abandoned) for outcome in outcomes):
            return pb.ConfirmRunsResponse(not_led=request.groups)
        return self._applied_here(request)

    def _applied_here(self, request: pb.ConfirmRunsRequest) -> pb.ConfirmRunsResponse:
        response = pb.ConfirmRunsResponse()
        if request.all_runs:
            self._add_all_runs(request, response)
            return response
        asked: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
        offsets: dict[int, dict[str, tuple[int, int]]] = defaultdict(dict)
        staged: dict[int, list[tpb.ExpectedRun]] = defaultdict(list)
        for run in request.runs:
            numbers = run.records, run.last_sequence
            if run.consumer_group:
                offsets[run.group_id][run.consumer_group] = numbers
                staged[run.group_id].append(run)
            else:
                asked[run.group_id][run.producer_id] = numbers
        for group in request.groups:
            partition = self._partitions.get(group)
            found = None
            if partition is not None:
                found = partition.confirm_runs(
                    request.transaction_id,
                    asked[group],
                    offsets=offsets[group],
                    only_winners=request.only_winners,
                )
            if partition is None or found is None:
                response.not_led.append(group)
            elif isinstance(found, str):
                response.differs = f"{partition.topic}/{partition.index}: {found}"
            else:
                response.runs.extend(
                    expected_record(run._replace(group=group)) for run in found.values()
                )
                response.runs.extend(staged[group])
        return response

    def _add_all_runs(
        self, request: pb.ConfirmRunsRequest, response: pb.ConfirmRunsResponse
    ) -> None:
        for group in request.groups:
            partition = self._partitions.get(group)
            runs = None if partition is None else partition.all_runs(request.transaction_id)
            if runs is None:
                response.not_led.append(group)
            else:
                response.runs.extend(expected_record(run._replace(group=group)) for run in runs)

    def describe_here(self, request: pb.DescribeRunsRequest) -> pb.DescribeRunsResponse:
        """Describe the runs of the partitions that this node leads."""
        wanted = set(request.transaction_ids)
        response = pb.DescribeRunsResponse()
        for group, partition in self._partitions.items():
            if not partition.group.is_leader:
                continue
            runs, offsets = partition.machine.runs, partition.group_offsets.staged
            for number in wanted.intersection(runs.transactions()):
                open_runs = list(runs.staged(number))
                response.staged.add(
                    transaction_id=number,
                    group=group,
                    records=sum(run.records for run in open_runs),
                    bytes=sum(run.size for run in open_runs),
                )
            for number in wanted.intersection(offsets.transactions()):
                count = sum(offsets for offsets, _ in offsets.of(number).values())
                response.staged.add(transaction_id=number, group=group, offsets=count)
        return response

    def keep_alive_here(self, request: pb.KeepAliveRequest) -> pb.KeepAliveResponse:
        if not self._group.is_ready:
            return pb.KeepAliveResponse(not_leader=True)
        response = pb.KeepAliveResponse()
        now = self._clock()
        for transaction_id in request.transaction_ids:
            row = self._metadata.coordinator.get(transaction_id)
            if row is not None and row.state is TransactionState.OPEN:
                self._timers.renew(transaction_id, now)
            else:
                response.ended.append(transaction_id)
        return response

    # -- while this node leads the metadata ---------------------------------------------

    async def run(self, tasks: Tasks) -> None:
        """End decided transactions, and those idle for too long, for ever."""
        while True:
            try:
                async with asyncio.timeout(TIMER_PERIOD):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            self._abort_overtaken(tasks)
            self._look_for_orphans()
            if not self._group.is_ready:
                self._timers = Timers()
                continue
            self.markers.look(self._clock())
            unfinished = self._metadata.coordinator.unfinished()
            for row in self._timers.due(unfinished, self._clock()):
                tasks.spawn(self._abort(row.transaction_id, EXPIRED))

    async def _abort(self, transaction_id: int, reason: str) -> None:
        abort = tpb.AbortTransaction(transaction_id=transaction_id, reason=reason)
        await self._try(tpb.TransactionCommand(abort=abort))

    def _abort_overtaken(self, tasks: Tasks) -> None:
        """Abort transactions with staged offsets of partitions that now have another owner."""
        topic = self._metadata.topic(OFFSETS_TOPIC)
        for state in () if topic is None else topic.partitions:
            partition = self._partitions.get(state.group_id)
            if partition is None or not partition.group.is_leader:
                continue
            for transaction_id in partition.group_offsets.overtaken():
                row = self._metadata.coordinator.get(transaction_id)
                if row is None or row.state is TransactionState.OPEN:
                    tasks.spawn(self._abort(transaction_id, BY_GROUP))

    def _look_for_orphans(self) -> None:
        """Count runs that no marker will ever end.

        The protocol leaves none; one would be damage, which holds its partition's log: it is
        shown, and left as it is. One look is not enough: a deposed leader may not know yet that
        it is none.
        """
        now = self._clock()
        if now < self._look_for_orphans_at:
            return
        self._look_for_orphans_at = now + ORPHANS_PERIOD
        before, self._suspected = (
            self._suspected,
            set(orphaned_runs(self._partitions.values(), self._metadata.coordinator)),
        )
        orphans = sorted(before & self._suspected)
        for group, transaction_id in orphans[:MAX_ORPHANS_LOGGED]:
            log.error("group %d has a run of transaction %d, which is over", group, transaction_id)
        self.orphaned = len(orphans)

    async def _propose(self, command: tpb.TransactionCommand) -> object:
        return await self._proposer.propose(mpb.MetadataCommand(transaction=command), self._timeout)

    async def _try(self, command: tpb.TransactionCommand) -> None:
        """Propose; the next look repeats refused or lost commands."""
        try:
            await self._propose(command)
        except ClusterError as error:
            log.info("transactions: %s", error)
