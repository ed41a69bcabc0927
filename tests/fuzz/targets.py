"""Fuzz targets: each takes bytes and raises only if the code under it is wrong.

An error that names the input's fault is right; anything else, and an answer that contradicts
itself, is a finding. Each target brings seeds: sound inputs, to mutate.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crc32c import crc32c
from google.protobuf.message import DecodeError

from cluster import entries
from cluster.consensus.message import (
    Append,
    AppendReply,
    ClockReply,
    LeaderChanges,
    LeaderNotice,
    LeadersSince,
    Message,
    PreVote,
    Vote,
)
from cluster.dedup.last_seen import LastSeen
from cluster.dedup.verdict import KAFKA_IDS, BatchMeta
from cluster.entries import CorruptEntryError
from cluster.features import OlderReleaseError
from cluster.groups.consumer_protocol import (
    assigned_partitions,
    assignment_of,
    subscribed_topics,
)
from cluster.kafka.records import InvalidKafkaBatch, read_batch
from cluster.metadata.state import MetadataCorruptError, MetadataState
from cluster.metadata.topics import TopicSettings
from cluster.partition.group_offsets import OffsetsTable
from cluster.transport.frames import decode_frame, encode_frame, encode_hello
from cluster.transport.stream import LENGTH, STAGING_BYTES, FrameReader, StreamError
from cluster.v1 import metadata_pb2 as mpb
from cluster.v1 import offsets_pb2 as opb
from cluster.v1 import peer_pb2 as pb
from harness.payload import values_and_keys
from oncelog.errors import InvalidBatchError
from oncelog.types import Header
from oncelog.wire.batch import decode_payload, encode_payload
from oncelog.wire.compression import compress, decompress
from oncelog.wire.kafka_batch import to_columns
from storage import keys
from storage.checkpoints import CheckpointStore
from storage.commitlog.record import HEAD_BYTES, decode, encode, is_whole, parse_head
from storage.commitlog.usage import SegmentUsage
from storage.errors import CorruptionError, IdentityError
from storage.identity import parse
from storage.kv import Family
from storage.offset_index import OffsetIndex
from storage.raft_log import RaftLogStore
from tests.fuzz import identities, kafka_port, peer_port
from tests.sim.disk import Disk

LIMIT = 1 << 20
VECTORS = Path(__file__).parent.parent / "vectors"


@dataclass(frozen=True, slots=True)
class Target:
    """A target; `fix` repairs a mutation's surface damage (a checksum), so that it gets deeper."""

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    fix: Callable[[bytes], bytes] | None = None


def expect(error: Exception, words: str = "") -> None:
    """Demands an error that has a text, with `words` in it."""
    assert str(error) and words in str(error), repr(error)


# -- frames between nodes ------------------------------------------------------------------


def frames(data: bytes) -> None:
    try:
        head, messages = decode_frame(data)
    except ValueError as error:
        expect(error)
        return
    if not head.HasField("hello"):
        assert decode_frame(b"".join(encode_frame(messages)))[1] == messages


def frame_seeds() -> list[bytes]:
    entries = (b"first", b"x" * 40)
    messages: list[Message] = [
        Append(3, 7, 10, 6, 9, (7, 7), entries, tuple(map(crc32c, entries))),
        AppendReply(3, 7, 12, True, 0),
        Vote(3, 8, 11, 7),
        PreVote(3, 8, 11, 7),
        LeaderNotice(3, 7, 2),
        ClockReply(5, 1_700_000_000_000, True, wrong=(4,)),
        LeadersSince(99, 3),
        LeaderChanges(99, 3, 5, (3, 4), (7, 1), (2, 1)),
    ]
    hello = pb.Hello(cluster_id="oncelog", node_id=2, incarnation=99, protocol_version=1)
    frames = [b"".join(encode_frame(some)) for some in (messages, messages[:1])]
    return [*frames, encode_hello(hello)]


def with_head_sum(data: bytes) -> bytes:
    """Sets the head's checksum for a head that reaches to the end, or to its stated length."""
    head = data[8 : 8 + int.from_bytes(data[:4], "little")]
    return data[:4] + crc32c(head).to_bytes(4, "little") + data[8:]


