"""Groups whose partitions the nodes share out, over the calls themselves: streams and unary."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

import grpc
import pytest

from harness.api import Api, as_call
from harness.local_cluster import LocalCluster
from oncelog.v1 import batch_pb2
from oncelog.v1 import group_pb2 as pb
from oncelog.v1.transaction_pb2 import StagedOffsets
from oncelog.wire.status import from_rpc_error
from tests.integration.conftest import MakeCluster
from tests.integration.transactions.test_transactions import Sender
from tests.integration.waiting import eventually

TIMEOUT = 30.0
PARTITIONS = 4
BROKEN = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)
Held = dict[int, int]  # partition -> ownership


class Member:
    """A member that does as it is asked, over streams to the present leader."""

    def __init__(
        self, cluster: LocalCluster, group: str, topic: str, name: str, instance_id: str = ""
    ) -> None:
        self.cluster, self.group, self.topic, self.name = cluster, group, topic, name
        self.instance_id = instance_id
        self.connection = self.epoch = self.claim = 0
        self.held: Held = {}
        self.ended = ""
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self.said: queue.Queue[pb.JoinGroupRequest | None] = queue.Queue()
        self._number = 0
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.stopped.is_set() and not self.ended:
            for node in self.cluster.nodes:
                try:
                    self._serve(self.cluster.api(node))
                except grpc.RpcError as error:
                    if as_call(error).code() not in BROKEN:
                        raise
                if self.stopped.is_set() or self.ended:
                    return
            self.stopped.wait(0.05)

    def _serve(self, api: Api) -> None:
        with self.lock:
            self.connection += 1
            hello = pb.MemberHello(
                group=self.group,
                member_id=self.name,
                connection=self.connection,
                topics=[self.topic],
                epoch=self.epoch,
                claim=self.claim,
                owned=self._partitions(self.held),
                session_timeout_ms=3000,
                instance_id=self.instance_id,
            )
            said: queue.Queue[pb.JoinGroupRequest | None] = queue.Queue()
            said.put(pb.JoinGroupRequest(hello=hello))
            self.said = said  # now that the hello is the first: `leave` may come at any time
        answers = api.groups.JoinGroup(self._requests(said))
        try:
            for answer in answers:
                if self.stopped.is_set():
                    return
                self._take(answer)
        finally:
            said.put(None)
            answers.cancel()

    def _requests(
        self, said: queue.Queue[pb.JoinGroupRequest | None]
    ) -> Iterator[pb.JoinGroupRequest]:
        while not self.stopped.is_set():
            try:
                request = said.get(timeout=0.5)
            except queue.Empty:
                request = pb.JoinGroupRequest(ping=pb.MemberPing())
            if request is None:
                return
            yield request

    def _take(self, answer: pb.JoinGroupResponse) -> None:
        with self.lock:
            if answer.HasField("fenced"):
                self.held, self.epoch = {}, 0
                if answer.fenced.reason == "INSTANCE_TAKEN":
                    self.ended = answer.fenced.reason
            elif answer.HasField("instance_held"):
                self.claim = answer.instance_held.claim
            else:
                new = answer.assignment
                self.epoch = new.epoch
                self.held = {one.partition: one.ownership for one in new.partitions}
                if new.revoke:
                    owned = pb.MemberOwned(epoch=new.epoch, partitions=self._partitions(self.held))
                    self.said.put(pb.JoinGroupRequest(owned=owned))

    def _partitions(self, held: Held) -> list[batch_pb2.TopicPartition]:
        return [batch_pb2.TopicPartition(topic=self.topic, partition=n) for n in held]

    def partitions(self) -> set[int]:
        with self.lock:
            return set(self.held)

    def leave(self) -> None:
        self.said.put(pb.JoinGroupRequest(leave=pb.MemberLeave()))

    def commit(self, partition: int, offset: int, ownership: int | None = None) -> str:
        """The error; "" if it is stored."""
        with self.lock:
            self._number += 1
            number = self.held.get(partition, 0) if ownership is None else ownership
        one = pb.OffsetCommit(
            topic=self.topic, partition=partition, offset=offset, ownership=number
        )
        request = pb.CommitOffsetsRequest(
            group=self.group, offsets=[one], member_id=self.name, commit_number=self._number
        )
        return commit(self.cluster, request)

    def fetch(self, partition: int, ownership: int | None = None) -> int | str:
        """The offset that it goes on from, or why it does not."""
        number = self.held.get(partition, 0) if ownership is None else ownership
        return fetch(self.cluster, self.group, self.topic, partition, self.name, [number])

    def kill(self) -> None:
        """Without a word: the stream breaks."""
        self.stopped.set()
        self.said.put(None)
        self.thread.join(TIMEOUT)


def at_the_leader(cluster: LocalCluster, call: Callable[[Api], object]) -> object:
    """Asks node after node until the one that leads the group's partition answers."""
    last: grpc.RpcError | None = None
    for _ in range(200):
        for node in cluster.nodes:
            try:
                return call(cluster.api(node))
            except grpc.RpcError as error:
                if as_call(error).code() not in BROKEN:
                    raise
                last = error
        threading.Event().wait(0.05)
    raise AssertionError(f"no leader answers: {last}")


