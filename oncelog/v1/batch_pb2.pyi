from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Codec(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CODEC_NONE: _ClassVar[Codec]
    CODEC_ZSTD: _ClassVar[Codec]
    CODEC_LZ4: _ClassVar[Codec]
    CODEC_KAFKA_V2: _ClassVar[Codec]
CODEC_NONE: Codec
CODEC_ZSTD: Codec
CODEC_LZ4: Codec
CODEC_KAFKA_V2: Codec

class TopicPartition(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class BatchHeader(_message.Message):
    __slots__ = ("topic", "partition", "producer_id", "epoch", "base_sequence", "record_count", "last_sequence", "prev_sequence", "expected_offset", "transaction_id", "codec", "crc32c", "max_timestamp_us")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PREV_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_US_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    producer_id: int
    epoch: int
    base_sequence: int
    record_count: int
    last_sequence: int
    prev_sequence: int
    expected_offset: int
    transaction_id: int
    codec: Codec
    crc32c: int
    max_timestamp_us: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., base_sequence: _Optional[int] = ..., record_count: _Optional[int] = ..., last_sequence: _Optional[int] = ..., prev_sequence: _Optional[int] = ..., expected_offset: _Optional[int] = ..., transaction_id: _Optional[int] = ..., codec: _Optional[_Union[Codec, str]] = ..., crc32c: _Optional[int] = ..., max_timestamp_us: _Optional[int] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("header", "payload", "id", "lease_token")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    header: BatchHeader
    payload: bytes
    id: int
    lease_token: bytes
    def __init__(self, header: _Optional[_Union[BatchHeader, _Mapping]] = ..., payload: _Optional[bytes] = ..., id: _Optional[int] = ..., lease_token: _Optional[bytes] = ...) -> None: ...

class StoredBatch(_message.Message):
    __slots__ = ("header", "payload", "base_offset", "append_time_ms", "carried")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    CARRIED_FIELD_NUMBER: _ClassVar[int]
    header: BatchHeader
    payload: bytes
    base_offset: int
    append_time_ms: int
    carried: bool
    def __init__(self, header: _Optional[_Union[BatchHeader, _Mapping]] = ..., payload: _Optional[bytes] = ..., base_offset: _Optional[int] = ..., append_time_ms: _Optional[int] = ..., carried: _Optional[bool] = ...) -> None: ...
