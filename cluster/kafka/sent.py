"""Age of a call, by its connection: a delayed one never means a later transaction.

    port --a connection--> Sent <--AddPartitionsToTxn: its transaction-- transactions
                             '--EndTxn, TxnOffsetCommit--> OpenTransactions: check, Newest

Kafka's calls name no transaction. But a client closes the connection of a call that it gives up,
and repeats the call over a new one. So a delayed call came by an older connection than all that its
client did afterwards. A client waits for the answer to ApiVersions, or to a login, before its first
call: it sent all calls after the node had accepted the connection.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from itertools import count

MAX_ADDED = 1000  # names of one connection; a forgotten one costs its client a reconnect
MAX_NEWEST = 10_000
_numbers = count()


class DelayedCallError(Exception):
    """The call may be an old one. Its connection ends: a client that waits asks over a new one."""


class Sent:
    """Calls of one connection. below: transactions with a lower number had begun before it.

    number: higher for a connection that this node accepted later.
    """

    def __init__(self, below: int) -> None:
        self._below = below
        self._added: dict[str, int] = {}
        self.number = next(_numbers)

    def added(self, name: str, transaction_id: int) -> None:
        """Note that the name's client was told of its transaction, over this connection."""
        self._added.pop(name, None)
        self._added[name] = transaction_id
        if len(self._added) > MAX_ADDED:
            del self._added[next(iter(self._added))]

    def check(self, name: str, transaction_id: int) -> None:
        """Raise DelayedCallError if the transaction may be later than an EndTxn of the name."""
        if transaction_id >= self._below and self._added.get(name) != transaction_id:
            text = f"transaction {transaction_id} of {name!r} is later than this connection"
            raise DelayedCallError(text)


class Newest:
    """Newest connections with calls of some kind, the last MAX_NEWEST clients."""

    def __init__(self) -> None:
        self._numbers: OrderedDict[Hashable, int] = OrderedDict()

    def check(self, client: Hashable, sent: Sent) -> None:
        """Note a client's call. Raise DelayedCallError if one came by a newer connection."""
        if sent.number < self._numbers.get(client, -1):
            raise DelayedCallError(f"a call of {client} came over a newer connection than this")
        self.note(client, sent)

    def note(self, client: Hashable, sent: Sent) -> None:
        """Note a client's call."""
        self._numbers[client] = max(sent.number, self._numbers.get(client, -1))
        self._numbers.move_to_end(client)
        if len(self._numbers) > MAX_NEWEST:
            self._numbers.popitem(last=False)
