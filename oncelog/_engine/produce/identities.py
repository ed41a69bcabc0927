"""Identities of a producer: leases of producer ids, names, and last sequences of partitions.

Place in the flow: the sender asks for an identity when a partition has something to send and no
usable identity: at the start, after 90 % of a lease, after a reset. All partitions share one
identity; a partition that was reset gets its own, so the others go on.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from typing import Any

from oncelog import errors
from oncelog._engine.net.attempts import Attempts
from oncelog._engine.net.cluster import Cluster, check_answers, producer_stub
from oncelog._engine.produce.sealing import LeasedIdentity
from oncelog.config import ProducerConfig
from oncelog.types import TopicPartition
from oncelog.v1 import batch_pb2, producer_pb2

log = logging.getLogger("oncelog.producer")

_RENEW_AT = 0.9
# A hanging node must not hold up a producer while others answer.
_ATTEMPT_S = 2.0


class ProducerIdentities:
    def __init__(self, config: ProducerConfig, cluster: Cluster) -> None:
        self._config = config
        self._cluster = cluster
        self._name = config.producer_name or ""
        self._attempt_s = min(_ATTEMPT_S, config.request_timeout_ms / 1000)
        self._serial = 0
        self._lock = asyncio.Lock()
        self.current: LeasedIdentity | None = None
        # The newest epoch that this producer has leased under its name.
        self._newest: LeasedIdentity | None = None
        # Nonce of the present lease call, until it is answered. A cancelled call may have raised
        # the epoch: with another nonce the next call would find the name taken over.
        self._nonce = 0
        self.attempts = Attempts()  # of the call in progress

    async def acquire(self, tp: TopicPartition, used: LeasedIdentity) -> tuple[LeasedIdentity, int]:
        """Return an identity that the partition has not used, and its last sequence there.

        Retries while errors are retriable; records have their own deadline. Raises FencedError if
        another producer has taken over the name.
        """
        async with self._lock:
            identity = self.current
            if identity is None or time.monotonic() >= identity.expire_at:
                identity = self.current = await self._lease()
            elif identity.serial <= used.serial:
                identity = await self._lease()
        resume_from = self._config.resume_from
        if resume_from is not None:
            return identity, resume_from.next_sequences.get(tp, 0) - 1
        if self._name:
            return identity, await self._open(tp, identity)
        return identity, -1

    async def for_transaction(
        self, total_s: float, used_up: Callable[[LeasedIdentity], bool]
    ) -> LeasedIdentity:
        """Return an identity that lasts for a transaction, if leases last so long.

        It is not renewed while one is open: that would raise the name's epoch, and fence it.
        `used_up`: whether it is unusable.
        """
        async with self._lock:
            identity, now = self._newest, time.monotonic()
            if identity is None or used_up(identity) or not _lasts(identity, now, total_s):
                identity = await self._lease()
            self.current = identity
            return identity

    async def renew_if_due(self, now: float) -> None:
        """Lease the next id at 90 % of the lifetime; partitions change over when drained."""
        current = self.current
        if current is None or now < current.renew_at or self._lock.locked():
            return
        async with self._lock:
            try:
                self.current = await asyncio.wait_for(self._lease(), 1.0)
            except (errors.RetriableError, TimeoutError) as error:
                log.debug("lease not renewed yet: %s", error)

    async def _lease(self) -> LeasedIdentity:
        self._serial += 1
        resume_from = self._config.resume_from
        if resume_from is not None:
            forever = float("inf")
            return LeasedIdentity(
                resume_from.producer_id,
                resume_from.epoch,
                self._serial,
                forever,
                forever,
                resume_from.lease_token,
                self._config.secured,
            )
        request = producer_pb2.LeaseProducerRequest(producer_name=self._name)
        if self._name:
            # One number for all attempts of this lease: the epoch rises by one at most.
            self._nonce = request.nonce = self._nonce or secrets.randbits(64) or 1
            if self._newest is not None:
                # A name that another instance has leased since must not be taken back.
                request.held_producer_id = self._newest.producer_id
                request.held_epoch = self._newest.epoch
        # Counted from before the call, so that it ends too early rather than too late.
        start = time.monotonic()
        answer = await self._call(lambda channel: producer_stub(channel).LeaseProducer, request)
        lifetime = answer.lifetime_ms / 1000 if answer.lifetime_ms > 0 else float("inf")
        identity = LeasedIdentity(
            answer.producer_id,
            answer.epoch,
            self._serial,
            start + lifetime * _RENEW_AT,
            start + lifetime,
            answer.lease_token,
            self._config.secured,
        )
        if self._name:
            self._newest = identity
            self._nonce = 0
        log.info("producer id %d epoch %d", identity.producer_id, identity.epoch)
        return identity

    async def _open(self, tp: TopicPartition, identity: LeasedIdentity) -> int:
        """Fence the predecessor in this partition; return the last stored sequence."""
        request = producer_pb2.OpenProducerRequest(
            producer_id=identity.producer_id,
            epoch=identity.epoch,
            lease_token=identity.lease_token,
            partitions=[batch_pb2.TopicPartition(topic=tp.topic, partition=tp.partition)],
        )
        failures = 0
        while True:
            address = self._cluster.leaders.address(tp)
            opened: Any = None
            try:
                answer = await self._cluster.call(
                    lambda channel: producer_stub(channel).OpenProducer,
                    request,
                    address=address or None,
                    attempt_timeout_s=self._attempt_s,
                )
                check_answers(1, len(answer.partitions))
                opened = answer.partitions[0]
            except errors.NotSupportedError:
                return -1  # a server without it fences at the first write
            except errors.RetriableError as error:
                self.attempts.failed(error)
                log.debug("%s not opened yet: %s", tp, error)
            if opened is not None and not opened.error:
                self.attempts.clear()
                return int(opened.last_sequence)
            if opened is not None and opened.error == "FENCED":
                raise errors.FencedError(
                    f"{tp}: producer_name {self._name!r} was taken over, "
                    f"epoch {opened.current_epoch}",
                    current_epoch=opened.current_epoch,
                )
            if opened is not None and opened.error in ("UNKNOWN_PRODUCER", "PRODUCER_EXPIRED"):
                raise errors.UnknownProducerError(f"{tp}: {opened.error}")
            if opened is not None:
                self.attempts.failed(errors.NotReadyError(opened.message or opened.error))
            failures += 1
            self._cluster.leader_failed(address, failures)
            await asyncio.sleep(self._cluster.backoff.delay(failures))
            try:
                await self._cluster.refresh([tp.topic])
            except errors.RetriableError as error:
                log.debug("no metadata: %s", error)
            if self._cluster.leaders.gone([tp]):
                return -1  # nothing is sent there: its records fail

    async def last_stored(self, tp: TopicPartition, identity: LeasedIdentity) -> int:
        """Return the producer's last sequence in a partition, from its leader; -1: none."""
        request = producer_pb2.DescribeProducersRequest(
            topic=tp.topic, partition=tp.partition, producer_id=identity.producer_id, limit=1
        )
        answer = await self._cluster.call_leader(
            tp, lambda channel: producer_stub(channel).DescribeProducers, request
        )
        return next((int(state.last_sequence) for state in answer.producers), -1)

    async def _call(self, method: Any, request: Any) -> Any:
        failures = 0
        while True:
            try:
                answer = await self._cluster.call(
                    method,
                    request,
                    attempt_timeout_s=self._attempt_s,
                    on_retry=self.attempts.failed,
                )
                self.attempts.clear()
                return answer
            except errors.RetriableError as error:
                failures += 1
                log.debug("asked for a producer id: %s", error)
                await asyncio.sleep(self._cluster.backoff.delay(failures))


def _lasts(identity: LeasedIdentity, now: float, total_s: float) -> bool:
    if identity.renew_at == float("inf"):
        return True
    # The last tenth of a lease lies between its renewal and its end.
    lifetime_s = (identity.expire_at - identity.renew_at) / (1 - _RENEW_AT)
    return identity.renew_at - now >= min(total_s, lifetime_s / 2)
