"""Rights that each Kafka call needs, by its key. `tests/test_house.py` fails on a missing call.

    a call --key, names--> Rights.refusal --NEEDS--> Gate --> None, or the error for that name

A Kafka request names many topics, and a client expects an error for each of them alone. So a call
asks for each name, where gRPC's guard refuses a request as a whole. Operations and kinds are those
of `cluster/security/permissions.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from cluster import errors as faults
from cluster.access.gate import Gate
from cluster.kafka.errors import EXPECTED, Error, of_command, of_error, text_of
from cluster.kafka.messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    ALTER_CONFIGS,
    API_VERSIONS,
    CALLS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
    Call,
)
from cluster.kafka.sent import Sent
from cluster.metrics.requests import CANCELLED
from cluster.security.caller import RULES_VERSION, Caller
from cluster.security.permissions import Need
from cluster.services.requests import Deadline
from oncelog import errors
from oncelog.errors import OncelogError

RETRY_WAIT = 0.1  # seconds; a leader is being elected, or nodes are not heard yet


class Required(NamedTuple):
    """Needed right on each thing that a request names. kind "": the call needs none."""

    operation: str
    kind: str


_OPEN = Required("", "")
NEEDS: Mapping[int, Required] = {
    PRODUCE.key: Required("write", "topic"),
    FETCH.key: Required("read", "topic"),
    LIST_OFFSETS.key: Required("describe", "topic"),
    METADATA.key: Required("describe", "topic"),
    # Also `read` on each topic, as in CommitOffsets.
    OFFSET_COMMIT.key: Required("read", "group"),
    # Of stable offsets: `read`, as in FetchOffsets.
    OFFSET_FETCH.key: Required("describe", "group"),
    # Of a transaction: `describe` on the producer's name.
    FIND_COORDINATOR.key: Required("describe", "group"),
    JOIN_GROUP.key: Required("read", "group"),
    SYNC_GROUP.key: Required("read", "group"),
    HEARTBEAT.key: Required("read", "group"),
    LEAVE_GROUP.key: Required("read", "group"),
    DESCRIBE_GROUPS.key: Required("describe", "group"),
    LIST_GROUPS.key: Required("describe", "group"),
    DELETE_GROUPS.key: Required("delete", "group"),
    # Also `read` on each topic.
    OFFSET_DELETE.key: Required("delete", "group"),
    # Before the caller is known there is nothing else (`login`).
    API_VERSIONS.key: _OPEN,
    SASL_HANDSHAKE.key: _OPEN,
    SASL_AUTHENTICATE.key: _OPEN,
    CREATE_TOPICS.key: Required("create", "topic"),
    DELETE_TOPICS.key: Required("delete", "topic"),
    DELETE_RECORDS.key: Required("delete", "topic"),
    # An id alone writes nothing: LeaseProducer without partitions needs nothing either. With a
    # transactional id: `write` on the producer's name.
    INIT_PRODUCER_ID.key: _OPEN,
    OFFSET_FOR_LEADER_EPOCH.key: Required("describe", "topic"),
    DESCRIBE_CONFIGS.key: Required("describe", "topic"),
    ALTER_CONFIGS.key: Required("alter", "topic"),
    INCREMENTAL_ALTER_CONFIGS.key: Required("alter", "topic"),
    CREATE_PARTITIONS.key: Required("alter", "topic"),
    # It tells the node's directory and all topics.
    DESCRIBE_LOG_DIRS.key: Required("describe", "cluster"),
    # Metadata tells the same to every client.
    DESCRIBE_CLUSTER.key: _OPEN,
    # Also `write` on each topic.
    ADD_PARTITIONS_TO_TXN.key: Required("write", "producer"),
    # Also `read` on the group.
    ADD_OFFSETS_TO_TXN.key: Required("write", "producer"),
    END_TXN.key: Required("write", "producer"),
    # Also `read` on the group and on each topic.
    TXN_OFFSET_COMMIT.key: Required("write", "producer"),
    DESCRIBE_PRODUCERS.key: Required("describe", "topic"),
    DESCRIBE_TRANSACTIONS.key: Required("describe", "producer"),
    LIST_TRANSACTIONS.key: Required("describe", "producer"),
}


class Rights:
    """Rights of one connection's caller. sent: its calls, as transactions see them."""

    def __init__(self, gate: Gate, caller: Caller, sent: Sent) -> None:
        self._gate = gate
        self.caller = caller
        self.sent = sent

    def rules_version(self) -> int:
        return self._gate.rules_version()

    def refusal(
        self, call: Call, name: str, required: Required | None = None
    ) -> OncelogError | None:
        """Return why the caller may not do this to the named topic or group; None: it may.

        required: in place of the call's own.
        """
        operation, kind = required or NEEDS[call.key]
        needs = (Need(operation, kind, name),) if kind and self._gate.reads_needs else ()
        try:
            self._gate.admit(ACTIONS[call.key], self.caller, needs)
        except OncelogError as error:
            return error
        return None

    def shows(self, call: Call, name: str, required: Required | None = None) -> bool:
        """Return whether a list of all shows the name. What it leaves out is no refused call."""
        permissions, need = self._gate.permissions, Need(*(required or NEEDS[call.key]), name)
        return permissions is None or permissions.allows(self.caller.principal, need)

    async def changed(
        self,
        call: Call,
        name: str,
        work: Callable[[], Awaitable[object]],
        deadline: Deadline,
        *,
        waits: bool = True,
    ) -> tuple[Error, str | None]:
        """Make a change that the caller may make; returns the error's number and text.

        A change of the rules between this check and the log makes it fail. deadline: of the whole
        request. waits: the change is tried again until then while this node is not ready for it. A
        broker of Kafka waits for its controller, and librdkafka repeats no change.
        """
        try:
            self.let_in(call, name)
        except OncelogError as refused:
            return of_error(refused), text_of(refused)
        try:
            with self.noting(call, name, of_command):
                while not await _made(work, deadline, waits=waits):
                    await asyncio.sleep(RETRY_WAIT)
                    self.let_in(call, name)
        except EXPECTED as error:
            return of_command(error), text_of(error)
        self.ended(call, name, "ok")
        return Error.NONE, None

    def let_in(self, call: Call, name: str, required: Required | None = None) -> None:
        """Let a change in under the present rules. Raises OncelogError.

        If they change before the metadata's log has it, it is rejected, and the client asks again.
        """
        RULES_VERSION.set(self._gate.rules_version())
        refused = self.refusal(call, name, required)
        if refused is not None:
            raise refused

    @contextmanager
    def noting(self, call: Call, name: str, number: Callable[[Exception], Error]) -> Iterator[None]:
        """Note a change that was let in and fails, or whose client goes: it may be made even so.

        number: of an error.
        """
        try:
            yield
        except EXPECTED as error:
            self.ended(call, name, number(error).name)
            raise
        except asyncio.CancelledError:
            self.ended(call, name, CANCELLED)
            raise

    def ended(self, call: Call, name: str, result: str) -> None:
        """Note a change that was let in. result: "ok", or the error's name."""
        if self._gate.reads_needs:
            self._gate.ended(
                ACTIONS[call.key], self.caller, (Need(*NEEDS[call.key], name),), result
            )


async def _made(work: Callable[[], Awaitable[object]], deadline: Deadline, *, waits: bool) -> bool:
    """Make a change; returns False if the node is not ready, and there is time to try again."""
    try:
        async with deadline:
            await work()
    except (faults.NotReadyError, errors.NotReadyError):
        if not waits or deadline.left() < RETRY_WAIT:
            raise
        return False
    return True


# Names of the calls for errors and the audit log.
ACTIONS = {key: f"kafka/{call.name}" for key, call in CALLS.items()}
