"""Kafka's transactions: its clients name none, and do not send aborted sequences again."""

from __future__ import annotations

from typing import Any

from cluster.kafka.sent import Sent
from cluster.transactions.types import Holder
from tests.sim.transactions.cases.registry import case, same
from tests.sim.transactions.kafka import Work
from tests.sim.transactions.leaders import accepted
from tests.sim.transactions.offsets import OffsetsLeader, refusal
from tests.sim.transactions.run import add_partition
from tests.sim.transactions.stage import NOT_YET, Asked, Stage
from tests.sim.transactions.world import LOST, METADATA, Call


def blind() -> Sent:
    """A connection that every transaction is older than: its client waits for no answer."""
    return Sent(1 << 62)


class KafkaStage(Stage):
    """A stage with one producer of Kafka's protocol, "k"."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__(partitions)
        self.holder = self.kafka_lease()
        self.sent = 0
        self.work = Work()

    def kafka_lease(self, held: Holder | None = None) -> Any:
        return self.ask(self.call("lease", held=held)).answer

    def call(self, method: str, node: int = METADATA, **more: Any) -> Call:
        return Call(node, f"kafka_{method}", {"name": "k", **more})

    def owned(self, method: str, node: int = METADATA, **more: Any) -> Call:
        """A call over a new connection."""
        sent = accepted(self.world, node)
        return self.call(method, node, holder=self.holder, sent=sent, **more)

    def add(self, *groups: int, node: int = METADATA) -> Any:
        """Adds partitions. The answer, or the reason of its refusal."""
        said: Any = LOST
        while said is LOST:  # a node that is behind takes the connection for an older one
            said = self._said(self.ask(self.owned("add", node, groups=set(groups))))
        return said

    def end_call(self, commit: bool, node: int = METADATA) -> Call:
        return self.owned("end", node, commit=commit)

    def end(self, *, commit: bool, node: int = METADATA) -> Any:
        """Ends the transaction, whose records are checked at the end; or the reason of a refusal"""
        self.checker.kafka.append(self.work)
        self.work.commit_sent = commit
        said: Any = LOST
        while said is LOST:
            said = self._said(self.ask(self.end_call(commit, node)))
        if said is None:
            self.work.outcome = "committed" if commit else "aborted"
        self.work = Work()
        return said

    def _said(self, asked: Asked) -> Any:
        return asked.answer[0] if isinstance(asked.answer, tuple) else asked.answer

    def batch_call(self, group: int, first: int, count: int = 1) -> Call:
        self.sent += 1
        contents = [f"kafka {self.sent}/{at}" for at in range(count)]
        return Call(
            group, "kafka_batch", {"holder": self.holder, "first": first, "contents": contents}
        )

    def send_kafka(self, call: Call) -> str:
        """Sends a batch; its verdict."""
        kind = self.ask(call).kind
        if kind == "STAGED":
            self.work.contents[call.group] += call.arguments["contents"]
        return kind

    def stage(self, group: int, first: int, count: int = 1) -> str:
        return self.send_kafka(self.batch_call(group, first, count))

    def sequences(self, group: int) -> list[int]:
        return [sequence for sequence, _ in self.readable(group)]


@case
def k01_aborted_sequences_are_used_up() -> None:
    """Over changes of leaders, restarts, and for a replica that follows late."""
    stage = KafkaStage()
    stage.add(1)
    same(stage.stage(1, 0, 2), "STAGED")
    same(stage.end(commit=True), None)
    stage.group(1).save(0)
    stage.add(1)
    same(stage.stage(1, 2, 3), "STAGED")
    same(stage.end(commit=False), None)
    stage.elect(1)
    stage.add(1)
    same(stage.stage(1, 5, 1), "STAGED")
    stage.group(1).restart(0)
    stage.group(1).install(1)
    same(stage.stage(1, 6, 1), "STAGED")
    same(stage.end(commit=True), None)
    same(stage.sequences(1), [0, 1, 5, 6])
    stage.finish()


@case
def k02_batch_of_an_aborted_transaction_comes_in_the_next() -> None:
    """It has the epoch and the sequences of the aborted one: it must not become a part of it."""
    for has_run in (False, True):
        stage = KafkaStage()
        stage.add(1)
        late = stage.batch_call(1, 0, 2)
        same(stage.send_kafka(late), "STAGED")
        same(stage.end(commit=False), None)
        stage.add(1)
        if has_run:
            same(stage.stage(1, 2), "STAGED")
        same(stage.ask(late).kind, "OUT_OF_ORDER")
        stage.elect(1)
        same(stage.ask(late).kind, "OUT_OF_ORDER")
        same(stage.stage(1, 2 + has_run), "STAGED")
        same(stage.end(commit=True), None)
        stage.finish()


@case
def k03_abort_before_the_first_record() -> None:
    """The partition's next offset is 0, and the chain goes on at offset 0."""
    stage = KafkaStage()
    for first in (0, 1):
        stage.add(1)
        same(stage.stage(1, first), "STAGED")
        same(stage.end(commit=False), None)
    stage.elect(1)
    for first in (2, 3):
        stage.add(1)
        same(stage.stage(1, first), "STAGED")
        same(stage.end(commit=True), None)
    same(stage.sequences(1), [2, 3])
    stage.finish()