def peer_stream(data: bytes) -> None:
    """Feeds a stranger's bytes to the port for peers: the first byte says how they are cut up."""
    got: list[bytes] = []
    reader = FrameReader(lambda view: got.append(bytes(view)), LIMIT)
    cut, rest = data[0] + 1 if data else 1, data[1:]
    at = 0
    try:
        while at < len(rest):
            room = reader.get_buffer()
            size = min(len(room), len(rest) - at, cut)
            room[:size] = rest[at : at + size]
            reader.buffer_updated(size)
            at += size
    except StreamError as error:
        expect(error, f"at most {LIMIT}")
    wire = b"".join(LENGTH.pack(len(frame)) + frame for frame in got)
    assert rest.startswith(wire), "what comes out is what went in"
    assert len(reader.get_buffer()) <= max(STAGING_BYTES, LENGTH.size + LIMIT)


def peer_stream_seeds() -> list[bytes]:
    wire = b"".join(LENGTH.pack(len(frame)) + frame for frame in (*frame_seeds(), b"", bytes(300)))
    return [bytes([cut]) + wire for cut in (0, 6, 255)] + [b"\xff\x00\x00\x10\x00" + bytes(99)]


# -- payloads and codecs -------------------------------------------------------------------


def payload(data: bytes) -> None:
    try:
        decoded = decode_payload(data).check()
        values, found_keys = decoded.values(), decoded.keys()
        times, headers = decoded.timestamps_us(), decoded.headers()
        assert len(decoded.records()) == len(decoded)
    except InvalidBatchError as error:
        expect(error)
        return
    assert values_and_keys(data) == (values, found_keys)
    again = decode_payload(encode_payload(values, times, found_keys, headers))
    assert (again.values(), again.keys()) == (values, found_keys)
    assert (again.timestamps_us(), again.headers()) == (times, headers)


def payload_seeds() -> list[bytes]:
    header: list[tuple[Header, ...]] = [(("name", b"v"), ("none", None)), ()]
    return [
        encode_payload([b"value"], [1]),
        encode_payload([b"a", None], [1, 2], [b"k", b""]),
        encode_payload([None, b"b"], [1, 2], [None, b"key"], header),
        encode_payload([bytes([n]) * n for n in range(20)], list(range(20))),
    ]


def codec(data: bytes) -> None:
    """Feeds a codec; the first byte names it."""
    if not data:
        return
    try:
        found = decompress(data[0] % 4, data[1:], LIMIT)
    except InvalidBatchError as error:
        expect(error)
        return
    assert len(found) <= LIMIT


def codec_seeds() -> list[bytes]:
    texts = [b"", b"some text " * 50, payload_seeds()[2], bytes(2 * LIMIT)]
    return [bytes([number]) + compress(number, text) for number in (0, 1, 2) for text in texts]


# -- batches of Kafka's protocol -----------------------------------------------------------


def kafka_batch(data: bytes) -> None:
    """Feeds a producer's batch; a reader gets the records of a sound one, or an error."""
    try:
        batch = read_batch(memoryview(data))
        columns = decode_payload(to_columns(batch.payload, LIMIT), batch.record_count)
        records = columns.records()
    except (InvalidKafkaBatch, InvalidBatchError) as error:
        expect(error)
        return
    assert len(records) == batch.record_count


def kafka_members(data: bytes) -> None:
    """Reads a member's metadata and assignment, as apply does: it must not raise."""
    topics, shares = subscribed_topics(data), assigned_partitions(data)
    assert topics is None or sum(map(len, topics)) <= len(data)
    if shares is not None:
        again = assigned_partitions(assignment_of(shares))
        assert again == shares


def kafka_members_seeds() -> list[bytes]:
    subscription = b"\0\1\0\0\0\2\0\1t\0\2uu\xff\xff\xff\xff"
    return [subscription, assignment_of({"t": [0, 7], "uu": []})]


def kafka_seeds() -> list[bytes]:
    vectors = json.loads((VECTORS / "kafka/batches.json").read_text())
    return [bytes.fromhex(one["batch"]) for one in vectors["batches"]]


def with_head(data: bytes) -> bytes:
    """Puts in the length and the checksum that a careless client would have sent."""
    length, crc = struct.pack(">i", len(data) - 12), struct.pack(">I", crc32c(data[21:]))
    return data[:8] + length + data[12:16] + b"\x02" + crc + data[21:]


# -- entries of a partition's log ----------------------------------------------------------


