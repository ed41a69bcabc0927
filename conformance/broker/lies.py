"""Lies of the broker: planned departures from the truth, each for certain calls.

    case file --parsed--> Lie --Script.find(call, facts)--> services, instead of the truth

A lie applies to calls with its facts: it skips the first `skip` of them and takes the next
`times` (0: all). The first applicable lie in the list is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.broker.journal import matches
from conformance.broker.payloads import damage
from oncelog.v1.cluster_pb2 import DescribeTopicsResponse
from oncelog.v1.log_pb2 import FetchResponse

CALLS = (
    "produce",
    "fetch",
    "subscribe",
    "list_offsets",
    "resolve",
    "lease",
    "open",
    "fence",
    "describe_topics",
    "describe_cluster",
    "create_topic",
    "resize_topic",
    "delete_topic",
    "reassign_partition",
    "change_node",
    "list_nodes",
    "balance",
    "alter_permissions",
    "list_permissions",
    "check_permission",
    "alter_quotas",
    "list_quotas",
    "commit_offsets",
    "stage_offsets",
    "fetch_offsets",
    "describe_group",
    "delete_group",
    "begin",
    "keep_alive",
    "commit_transaction",
    "abort_transaction",
    "list_transactions",
    "describe_transaction",
    "draw_ticket",
    "begin_batch",
    "end_batch",
    "abort_batch",
    "list_sinks",
    "describe_sink",
    "reset_sink",
)


@dataclass(slots=True, kw_only=True)
class Lie:
    """One lie. Fields that are not set follow the truth."""

    at: str  # one of CALLS; "produce" is one batch of either call
    where: Mapping[str, Any] = field(default_factory=dict)
    times: int = 1
    skip: int = 0
    # The answer: "none" (never), or for a batch a verdict's name. Then `store` says whether
    # the call still takes effect.
    answer: str = ""
    store: bool = False
    leader: int = 0  # the leader in NOT_LEADER; 0: none
    set: Mapping[str, Any] = field(default_factory=dict)  # fields of the answer
    # For calls with one answer: a status with ErrorInfo of this reason, or a bare gRPC code.
    # For batches `status` ends the stream.
    status: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)  # of the status
    grpc: str = ""
    delay_ms: int = 0
    # For batches: answers wait until `release` of this name, which sends them in reverse.
    hold: str = ""
    repeat: int = 1  # number of times the answer is sent
    stray: bool = False  # first sends a success for an id that was never sent
    break_stream: bool = False  # instead of the answer
    late: str = ""  # the batch arrives at the step `arrive` of this name
    # For reads: the fault in each answer's first batch, or a partition error's name.
    corrupt: str = ""
    error: str = ""
    cut_anew: int = 0  # the answer has the log in batches of this many records
    # For DescribeTopics: (topic, partition, leader, term).
    says: list[tuple[str, int, int, int]] = field(default_factory=list)
    partitions: int = 0  # partitions named for each topic, as by a node that is behind; 0: all
    replicas: list[int] = field(default_factory=list)  # named for each partition; empty: the true
    # Actions on the cluster meanwhile: steps as in a case.
    then: list[dict[str, Any]] = field(default_factory=list)
    met: int = 0

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Counts a matching call; returns whether the lie applies to it."""
        if not matches(self.where, facts):
            return False
        self.met += 1
        told = self.met - self.skip
        return told > 0 and (self.times == 0 or told <= self.times)

    def bend(self, answer: object) -> None:
        """Damages a batch of each partition, or describes other leaders, partitions or replicas."""
        if isinstance(answer, FetchResponse) and self.corrupt:
            for records in answer.partitions:
                batches = records.batches
                for stored in batches[-1:] if self.corrupt == "last" else batches[:1]:
                    damage(stored, self.corrupt)
        if not isinstance(answer, DescribeTopicsResponse):
            return
        for topic, number, leader, term in self.says:
            for info in answer.topics:
                if info.name == topic:
                    info.partitions[number].leader_id = leader
                    info.partitions[number].term = term
        for info in answer.topics if self.partitions else ():
            del info.partitions[self.partitions :]
        for info in answer.topics if self.replicas else ():
            for partition in info.partitions:
                partition.replicas[:] = self.replicas

    @property
    def told(self) -> bool:
        return self.met > self.skip


class Script:
    """Lies of one case."""

    def __init__(self, lies: Iterable[Lie]) -> None:
        self.lies = list(lies)
        self._over = False

    def stop(self) -> None:
        """Ends all lies."""
        self._over = True

    def find(self, call: str, facts: Mapping[str, Any]) -> Lie | None:
        if self._over:
            return None
        return next((lie for lie in self.lies if lie.at == call and lie.holds(facts)), None)