@case
def k04_rest_of_an_expired_transaction() -> None:
    """It must not go into a new one, which would be committed without the first part."""
    for abort in (False, True):
        stage = KafkaStage(2)
        stage.add(1)
        same(stage.stage(1, 0), "STAGED")
        stage.world.now += 1801.0
        stage.world.settle()
        same(stage.add(2), "TRANSACTION_ABORTED")
        same(stage.stage(1, 1), "TRANSACTION_ABORTED")
        same(stage.end(commit=not abort), None if abort else "TRANSACTION_ABORTED")
        if abort:
            same(stage.add(2), None)
            same(stage.end(commit=False), None)
        stage.holder = stage.kafka_lease(stage.holder)
        stage.add(1, 2)
        same((stage.stage(1, 0), stage.stage(2, 0)), ("STAGED", "STAGED"))
        same(stage.end(commit=True), None)
        stage.finish()


@case
def k05_end_is_repeated() -> None:
    """Over changes of leaders, at any node: the same outcome, never the other one."""
    for commit in (True, False):
        stage = KafkaStage()
        stage.add(1)
        same(stage.stage(1, 0), "STAGED")
        for node in (METADATA, 1, METADATA, 1):
            stage.ask(stage.end_call(commit, node))
            same(stage.ask(stage.end_call(commit, node)).answer, None)
            same(stage.ask(stage.end_call(not commit, node)).kind, "TRANSACTION_ENDED")
            stage.elect(METADATA)
        same(len(stage.readable(1)), int(commit))
        stage.work = Work()
        stage.add(1)
        same(stage.stage(1, 1), "STAGED")
        same(stage.end(commit=True), None)
        stage.finish()


@case
def k06_end_at_a_node_that_knows_the_one_before() -> None:
    """Its copy of the metadata shows the first transaction open; the client means the second."""
    for first in (True, False):
        for commit in (True, False):
            stage = KafkaStage(2)
            stage.add(2, node=1)
            same(stage.stage(2, 0), "STAGED")
            same(stage.end(commit=first), None)
            stage.add(2)
            same(stage.stage(2, 1), "STAGED")
            same(stage.end(commit=commit, node=1), None)
            same(stage.sequences(2), [0] * first + [1] * commit)
            stage.finish()