def entry(data: bytes) -> None:
    """Feeds entries, which are read only after the log's own checks and still not believed."""
    if not data:
        return
    try:
        match data[0]:
            case entries.BATCH | entries.KAFKA_BATCH:
                batch = entries.unpack_batch(data)
                assert entries.pack_batch(batch, bytes(entries.payload_of(data))) == data
            case entries.CARRIED:
                carried = entries.unpack_carried(data)
                assert len(entries.pack_carried(carried, entries.payload_of(data))) == len(data)
            case entries.LOG_START:
                entries.unpack_log_start(data)
            case entries.OPEN_PRODUCER:
                entries.unpack_open_producer(data)
            case entries.RELEASE_PRODUCERS:
                found = entries.unpack_release(data)
                assert len(entries.pack_release(found)) == len(data)
    except entries.CorruptEntryError as error:
        expect(error, "entry of")


def entry_seeds() -> list[bytes]:
    batch = entries.BatchEntry(0, 2, 9, 1, 77, 10, 11, 9, -1, 0, 5, 6, 7, 8, 1)
    mark = entries.KeyTombstone(50, 8)
    carried = entries.CarriedEntry(1, 2, 0, 50, 9, 700, 5, 6, 7, (mark,))
    return [
        entries.pack_batch(batch, b"payload"),
        entries.pack_batch(batch._replace(codec=entries.KAFKA_V2), b"payload"),
        entries.pack_carried(carried, b"payload"),
        entries.pack_log_start(entries.LogStartEntry(1, 2, 3, 4)),
        entries.pack_open_producer(entries.OpenProducerEntry(1, 2, 3, 4, 5, 6, 7)),
        entries.pack_release(entries.ReleaseEntry(1, 2, 3, 4, (5, 6, 7))),
    ]


# -- states in snapshots -------------------------------------------------------------------


def last_seen(data: bytes) -> None:
    try:
        loaded = LastSeen.load(data)
    except ValueError as error:
        expect(error)
        return
    assert loaded.dump() == data


def last_seen_seeds() -> list[bytes]:
    state = LastSeen()
    state.advance(1000, lifetime_ms=10_000, expired_below=1)
    for pid in (*range(1, 9), KAFKA_IDS + 5):
        for sequence in range(3):
            meta = BatchMeta(pid, 1, 2 * sequence, 2 * sequence + 1, 2 * sequence - 1, 2, 99)
            state.record(meta, 10 * (pid % 100) + 2 * sequence, 1000)
    return [LastSeen().dump(), state.dump()]


def with_crc(data: bytes) -> bytes:
    """Adds the checksum that a careless writer would have put there."""
    return data[:-4] + struct.pack("<I", zlib.crc32(data[:-4]))


def metadata_load(data: bytes) -> None:
    state = MetadataState()
    before = state.dump()
    try:
        state.load(data, 5)
    except (MetadataCorruptError, OlderReleaseError) as error:
        expect(error)
        assert state.dump() == before
        return
    _dumps_soundly(state)


def _dumps_soundly(state: MetadataState) -> None:
    dumped = state.dump()
    again = MetadataState()
    again.load(dumped, state.applied_index)
    assert again.dump() == dumped


def metadata_apply(data: bytes) -> None:
    """Applies commands one after the other, each behind its length; replicas stay alike."""
    one, other = MetadataState(), MetadataState()
    at, index = 0, 0
    while at + 2 <= len(data) and index < 20:
        size = int.from_bytes(data[at : at + 2], "little")
        command = data[at + 2 : at + 2 + size]
        at, index = at + 2 + size, index + 1
        try:
            answer = one.apply(index, command)
        except MetadataCorruptError as error:
            expect(error)
            return
        result = mpb.MetadataResult.FromString(answer)
        assert bool(result.error) == bool(result.message), result
        assert other.apply(index, command) == answer
    assert one.dump() == other.dump()
    _dumps_soundly(one)


def _sized(*commands: mpb.MetadataCommand) -> bytes:
    raw = [command.SerializeToString() for command in commands]
    return b"".join(len(one).to_bytes(2, "little") + one for one in raw)


def metadata_apply_seeds() -> list[bytes]:
    stamp: dict[str, Any] = {
        "stamp_ms": 1000,
        "lease_lifetime_ms": 1000,
        "producer_name_expiry_ms": 2000,
    }
    nodes = [
        mpb.MetadataCommand(register_node=mpb.RegisterNode(node_id=n, address=f"h:{n}"), **stamp)
        for n in (1, 2, 3)
    ]
    config = TopicSettings(0, 0, LIMIT, 0).to_proto()
    placed = [mpb.Placement(replicas=[1, 2, 3])] * 2
    create = mpb.CreateTopic(name="orders", placements=placed, config=config)
    alter = mpb.AlterTopic(name="orders", config=config)
    return [
        _sized(*nodes, mpb.MetadataCommand(create_topic=create, **stamp)),
        _sized(
            mpb.MetadataCommand(create_topic=create, **stamp),
            mpb.MetadataCommand(alter_topic=alter, **stamp),
            mpb.MetadataCommand(delete_topic=mpb.DeleteTopic(name="orders"), **stamp),
        ),
        _sized(
            mpb.MetadataCommand(
                allocate_producer_ids=mpb.AllocateProducerIds(node_id=1, count=10), **stamp
            ),
            mpb.MetadataCommand(lease_name=mpb.LeaseName(name="writer", nonce=1), **stamp),
            mpb.MetadataCommand(lease_name=mpb.LeaseName(name="writer", nonce=2), **stamp),
        ),
    ]


