"""InitProducerId: a producer id for a client without a transactional id.

session --> Producers --> the node's block of ids --ids.made--> an id of Kafka's own space

The client raises its epoch by itself, and the id proves itself (`ids`); so nothing is remembered.
"""

from __future__ import annotations

from cluster.features import KAFKA
from cluster.kafka import ids
from cluster.kafka.errors import EXPECTED, Error, of_error
from cluster.kafka.messages import InitProducerIdRequest, InitProducerIdResponse
from cluster.kafka.needs import Rights
from cluster.kafka.versions import Head
from cluster.services.admin.producer_service import ProducerService

NO_ID = -1


class Producers:
    """Hands out ids, for one node."""

    def __init__(self, service: ProducerService) -> None:
        self._service = service

    async def init(
        self, rights: Rights, head: Head, request: InitProducerIdRequest
    ) -> InitProducerIdResponse:
        if request.transactional_id is not None:
            return _refused(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        node = self._service.node
        try:
            node.metadata.features.require(KAFKA)
            secret = await self._service.lease_secret()
            issued = await node.next_producer_id()
        except EXPECTED as error:
            number = of_error(error)
            if number is Error.NOT_LEADER_OR_FOLLOWER:  # no leader of the metadata now
                number = Error.COORDINATOR_LOAD_IN_PROGRESS
            return _refused(number)
        node.metrics.leases += 1
        made = ids.made(secret, issued, rights.caller.principal)
        return InitProducerIdResponse(producer_id=made, producer_epoch=0)


def _refused(number: Error) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=number, producer_id=NO_ID, producer_epoch=NO_ID)