@case
def k07_batch_at_a_leader_that_knows_the_one_before() -> None:
    """It belongs to the open transaction; in that before it would be lost."""
    for first in (True, False):
        stage = KafkaStage()
        stage.add(1, node=1)
        same(stage.stage(1, 0), "STAGED")
        same(stage.end(commit=first), None)
        stage.add(1)
        same(stage.stage(1, 1), "STAGED")
        same(stage.end(commit=True), None)
        stage.finish()


@case
def k07_end_is_answered_when_its_markers_are_applied() -> None:
    stage = KafkaStage()
    stage.add(1, node=1)
    same(stage.stage(1, 0), "STAGED")
    stage.hold("write_markers")
    ending = stage.ask(stage.end_call(commit=True))
    if ending.answer is not NOT_YET:  # the client goes on
        stage.checker.kafka.append(stage.work)
        stage.work.commit_sent, stage.work.outcome = True, "committed"
        stage.work = Work()
        stage.add(1)
        stage.stage(1, 1)
        stage.checker.kafka.append(stage.work)
        stage.send(stage.end_call(commit=False))
        stage.work.outcome = "aborted"
    stage.release()
    same(ending.answer, None)
    stage.finish()


@case
def k08_delayed_end() -> None:
    """It came by an older connection than its client's later calls, at whichever node."""
    for commit in (True, False):
        for node in (METADATA, 1):
            stage = KafkaStage(2)
            stage.add(1, node=node)
            same(stage.stage(1, 0), "STAGED")
            late = stage.end_call(commit, node)
            same(stage.end(commit=commit), None)
            stage.add(1, 2)
            same((stage.stage(1, 1), stage.stage(2, 0)), ("STAGED", "STAGED"))
            same(stage.ask(late).answer, LOST)
            same((stage.stage(1, 2), stage.stage(2, 1)), ("STAGED", "STAGED"))
            same(stage.end(commit=True), None)
            same(stage.ask(late).answer, LOST)
            same((stage.sequences(1), stage.sequences(2)), ([0] * commit + [1, 2], [0, 1]))
            stage.finish()


@case
def k08_delayed_abort_behind_an_expiry() -> None:
    """Its owner does not know of it yet, and must not go on with the rest."""
    stage = KafkaStage(2)
    stage.add(1)
    late = stage.end_call(commit=False)
    same(stage.end(commit=False), None)
    stage.add(1)
    same(stage.stage(1, 0), "STAGED")
    stage.world.now += 1801.0
    stage.world.settle()
    same(stage.ask(late).answer, LOST)
    same(stage.add(2), "TRANSACTION_ABORTED")
    stage.finish()


@case
def k08_connection_that_is_older_than_its_transaction() -> None:
    """A client ends over it only what it began over it; another call comes by a new one."""
    stage = KafkaStage(2)
    old = accepted(stage.world, METADATA)
    call = stage.end_call(True)
    for is_old in (True, False):
        stage.add(1)
        call.arguments["sent"] = old
        same(stage.ask(call).answer, LOST)
        if is_old:
            call.arguments["sent"] = accepted(stage.world, METADATA)
        else:
            adding = stage.owned("add", groups={2})
            adding.arguments["sent"] = old
            same(stage.ask(adding).answer, None)
        same(stage.ask(call).answer, None)
        same(stage.ask(call).answer, None)
    stage.finish()


@case
def k08_delayed_end_while_leaders_acknowledge() -> None:
    """It decides the next transaction, and leaders acknowledge more of that until its markers come.

    Its client sends without a wait for an answer, so its connection tells nothing. The owner's own
    commit then succeeds, so all of that must be there; nothing comes behind it.
    """
    stage = KafkaStage(3)
    stage.add(1)
    same(stage.stage(1, 0), "STAGED")
    late = stage.end_call(commit=True)
    late.arguments["sent"] = blind()
    same(stage.end(commit=True), None)
    stage.add(1, 3)
    same(stage.stage(1, 1), "STAGED")
    stage.hold("write_markers")
    same(stage.ask(late).answer, NOT_YET)
    same((stage.stage(1, 2), stage.stage(3, 0)), ("STAGED", "STAGED"))
    stage.release()
    same((stage.sequences(1), stage.sequences(3)), ([0, 1, 2], [0]))
    same((stage.stage(1, 3), stage.stage(3, 1)), ("TRANSACTION_ENDED", "TRANSACTION_ENDED"))
    same(stage.end(commit=True), None)
    stage.finish()


