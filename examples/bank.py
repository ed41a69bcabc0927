"""Bank example: transfers between accounts in several partitions, and an auditor at any time.

    python examples/bank.py transfer --teller anna --times 1000      # several, at once
    python examples/bank.py audit

How it works:

- An account's postings are in the partition of its number. A transfer takes an amount from one
  account, gives it to another, and a fee to the bank: three postings in one to three partitions,
  in one transaction.
- If a teller fails in the middle, its transfer is there as a whole or not at all.
- In each partition all postings of a transfer appear at the same moment, and lie together: the
  auditor checks that at every look. Between partitions there is no such moment: a transfer may
  be visible in one partition shortly before the other, and the auditor waits for it. So money
  may be seen in transit, and is never lost or made.
"""

from __future__ import annotations

import argparse
import random
import uuid
from collections import Counter
from typing import NamedTuple

from oncelog import (
    Admin,
    CommitTimeoutError,
    Consumer,
    Producer,
    TopicAlreadyExistsError,
    TopicPartition,
    TransactionAbortedError,
)

BANK, FEE = 0, 1  # the bank's own account, and its fee


class Posting(NamedTuple):
    """One line of an account. legs: the transfer's postings in this partition, and its number of
    partitions."""

    transfer: str
    account: int
    amount: int
    legs: int
    partitions: int

    def value(self) -> bytes:
        return " ".join(map(str, self)).encode()

    @classmethod
    def of(cls, value: bytes) -> Posting:
        transfer, *numbers = value.decode().split()
        account, amount, legs, partitions = map(int, numbers)
        return cls(transfer, account, amount, legs, partitions)


def postings(source: int, target: int, amount: int, partitions: int) -> list[Posting]:
    """Return the postings of a transfer, with its fee."""
    transfer = uuid.uuid4().hex
    changes = [(source, -amount - FEE), (target, amount), (BANK, FEE)]
    places = Counter(account % partitions for account, _ in changes)
    return [
        Posting(transfer, account, change, places[account % partitions], len(places))
        for account, change in changes
    ]


class Teller:
    """Makes transfers. Each teller has its own name: a restart ends the transaction left open."""

    def __init__(self, bootstrap: str, topic: str, name: str, partitions: int) -> None:
        with Admin(bootstrap_servers=bootstrap) as admin:
            try:
                admin.create_topic(topic, partitions=partitions)
            except TopicAlreadyExistsError:
                pass
        self._topic = topic
        self._producer = Producer(
            bootstrap_servers=bootstrap, producer_name=f"{topic}-{name}", linger_ms=0
        )
        self._partitions = self._producer.partitions_for(topic)

    def transfer(self, source: int, target: int, amount: int) -> bool:
        """Make a transfer; tell whether it was made."""
        txn = self._producer.transaction()
        try:
            with txn:
                for one in postings(source, target, amount, self._partitions):
                    txn.send(self._topic, one.value(), partition=one.account % self._partitions)
        except TransactionAbortedError:
            return False  # none of it is stored: the customer may ask again
        except CommitTimeoutError:
            # It is or will be decided, but the outcome is not known. Making the transfer again
            # could make it twice; asking again cannot.
            while txn.state not in ("committed", "aborted"):
                try:
                    txn.commit()
                except (CommitTimeoutError, TransactionAbortedError):
                    pass
        return txn.state == "committed"

    def close(self) -> None:
        self._producer.close()


class Auditor:
    """Reads all partitions and keeps the balances."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        self.balances: Counter[int] = Counter()
        self.transfers = 0
        # Transfers visible in some of their partitions: how many partitions are missing.
        self.on_their_way: dict[str, int] = {}
        self._left: dict[TopicPartition, list[Posting]] = {}

    def look(self) -> None:
        """Read to the present ends. Raises AssertionError if the books are wrong."""
        ends = self._consumer.end_offsets(self._consumer.assignment())
        while any(self._consumer.position(place) < end for place, end in ends.items()):
            for place, records in self._consumer.getmany(timeout_ms=1000).items():
                found = [Posting.of(record.value or b"") for record in records]
                self._take(place, self._left.pop(place, []) + found)
        assert not self._left, f"a part of a transfer is readable: {self._left}"

    def _take(self, place: TopicPartition, found: list[Posting]) -> None:
        while found:
            legs = found[: found[0].legs]
            if len(legs) < found[0].legs:
                self._left[place] = found  # the rest of it must be there, before the end
                return
            names = {one.transfer for one in legs}
            assert len(names) == 1, f"{place}: postings of {names} are not apart"
            self._post(legs)
            found = found[len(legs) :]

    def _post(self, legs: list[Posting]) -> None:
        first = legs[0]
        for one in legs:
            self.balances[one.account] += one.amount
        missing = self.on_their_way.pop(first.transfer, first.partitions) - 1
        if missing:
            self.on_their_way[first.transfer] = missing
        else:
            self.transfers += 1

    def audit(self) -> str:
        """Look until all visible transfers are complete; return the balances."""
        self.look()
        seen = set(self.on_their_way)
        while seen & self.on_their_way.keys():
            self.look()
        text = f"{self.transfers} transfers are whole, {len(self.on_their_way)} on their way"
        if not self.on_their_way:
            total = sum(self.balances.values())
            assert total == 0, f"{total} was made of nothing"
            assert self.balances[BANK] >= self.transfers * FEE, "the bank did not get its fees"
            text += ", all accounts add up to 0"
        return text

    def close(self) -> None:
        self._consumer.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="A bank over Oncelog.")
    parser.add_argument("--bootstrap", default="127.0.0.1:7001")
    parser.add_argument("--topic", default="bank")
    commands = parser.add_subparsers(dest="command", required=True)
    transfer = commands.add_parser("transfer")
    transfer.add_argument("--teller", required=True, help="its name: one for each that runs")
    transfer.add_argument("--times", type=int, default=1)
    transfer.add_argument("--accounts", type=int, default=20)
    transfer.add_argument("--partitions", type=int, default=3, help="when the topic is made")
    commands.add_parser("audit").add_argument("--times", type=int, default=1)
    wanted = parser.parse_args()
    if wanted.command == "audit":
        auditor = Auditor(wanted.bootstrap, wanted.topic)
        try:
            for _ in range(wanted.times):
                print(auditor.audit(), flush=True)
        finally:
            auditor.close()
        return 0
    teller = Teller(wanted.bootstrap, wanted.topic, wanted.teller, wanted.partitions)
    try:
        for _ in range(wanted.times):
            source, target = random.sample(range(1, wanted.accounts), 2)
            made = teller.transfer(source, target, random.randint(1, 100))
            print("made" if made else "not made", flush=True)
    finally:
        teller.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