def commit(cluster: LocalCluster, request: pb.CommitOffsetsRequest) -> str:
    answer = at_the_leader(cluster, lambda api: api.groups.CommitOffsets(request, timeout=TIMEOUT))
    assert isinstance(answer, pb.CommitOffsetsResponse)
    (result,) = answer.results
    return result.error


def fetch(
    cluster: LocalCluster, group: str, topic: str, partition: int, member: str, numbers: list[int]
) -> int | str:
    request = pb.FetchOffsetsRequest(
        group=group,
        partitions=[batch_pb2.TopicPartition(topic=topic, partition=partition)],
        member_id=member,
        ownerships=numbers,
    )
    try:
        answer = at_the_leader(
            cluster, lambda api: api.groups.FetchOffsets(request, timeout=TIMEOUT)
        )
    except grpc.RpcError as error:
        return from_rpc_error(error).reason
    assert isinstance(answer, pb.FetchOffsetsResponse)
    return answer.offsets[0].offset


def describe(cluster: LocalCluster, group: str) -> pb.DescribeGroupResponse:
    request = pb.DescribeGroupRequest(group=group)
    answer = at_the_leader(cluster, lambda api: api.groups.DescribeGroup(request, timeout=TIMEOUT))
    assert isinstance(answer, pb.DescribeGroupResponse)
    return answer


@pytest.fixture
def shared(cluster: LocalCluster, topic: str) -> LocalCluster:
    cluster.api(1).create_topic(topic, PARTITIONS, 3)
    return cluster


def shares(*members: Member) -> list[int]:
    return sorted(len(member.partitions()) for member in members)


def test_two_members_share_the_partitions_and_one_takes_over(
    shared: LocalCluster, topic: str
) -> None:
    one, two = (Member(shared, topic, topic, name) for name in "ab")
    eventually(lambda: shares(one, two) == [2, 2], "both have half")
    assert one.partitions() | two.partitions() == set(range(PARTITIONS))
    mine = min(one.partitions())
    assert one.commit(mine, 5) == ""
    assert two.commit(mine, 9, ownership=one.held[mine]) == "FENCED_MEMBER"
    by_hand = pb.OffsetCommit(topic=topic, partition=mine, offset=1)
    request = pb.CommitOffsetsRequest(group=topic, offsets=[by_hand])
    assert commit(shared, request) == "GROUP_HAS_MEMBERS"
    told = describe(shared, topic)
    assert {one.member_id: len(one.owned) for one in told.members} == {"a": 2, "b": 2}
    assert [one.offset for one in told.offsets] == [5]
    before = dict(one.held)
    one.kill()
    eventually(lambda: shares(two) == [PARTITIONS], "the session of a dead member ends")
    assert one.commit(mine, 7, ownership=before[mine]) == "FENCED_MEMBER"
    assert two.commit(mine, 8) == ""
    two.leave()
    eventually(lambda: not describe(shared, topic).members, "who leaves is gone at once")
    assert commit(shared, request) == "", "a group without members takes commits by hand"
    two.kill()


def test_who_has_no_say_in_a_partition_ends_no_transaction_there(
    shared: LocalCluster, topic: str
) -> None:
    """A late look of the owner before would otherwise abort each transaction of the new one."""
    one, two = (Member(shared, topic, topic, name) for name in "ab")
    eventually(lambda: shares(one, two) == [2, 2], "both have half")
    mine = min(one.partitions())
    sender = Sender(shared, topic, topic, 1)
    sender.begin()
    assert sender.stage(0, 1) == "STAGED"
    offset = pb.OffsetCommit(topic=topic, partition=mine, offset=7, ownership=one.held[mine])
    stage = pb.StageOffsetsRequest(
        transaction_id=sender.number,
        producer_id=sender.lease.producer_id,
        epoch=sender.lease.epoch,
        group=topic,
        offsets=[offset],
        member_id="a",
        number=1,
    )
    staged = at_the_leader(shared, lambda api: api.groups.StageOffsets(stage, timeout=TIMEOUT))
    assert isinstance(staged, pb.StageOffsetsResponse) and not staged.error
    assert two.fetch(mine, one.held[mine]) == "FENCED_MEMBER"
    assert one.fetch(mine, one.held[mine] - 1) == "FENCED_MEMBER"
    assert fetch(shared, topic, topic, mine, "", []) == "GROUP_HAS_MEMBERS"
    assert fetch(shared, topic, topic, mine, "a", []) == "INVALID_REQUEST"
    taken = StagedOffsets(group=topic, offset_count=1, last_number=1)
    assert [run.record_count for run in sender.commit(offsets=[taken]).runs] == [1]
    assert one.fetch(mine) == 7
    sender.begin()
    stage.transaction_id, stage.number = sender.number, 2
    staged = at_the_leader(shared, lambda api: api.groups.StageOffsets(stage, timeout=TIMEOUT))
    assert isinstance(staged, pb.StageOffsetsResponse) and not staged.error
    assert one.fetch(mine) == 7
    with pytest.raises(grpc.RpcError, match="aborted"):  # by the partition's owner, which asked
        sender.commit(offsets=[StagedOffsets(group=topic, offset_count=1, last_number=2)])
    for member in (one, two):
        member.kill()