def metadata_seeds() -> list[bytes]:
    found = [MetadataState().dump()]
    for seed in metadata_apply_seeds():
        state, at, index = MetadataState(), 0, 0
        while at < len(seed):
            size = int.from_bytes(seed[at : at + 2], "little")
            index += 1
            state.apply(index, seed[at + 2 : at + 2 + size])
            at += 2 + size
        found.append(state.dump())
    return found


def offsets_load(data: bytes) -> None:
    try:
        table = OffsetsTable.load(data)
    except DecodeError as error:
        expect(error)
        return
    dumped = table.dump()
    assert OffsetsTable.load(dumped).dump() == dumped


def offsets_apply(data: bytes) -> None:
    one, other = OffsetsTable(max_offsets=4, max_groups=2), OffsetsTable.load(b"")
    for table in (one, other):
        try:
            table.apply(1, data)
            table.apply(1, data)
        except (DecodeError, CorruptEntryError) as error:
            expect(error)
            return
        except AssertionError as error:
            expect(error, "holds no command")
            return
        dumped = table.dump()
        assert OffsetsTable.load(dumped).dump() == dumped


def offsets_seeds() -> list[bytes]:
    record = opb.OffsetRecord(
        topic="orders", topic_id=1, partition=2, offset=3, metadata="m", producer_id=4, epoch=5
    )
    commit = opb.CommitGroupOffsets(group="g", offsets=[record, record])
    command = opb.OffsetsCommand(stamp_ms=7, commit=commit)
    table = OffsetsTable()
    table.apply(1, command.SerializeToString())
    delete = opb.OffsetsCommand(stamp_ms=8, delete=opb.DeleteGroupOffsets(group="g"))
    member = opb.ClassicMember(member="m", instance="i", metadata=b"12", assignment=b"3")
    group = opb.ClassicGroup(group="k", generation=1, protocol="range", members=[member])
    rebalance = opb.OffsetsCommand(rebalance=group)
    table.apply(2, rebalance.SerializeToString())
    return [
        command.SerializeToString(),
        delete.SerializeToString(),
        rebalance.SerializeToString(),
        table.dump(),
    ]


# -- stored keys and values ----------------------------------------------------------------


def stored(data: bytes) -> None:
    """Reads rows of one group, each behind its family and lengths, by all their views."""
    disk = Disk()
    batch = disk.batch()
    at = 0
    while at + 3 <= len(data):
        family = list(Family)[data[at] % len(Family)]
        key_size, value_size = data[at + 1] % 24, data[at + 2]
        at += 3
        key = keys.prefix(3) + data[at : at + key_size]
        batch.put(family, key, data[at + key_size : at + key_size + value_size])
        at += key_size + value_size
    disk.write(batch)
    log, places, checkpoints = RaftLogStore(disk, 3), OffsetIndex(disk, 3), CheckpointStore(disk, 3)
    for read in (
        log.load,
        lambda: log.read(2, 3),
        lambda: places.scan(0, 10),
        places.last,
        checkpoints.list,
        lambda: [checkpoints.load(info.index) for info in checkpoints.list()],
    ):
        try:
            read()
        except CorruptionError as error:
            expect(error, "group 3")
        except KeyError as error:
            expect(error, "no checkpoint")


def stored_seeds() -> list[bytes]:
    def row(family: Family, key: bytes, value: bytes) -> bytes:
        return bytes([list(Family).index(family), len(key), len(value)]) + key + value

    def number(n: int) -> bytes:
        return n.to_bytes(8, "big")

    state = [
        row(Family.STATE, b"\x01", number(4) + number(2)),
        row(Family.STATE, b"\x02", number(1) + number(1)),
        row(Family.STATE, b"\x03" + number(2), number(4)),
    ]
    log = [row(Family.ENTRIES, number(n), b"entry") for n in (2, 3)]
    place = struct.pack(">QQIIqq", 2, 0, 4, 5, 6, 7)
    manifest = struct.pack(">QQQII", 9, 4, 3, 0x364B3FB7, 1024)
    return [
        b"".join(state + log),
        row(Family.OFFSETS, number(3), place),
        row(Family.CHECKPOINTS, b"\x01" + number(9), manifest)
        + row(Family.CHECKPOINTS, b"\x02" + number(9) + bytes(4), b"abc"),
    ]