@case
def k08_delayed_end_while_offsets_are_staged() -> None:
    for with_offsets in (True, False):
        stage = KafkaStage(2)
        same(add_partition(stage.world, OffsetsLeader), 3)
        stage.world.settle()
        stage.add(1)
        late = stage.end_call(commit=True)
        late.arguments["sent"] = blind()
        same(stage.end(commit=True), None)
        stage.add(1, 3, node=3)
        call = stage.owned("offsets", 3, offset=7)
        if with_offsets:
            same(refusal(stage.ask(call).answer), "")
        stage.hold("write_markers")
        same(stage.ask(late).answer, NOT_YET)
        call.arguments["offset"] = 9
        same(refusal(stage.ask(call).answer), "")
        stage.release()
        same(stage.ask(Call(3, "fetch_offset", {"partition": 0})).answer, 9)
        same(stage.ask(call).kind, "TRANSACTION_ENDED")
        same(stage.end(commit=True), None)


@case
def k09_successor_waits_for_the_end_of_its_predecessor() -> None:
    for commit in (True, False):
        stage = KafkaStage()
        stage.add(1)
        same(stage.stage(1, 0), "STAGED")
        zombie = stage.holder
        stage.hold("write_markers")
        if commit:
            stage.ask(stage.end_call(commit=True))
        same(stage.ask(stage.call("lease", held=None)).kind, "STILL_ENDING")
        stage.release()
        same(len(stage.readable(1)), int(commit))
        same(stage.stage(1, 1), "FENCED")
        same((stage.add(1), stage.end(commit=True)), ("FENCED", "FENCED"))
        stage.holder = stage.kafka_lease()
        same(stage.holder, (zombie.producer_id, zombie.epoch + 2))
        stage.add(1)
        same(stage.stage(1, 0), "STAGED")
        same(stage.end(commit=True), None)
        stage.finish()


@case
def k10_lease_is_repeated() -> None:
    """With the lease that it replaces: one epoch. Without: each takes the name over."""
    stage = KafkaStage()
    first = stage.kafka_lease(stage.holder)
    same(stage.kafka_lease(stage.holder), first)
    same(first.epoch, stage.holder.epoch + 1)
    second = stage.kafka_lease()
    same(second.epoch, first.epoch + 1)
    same(stage.ask(stage.call("lease", held=first)).kind, "FENCED")
    stage.finish()


@case
def k11_leader_goes_between_the_batches_and_the_end() -> None:
    """Acknowledged records are committed under any leader."""
    for survivors in (0, 1):
        stage = KafkaStage()
        stage.add(1)
        same(stage.stage(1, 0), "STAGED")
        second = stage.batch_call(1, 1)
        sent = stage.send(second)
        stage.step_until_pending(1)
        stage.elect(1, survivors)
        while sent.answer is NOT_YET or not hasattr(sent.answer, "kind"):
            sent = stage.ask(second)
        same(sent.kind, "STAGED_DUPLICATE" if survivors else "STAGED")
        stage.work.contents[1] += second.arguments["contents"]
        ending = stage.send(stage.end_call(commit=True))
        stage.step_until_pending(1)
        stage.elect(1)
        answer = ending.answer
        while answer is NOT_YET or answer is not None:
            answer = stage.ask(stage.end_call(commit=True)).answer
        same(stage.sequences(1), [0, 1])
        stage.finish()