def test_another_coordinator_moves_nothing(make_cluster: MakeCluster, topic: str) -> None:
    cluster = make_cluster()
    cluster.api(1).create_topic(topic, PARTITIONS, 3)
    members = [Member(cluster, topic, topic, name) for name in "ab"]
    eventually(lambda: shares(*members) == [2, 2], "both have half")
    before = [dict(member.held) for member in members]
    leader = describe(cluster, topic).coordinator_id
    cluster.kill([leader])
    eventually(
        lambda: all(one.connected for one in describe(cluster, topic).members), "all are back"
    )
    assert [dict(member.held) for member in members] == before
    for member in members:
        assert [member.commit(part, 3) for part in sorted(member.held)] == ["", ""]
        member.kill()


def test_an_instance_id_keeps_its_share_over_a_restart(shared: LocalCluster, topic: str) -> None:
    one = Member(shared, topic, topic, "a1", instance_id="a")
    other = Member(shared, topic, topic, "b1", instance_id="b")
    eventually(lambda: shares(one, other) == [2, 2], "both have half")
    kept, others = one.partitions(), dict(other.held)
    again = Member(shared, topic, topic, "a2", instance_id="a")
    eventually(lambda: again.partitions() == kept, "the new process has what the old one had")
    eventually(lambda: one.ended == "INSTANCE_TAKEN", "the old one is told")
    assert dict(other.held) == others
    for member in (again, other):
        member.kill()


def test_the_same_without_a_stream(shared: LocalCluster, topic: str) -> None:
    hello = pb.MemberHello(
        group=topic, member_id="u", connection=1, topics=[f"^{topic[:-1]}.*"], client_host="here"
    )

    def say(**request: object) -> pb.JoinGroupResponse:
        call = pb.GroupHeartbeatRequest(
            group=topic,
            member_id="u",
            connection=1,
            request=pb.JoinGroupRequest(**request),  # type: ignore[arg-type]
        )
        answer = at_the_leader(shared, lambda api: api.groups.GroupHeartbeat(call, timeout=TIMEOUT))
        assert isinstance(answer, pb.JoinGroupResponse)
        return answer

    first = say(hello=hello)
    assert first.connection == 1 and first.ping_interval_ms == 3333

    def held() -> set[int]:
        answer = say(ping=pb.MemberPing())
        return {one.partition for one in answer.assignment.partitions}

    eventually(lambda: held() == set(range(PARTITIONS)), "the assignment comes with a ping")
    (member,) = describe(shared, topic).members
    assert (member.client_host, len(member.owned)) == ("here", PARTITIONS)
    say(leave=pb.MemberLeave())
    eventually(lambda: not describe(shared, topic).members, "it has left")
    assert say(ping=pb.MemberPing()).connection == 0, "say hello again"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"group": ""}, "group"),
        ({"member_id": "m" * 256}, "member_id"),
        ({"connection": 0}, "connection"),
        ({"topics": []}, "topics"),
        ({"topics": ["^("]}, "topics"),
        ({"assignor": "best"}, "assignor"),
        ({"session_timeout_ms": 5}, "session_timeout_ms"),
    ],
)
def test_a_hello_that_makes_no_sense_is_refused(
    shared: LocalCluster, topic: str, changes: dict[str, object], field: str
) -> None:
    sound: dict[str, object] = {
        "group": topic, "member_id": "m", "connection": 1, "topics": [topic]
    }  # fmt: skip
    hello = pb.MemberHello(**(sound | changes))  # type: ignore[arg-type]
    requests = [pb.JoinGroupRequest(hello=hello)]
    with pytest.raises(grpc.RpcError) as caught:
        at_the_leader(shared, lambda api: next(api.groups.JoinGroup(iter(requests))))
    error = as_call(caught.value)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert (error.details() or "").startswith(f"{field}: ")
