"""InitProducerId: a producer id, with a transactional id or without.

    session --> Producers --> the node's block of ids --ids.made--> an id of Kafka's own space
                        '-- with a transactional id --> OpenTransactions.lease

A client without one raises its epoch by itself, and the id proves itself (`ids`); so nothing is
remembered. A transactional id is a producer name; each call raises its epoch.
"""

from __future__ import annotations

from cluster.features import KAFKA
from cluster.kafka import ids
from cluster.kafka.errors import EXPECTED, Error, of_error, of_new_id, of_transaction
from cluster.kafka.messages import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from cluster.kafka.needs import Required, Rights
from cluster.kafka.open_transactions import OpenTransactions
from cluster.kafka.versions import Head
from cluster.services.admin.producer_service import ProducerService
from cluster.transactions.types import Holder
from oncelog.errors import OncelogError

NO_ID = -1
_WRITE_NAME = Required("write", "producer")


class Producers:
    """Hands out ids, for one node."""

    def __init__(self, service: ProducerService, open_ones: OpenTransactions) -> None:
        self._service = service
        self._open = open_ones

    async def init(
        self, rights: Rights, head: Head, request: InitProducerIdRequest
    ) -> InitProducerIdResponse:
        node = self._service.node
        if not node.metadata.features.is_on(KAFKA):
            # Not before the upgrade, nor in the first second of a new cluster: clients ask again.
            return _refused(Error.COORDINATOR_LOAD_IN_PROGRESS)
        if request.transactional_id is not None:
            return await self._named(rights, head, request, request.transactional_id)
        try:
            secret = await self._service.lease_secret()
            issued = await node.next_producer_id()
        except EXPECTED as error:
            return _refused(of_new_id(error))
        node.metrics.leases += 1
        made = ids.made(secret, issued, rights.caller.principal)
        return InitProducerIdResponse(producer_id=made, producer_epoch=0)

    async def _named(
        self, rights: Rights, head: Head, request: InitProducerIdRequest, name: str
    ) -> InitProducerIdResponse:
        try:
            rights.let_in(INIT_PRODUCER_ID, name, _WRITE_NAME)
        except OncelogError as refused:
            return _refused(of_error(refused))
        held = None
        if request.producer_id >= 0:
            held = Holder(request.producer_id, request.producer_epoch)
        node = self._service.node
        try:
            holder = await self._open.lease(name, request.transaction_timeout_ms, held)
        except EXPECTED as error:
            return _refused(of_transaction(error, fenced=head.version >= 4))
        node.metrics.leases += 1
        return InitProducerIdResponse(producer_id=holder.producer_id, producer_epoch=holder.epoch)


def _refused(number: Error) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=number, producer_id=NO_ID, producer_epoch=NO_ID)