@case
def k12_end_that_waits_while_its_client_goes_on() -> None:
    """It was repeated at another node. It must not end the next transaction, half done.

    Nor is it refused for good, if the node has loaded a checkpoint without the transaction.
    """
    for commit, loads in ((True, False), (True, True), (False, False), (False, True)):
        stage = KafkaStage(2)
        stage.add(2, node=1)
        same(stage.stage(2, 0), "STAGED")
        stage.hold("confirm_runs" if commit else "propose_metadata")
        call = stage.end_call(commit, node=1)
        call.arguments["sent"] = blind()
        late = stage.send(call)
        stage.world.settle()
        stage.world.hold = lambda call: False
        same(stage.end(commit=commit), None)
        stage.add(2)
        same(stage.stage(2, 1), "STAGED")
        if loads:
            stage.group(METADATA).install(1)
        stage.release()
        same(late.answer, LOST)
        same(stage.stage(2, 2), "STAGED")
        same(stage.end(commit=True), None)
        same(stage.sequences(2), [0] * commit + [1, 2])
        stage.finish()


@case
def k12_end_whose_node_loads_a_checkpoint() -> None:
    """It was repeated at another node. Its answer is the outcome, not a question without an end."""
    stage = KafkaStage(2)
    stage.add(2, node=1)
    same(stage.stage(2, 0), "STAGED")
    stage.hold("confirm_runs")
    late = stage.send(stage.end_call(True, node=1))
    stage.world.settle()
    stage.world.hold = lambda call: False
    same(stage.end(commit=True), None)
    stage.group(METADATA).install(1)
    stage.release()
    same(late.answer, None)
    stage.finish()


@case
def k13_offsets_at_a_node_that_knows_the_transaction_before() -> None:
    """The client asks again, and they go into its open one; offsets of the one before do not."""
    for commit in (True, False):
        for with_offsets in (True, False):
            stage = KafkaStage(2)
            same(add_partition(stage.world, OffsetsLeader), 3)
            stage.world.settle()
            stage.add(*((1, 3) if with_offsets else (1,)), node=3)
            call = stage.owned("offsets", 3, offset=7)
            if with_offsets:
                same(refusal(stage.ask(call).answer), "")
            same(stage.end(commit=commit), None)
            stage.add(1, 3)
            call.arguments["offset"] = 9
            same(stage.ask(call).answer, LOST)
            same(refusal(stage.ask(call).answer), "")
            same(stage.stage(1, 0), "STAGED")
            same(stage.end(commit=True), None)
            same(stage.ask(Call(3, "fetch_offset", {"partition": 0})).answer, 9)
            same(stage.ask(call).kind, "TRANSACTION_ENDED")


@case
def k14_delayed_offsets() -> None:
    """They are older than those that a newer connection brought, and go nowhere else either."""
    for commit in (True, False):
        stage = KafkaStage(2)
        same(add_partition(stage.world, OffsetsLeader), 3)
        stage.world.settle()
        stage.add(1, 3)
        late = stage.owned("offsets", 3, offset=5)
        lost = stage.owned("offsets", 3, offset=5)
        same(refusal(stage.ask(stage.owned("offsets", 3, offset=5)).answer), "")
        same(stage.end(commit=commit), None)
        stage.add(1, 3)
        newer = stage.owned("offsets", 3, offset=9)
        same(refusal(stage.ask(newer).answer), "")
        same(stage.ask(late).answer, LOST)
        newer.arguments["offset"] = 10
        same(refusal(stage.ask(newer).answer), "")
        same(stage.end(commit=True), None)
        same(stage.ask(Call(3, "fetch_offset", {"partition": 0})).answer, 10)
        stage.add(1)
        lost.arguments["sent"] = blind()
        same(stage.ask(lost).answer, LOST)  # its node knew the one before
        same(stage.ask(lost).kind, "TRANSACTION_ENDED")
        same(stage.end(commit=True), None)
        same(stage.ask(Call(3, "fetch_offset", {"partition": 0})).answer, 10)