def identity(data: bytes) -> None:
    try:
        parse(Path("data"), data)
    except IdentityError as error:
        expect(error, "data")


def identity_seeds() -> list[bytes]:
    known = b'"cluster_id": "c", "node_id": 1, "directory_id": 5'
    return [
        b'{"format": 3, %b}\n' % known,
        b'{"format": 4, %b, "store": "made"}\n' % known,
        b'{"format": 5, %b, "store": "made", "members": [1, 2], "founding": 7}\n' % known,
        b"[1]",
        b"1",
    ]


SALT = 0x5A17  # of the segment that the record stands in


def commit_log(data: bytes) -> None:
    if len(data) < HEAD_BYTES:
        return
    head = parse_head(data[:HEAD_BYTES], SALT)
    if head is None:
        return
    body = data[HEAD_BYTES : HEAD_BYTES + head.body_bytes]
    if not is_whole(head, body):
        return
    try:
        operations = list(decode(head, body))
    except CorruptionError as error:
        expect(error, f"record {head.number}")
        return
    for operation in operations:
        assert operation.value_at + operation.value_bytes <= head.record_bytes


def commit_log_seeds() -> list[bytes]:
    entry = (Family.ENTRIES, bytes(16), b"an entry", False)
    ranged = (Family.OFFSETS, b"a", b"b", True)
    seeds = [encode([entry, ranged]), encode([(Family.STATE, b"k", None, False)])]
    return [b"".join([seed.head(SALT, 7, 3), seed.body, *seed.values]) for seed in seeds]


def as_whole(data: bytes) -> bytes:
    """Sets the head for a body that reaches to the end, or to its stated length."""
    if len(data) < HEAD_BYTES:
        return data
    body_bytes = min(int.from_bytes(data[12:16]), len(data) - HEAD_BYTES)
    rest = body_bytes.to_bytes(4) + data[16:]
    crc = crc32c(rest[: HEAD_BYTES - 12 + body_bytes])
    return SALT.to_bytes(8) + crc.to_bytes(4) + rest


def usage(data: bytes) -> None:
    try:
        found = SegmentUsage.unpack(data)
    except CorruptionError as error:
        expect(error, "usage of a segment")
        return
    assert SegmentUsage.unpack(found.pack()).spans == found.spans
    for span in found.spans.values():
        assert 0 <= span.left(span.first) <= max(1, span.size)


def usage_seeds() -> list[bytes]:
    made = SegmentUsage()
    for index in range(3):
        made.note(bytes(8) + index.to_bytes(8), 100)
    made.note(bytes(7) + b"\x01" + bytes(8), 5)
    return [made.pack(), b""]


TARGETS = {
    target.name: target
    for target in (
        Target("frames", frames, frame_seeds, with_head_sum),
        Target("peer-port", peer_port.run, peer_port.seeds),
        Target("peer-port-tls", peer_port.run_behind_tls, peer_port.seeds),
        Target("certificate", identities.certificate, identities.certificates),
        Target("token", identities.token, identities.tokens),
        Target("peer-stream", peer_stream, peer_stream_seeds),
        Target("kafka", kafka_port.run, kafka_port.seeds, kafka_port.with_length),
        Target("kafka-login", kafka_port.run_login, kafka_port.login_seeds, kafka_port.with_length),
        Target("kafka-members", kafka_members, kafka_members_seeds),
        Target("payload", payload, payload_seeds),
        Target("codec", codec, codec_seeds),
        Target("kafka-batch", kafka_batch, kafka_seeds, with_head),
        Target("entry", entry, entry_seeds),
        Target("last-seen", last_seen, last_seen_seeds, with_crc),
        Target("metadata-load", metadata_load, metadata_seeds),
        Target("metadata-apply", metadata_apply, metadata_apply_seeds),
        Target("offsets-load", offsets_load, offsets_seeds),
        Target("offsets-apply", offsets_apply, offsets_seeds),
        Target("stored", stored, stored_seeds),
        Target("identity", identity, identity_seeds),
        Target("commit-log", commit_log, commit_log_seeds, as_whole),
        Target("usage", usage, usage_seeds),
    )
}
