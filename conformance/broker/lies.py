"""Where the broker departs from the truth: lies, each for the calls that it says.

    case file --parsed--> Lie --Script.find(call, facts)--> services, instead of the truth

A lie takes the calls whose facts it names, the first `skip` of them left out, `times` of them
(0: all). The first lie in the list that still holds is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.broker.journal import matches

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
    """One lie. What is not set is as in the truth."""

    at: str  # one of CALLS; "produce" is one batch, whichever call it came with
    where: Mapping[str, Any] = field(default_factory=dict)
    times: int = 1
    skip: int = 0
    # The answer: "none" (never), or for a batch a verdict's name. Then `store` says whether
    # the call has its effect nevertheless.
    answer: str = ""
    store: bool = False
    leader: int = 0  # that NOT_LEADER names; 0: nobody
    set: Mapping[str, Any] = field(default_factory=dict)  # fields of the answer
    # For calls with one answer: a status with ErrorInfo of this reason, or a bare gRPC code.
    status: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)  # of the status
    grpc: str = ""
    delay_ms: int = 0
    # Of batches: answers wait until `release` of this name, which gives them out backwards.
    hold: str = ""
    repeat: int = 1  # so often the answer is given
    stray: bool = False  # before it, a success for an id that was never sent
    break_stream: bool = False  # instead of the answer
    late: str = ""  # the batch arrives with the step `arrive` of this name, and not now
    # Of reads: what is wrong with each answer's first batch, or a partition error's name.
    corrupt: str = ""
    error: str = ""
    # Of DescribeTopics: (topic, partition, leader, term).
    says: list[tuple[str, int, int, int]] = field(default_factory=list)
    partitions: int = 0  # it names so many of each topic, as a node that is behind; 0: all
    # What happens to the cluster meanwhile: steps as in a case.
    then: list[dict[str, Any]] = field(default_factory=list)
    met: int = 0

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Whether this call is one of its own; counts it."""
        if not matches(self.where, facts):
            return False
        self.met += 1
        told = self.met - self.skip
        return told > 0 and (self.times == 0 or told <= self.times)

    @property
    def told(self) -> bool:
        return self.met > self.skip


class Script:
    """The lies of one case."""

    def __init__(self, lies: Iterable[Lie]) -> None:
        self.lies = list(lies)
        self._over = False

    def stop(self) -> None:
        """From now on only the truth is told."""
        self._over = True

    def find(self, call: str, facts: Mapping[str, Any]) -> Lie | None:
        if self._over:
            return None
        return next((lie for lie in self.lies if lie.at == call and lie.holds(facts)), None)
