from cluster.v1 import transactions_pb2 as _transactions_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MessageType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_TYPE_UNSPECIFIED: _ClassVar[MessageType]
    MESSAGE_TYPE_APPEND: _ClassVar[MessageType]
    MESSAGE_TYPE_APPEND_REPLY: _ClassVar[MessageType]
    MESSAGE_TYPE_VOTE: _ClassVar[MessageType]
    MESSAGE_TYPE_VOTE_REPLY: _ClassVar[MessageType]
    MESSAGE_TYPE_PRE_VOTE: _ClassVar[MessageType]
    MESSAGE_TYPE_PRE_VOTE_REPLY: _ClassVar[MessageType]
    MESSAGE_TYPE_TIMEOUT_NOW: _ClassVar[MessageType]
    MESSAGE_TYPE_LEADER: _ClassVar[MessageType]
    MESSAGE_TYPE_BEAT: _ClassVar[MessageType]
    MESSAGE_TYPE_BEAT_REPLY: _ClassVar[MessageType]
    MESSAGE_TYPE_CHECKPOINT_AT: _ClassVar[MessageType]
    MESSAGE_TYPE_STATE_CHECKSUM: _ClassVar[MessageType]
    MESSAGE_TYPE_CLOCK_PROBE: _ClassVar[MessageType]
    MESSAGE_TYPE_CLOCK_REPLY: _ClassVar[MessageType]
    MESSAGE_TYPE_REMOVED: _ClassVar[MessageType]
    MESSAGE_TYPE_LEADERS_SINCE: _ClassVar[MessageType]
    MESSAGE_TYPE_LEADER_CHANGES: _ClassVar[MessageType]
MESSAGE_TYPE_UNSPECIFIED: MessageType
MESSAGE_TYPE_APPEND: MessageType
MESSAGE_TYPE_APPEND_REPLY: MessageType
MESSAGE_TYPE_VOTE: MessageType
MESSAGE_TYPE_VOTE_REPLY: MessageType
MESSAGE_TYPE_PRE_VOTE: MessageType
MESSAGE_TYPE_PRE_VOTE_REPLY: MessageType
MESSAGE_TYPE_TIMEOUT_NOW: MessageType
MESSAGE_TYPE_LEADER: MessageType
MESSAGE_TYPE_BEAT: MessageType
MESSAGE_TYPE_BEAT_REPLY: MessageType
MESSAGE_TYPE_CHECKPOINT_AT: MessageType
MESSAGE_TYPE_STATE_CHECKSUM: MessageType
MESSAGE_TYPE_CLOCK_PROBE: MessageType
MESSAGE_TYPE_CLOCK_REPLY: MessageType
MESSAGE_TYPE_REMOVED: MessageType
MESSAGE_TYPE_LEADERS_SINCE: MessageType
MESSAGE_TYPE_LEADER_CHANGES: MessageType

class Hello(_message.Message):
    __slots__ = ("cluster_id", "node_id", "protocol_version", "incarnation", "refused", "directory_id", "members", "founding", "newest_protocol_version", "oldest_cluster_version", "newest_cluster_version", "features", "release", "insecure", "registration", "known_registration", "registration_number", "instance", "peer_address")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    FOUNDING_FIELD_NUMBER: _ClassVar[int]
    NEWEST_PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    OLDEST_CLUSTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    NEWEST_CLUSTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    INSECURE_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    KNOWN_REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    PEER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    node_id: int
    protocol_version: int
    incarnation: int
    refused: str
    directory_id: int
    members: _containers.RepeatedScalarFieldContainer[int]
    founding: int
    newest_protocol_version: int
    oldest_cluster_version: int
    newest_cluster_version: int
    features: _containers.RepeatedScalarFieldContainer[str]
    release: str
    insecure: bool
    registration: int
    known_registration: int
    registration_number: int
    instance: int
    peer_address: str
    def __init__(self, cluster_id: _Optional[str] = ..., node_id: _Optional[int] = ..., protocol_version: _Optional[int] = ..., incarnation: _Optional[int] = ..., refused: _Optional[str] = ..., directory_id: _Optional[int] = ..., members: _Optional[_Iterable[int]] = ..., founding: _Optional[int] = ..., newest_protocol_version: _Optional[int] = ..., oldest_cluster_version: _Optional[int] = ..., newest_cluster_version: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., release: _Optional[str] = ..., insecure: _Optional[bool] = ..., registration: _Optional[int] = ..., known_registration: _Optional[int] = ..., registration_number: _Optional[int] = ..., instance: _Optional[int] = ..., peer_address: _Optional[str] = ...) -> None: ...

class Join(_message.Message):
    __slots__ = ("cluster_id", "node_id", "directory_id", "address", "peer_address", "instance")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PEER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    node_id: int
    directory_id: int
    address: str
    peer_address: str
    instance: int
    def __init__(self, cluster_id: _Optional[str] = ..., node_id: _Optional[int] = ..., directory_id: _Optional[int] = ..., address: _Optional[str] = ..., peer_address: _Optional[str] = ..., instance: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("instance", "members", "founding", "why_not", "refused", "founds", "peers")
    class PeersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    FOUNDING_FIELD_NUMBER: _ClassVar[int]
    WHY_NOT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    FOUNDS_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    instance: int
    members: _containers.RepeatedScalarFieldContainer[int]
    founding: int
    why_not: str
    refused: bool
    founds: bool
    peers: _containers.ScalarMap[int, str]
    def __init__(self, instance: _Optional[int] = ..., members: _Optional[_Iterable[int]] = ..., founding: _Optional[int] = ..., why_not: _Optional[str] = ..., refused: _Optional[bool] = ..., founds: _Optional[bool] = ..., peers: _Optional[_Mapping[int, str]] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("hello", "join", "welcome", "messages", "request", "response")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    join: Join
    welcome: Welcome
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    request: Request
    response: Response
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., join: _Optional[_Union[Join, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., request: _Optional[_Union[Request, _Mapping]] = ..., response: _Optional[_Union[Response, _Mapping]] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("term", "size", "crc32c")
    TERM_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    term: int
    size: int
    crc32c: int
    def __init__(self, term: _Optional[int] = ..., size: _Optional[int] = ..., crc32c: _Optional[int] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("group", "type", "term", "index", "log_term", "commit", "entries", "success", "leader", "rejected", "groups", "terms", "commits", "checksum", "sent_us", "wall_ms", "disagrees", "sick", "commit_term", "version", "from_instance", "to_instance", "nodes", "process", "since")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LOG_TERM_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    SENT_US_FIELD_NUMBER: _ClassVar[int]
    WALL_MS_FIELD_NUMBER: _ClassVar[int]
    DISAGREES_FIELD_NUMBER: _ClassVar[int]
    SICK_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TERM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FROM_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    TO_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    group: int
    type: MessageType
    term: int
    index: int
    log_term: int
    commit: int
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    success: bool
    leader: int
    rejected: int
    groups: _containers.RepeatedScalarFieldContainer[int]
    terms: _containers.RepeatedScalarFieldContainer[int]
    commits: _containers.RepeatedScalarFieldContainer[int]
    checksum: int
    sent_us: int
    wall_ms: int
    disagrees: bool
    sick: bool
    commit_term: int
    version: int
    from_instance: int
    to_instance: int
    nodes: _containers.RepeatedScalarFieldContainer[int]
    process: int
    since: int
    def __init__(self, group: _Optional[int] = ..., type: _Optional[_Union[MessageType, str]] = ..., term: _Optional[int] = ..., index: _Optional[int] = ..., log_term: _Optional[int] = ..., commit: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., success: _Optional[bool] = ..., leader: _Optional[int] = ..., rejected: _Optional[int] = ..., groups: _Optional[_Iterable[int]] = ..., terms: _Optional[_Iterable[int]] = ..., commits: _Optional[_Iterable[int]] = ..., checksum: _Optional[int] = ..., sent_us: _Optional[int] = ..., wall_ms: _Optional[int] = ..., disagrees: _Optional[bool] = ..., sick: _Optional[bool] = ..., commit_term: _Optional[int] = ..., version: _Optional[int] = ..., from_instance: _Optional[int] = ..., to_instance: _Optional[int] = ..., nodes: _Optional[_Iterable[int]] = ..., process: _Optional[int] = ..., since: _Optional[int] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("id", "propose_metadata", "snapshot_part", "confirm_runs", "write_markers", "keep_alive", "describe_runs", "describe_replicas", "locate_offsets")
    ID_FIELD_NUMBER: _ClassVar[int]
    PROPOSE_METADATA_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_PART_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_RUNS_FIELD_NUMBER: _ClassVar[int]
    WRITE_MARKERS_FIELD_NUMBER: _ClassVar[int]
    KEEP_ALIVE_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_RUNS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LOCATE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    id: int
    propose_metadata: ProposeMetadataRequest
    snapshot_part: SnapshotPart
    confirm_runs: ConfirmRunsRequest
    write_markers: WriteMarkersRequest
    keep_alive: KeepAliveRequest
    describe_runs: DescribeRunsRequest
    describe_replicas: DescribeReplicasRequest
    locate_offsets: LocateOffsetsRequest
    def __init__(self, id: _Optional[int] = ..., propose_metadata: _Optional[_Union[ProposeMetadataRequest, _Mapping]] = ..., snapshot_part: _Optional[_Union[SnapshotPart, _Mapping]] = ..., confirm_runs: _Optional[_Union[ConfirmRunsRequest, _Mapping]] = ..., write_markers: _Optional[_Union[WriteMarkersRequest, _Mapping]] = ..., keep_alive: _Optional[_Union[KeepAliveRequest, _Mapping]] = ..., describe_runs: _Optional[_Union[DescribeRunsRequest, _Mapping]] = ..., describe_replicas: _Optional[_Union[DescribeReplicasRequest, _Mapping]] = ..., locate_offsets: _Optional[_Union[LocateOffsetsRequest, _Mapping]] = ...) -> None: ...

class Response(_message.Message):
    __slots__ = ("id", "propose_metadata", "snapshot_part", "confirm_runs", "write_markers", "keep_alive", "describe_runs", "describe_replicas", "locate_offsets", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    PROPOSE_METADATA_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_PART_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_RUNS_FIELD_NUMBER: _ClassVar[int]
    WRITE_MARKERS_FIELD_NUMBER: _ClassVar[int]
    KEEP_ALIVE_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_RUNS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LOCATE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: int
    propose_metadata: ProposeMetadataResponse
    snapshot_part: SnapshotResult
    confirm_runs: ConfirmRunsResponse
    write_markers: WriteMarkersResponse
    keep_alive: KeepAliveResponse
    describe_runs: DescribeRunsResponse
    describe_replicas: DescribeReplicasResponse
    locate_offsets: LocateOffsetsResponse
    error: str
    def __init__(self, id: _Optional[int] = ..., propose_metadata: _Optional[_Union[ProposeMetadataResponse, _Mapping]] = ..., snapshot_part: _Optional[_Union[SnapshotResult, _Mapping]] = ..., confirm_runs: _Optional[_Union[ConfirmRunsResponse, _Mapping]] = ..., write_markers: _Optional[_Union[WriteMarkersResponse, _Mapping]] = ..., keep_alive: _Optional[_Union[KeepAliveResponse, _Mapping]] = ..., describe_runs: _Optional[_Union[DescribeRunsResponse, _Mapping]] = ..., describe_replicas: _Optional[_Union[DescribeReplicasResponse, _Mapping]] = ..., locate_offsets: _Optional[_Union[LocateOffsetsResponse, _Mapping]] = ..., error: _Optional[str] = ...) -> None: ...

class SnapshotPart(_message.Message):
    __slots__ = ("group", "term", "index", "index_term", "size", "checksum", "offset", "data", "configuration", "to_instance")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    INDEX_TERM_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    TO_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    group: int
    term: int
    index: int
    index_term: int
    size: int
    checksum: int
    offset: int
    data: bytes
    configuration: bytes
    to_instance: int
    def __init__(self, group: _Optional[int] = ..., term: _Optional[int] = ..., index: _Optional[int] = ..., index_term: _Optional[int] = ..., size: _Optional[int] = ..., checksum: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., configuration: _Optional[bytes] = ..., to_instance: _Optional[int] = ...) -> None: ...

class SnapshotResult(_message.Message):
    __slots__ = ("installed", "refused", "term")
    INSTALLED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    installed: bool
    refused: str
    term: int
    def __init__(self, installed: _Optional[bool] = ..., refused: _Optional[str] = ..., term: _Optional[int] = ...) -> None: ...

class ProposeMetadataRequest(_message.Message):
    __slots__ = ("command",)
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    command: bytes
    def __init__(self, command: _Optional[bytes] = ...) -> None: ...

class ProposeMetadataResponse(_message.Message):
    __slots__ = ("result", "not_leader", "leader_id")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    NOT_LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    result: bytes
    not_leader: bool
    leader_id: int
    def __init__(self, result: _Optional[bytes] = ..., not_leader: _Optional[bool] = ..., leader_id: _Optional[int] = ...) -> None: ...

class ConfirmRunsRequest(_message.Message):
    __slots__ = ("transaction_id", "groups", "runs", "only_winners", "all_runs")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    ONLY_WINNERS_FIELD_NUMBER: _ClassVar[int]
    ALL_RUNS_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    groups: _containers.RepeatedScalarFieldContainer[int]
    runs: _containers.RepeatedCompositeFieldContainer[_transactions_pb2.ExpectedRun]
    only_winners: bool
    all_runs: bool
    def __init__(self, transaction_id: _Optional[int] = ..., groups: _Optional[_Iterable[int]] = ..., runs: _Optional[_Iterable[_Union[_transactions_pb2.ExpectedRun, _Mapping]]] = ..., only_winners: _Optional[bool] = ..., all_runs: _Optional[bool] = ...) -> None: ...

class ConfirmRunsResponse(_message.Message):
    __slots__ = ("runs", "differs", "not_led")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    DIFFERS_FIELD_NUMBER: _ClassVar[int]
    NOT_LED_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[_transactions_pb2.ExpectedRun]
    differs: str
    not_led: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, runs: _Optional[_Iterable[_Union[_transactions_pb2.ExpectedRun, _Mapping]]] = ..., differs: _Optional[str] = ..., not_led: _Optional[_Iterable[int]] = ...) -> None: ...

class WriteMarkersRequest(_message.Message):
    __slots__ = ("markers",)
    MARKERS_FIELD_NUMBER: _ClassVar[int]
    markers: _containers.RepeatedCompositeFieldContainer[GroupMarker]
    def __init__(self, markers: _Optional[_Iterable[_Union[GroupMarker, _Mapping]]] = ...) -> None: ...

class GroupMarker(_message.Message):
    __slots__ = ("group", "marker")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MARKER_FIELD_NUMBER: _ClassVar[int]
    group: int
    marker: _transactions_pb2.Marker
    def __init__(self, group: _Optional[int] = ..., marker: _Optional[_Union[_transactions_pb2.Marker, _Mapping]] = ...) -> None: ...

class WriteMarkersResponse(_message.Message):
    __slots__ = ("parts",)
    PARTS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[_transactions_pb2.PartRecord]
    def __init__(self, parts: _Optional[_Iterable[_Union[_transactions_pb2.PartRecord, _Mapping]]] = ...) -> None: ...

class KeepAliveRequest(_message.Message):
    __slots__ = ("transaction_ids",)
    TRANSACTION_IDS_FIELD_NUMBER: _ClassVar[int]
    transaction_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, transaction_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class KeepAliveResponse(_message.Message):
    __slots__ = ("ended", "not_leader")
    ENDED_FIELD_NUMBER: _ClassVar[int]
    NOT_LEADER_FIELD_NUMBER: _ClassVar[int]
    ended: _containers.RepeatedScalarFieldContainer[int]
    not_leader: bool
    def __init__(self, ended: _Optional[_Iterable[int]] = ..., not_leader: _Optional[bool] = ...) -> None: ...

class DescribeRunsRequest(_message.Message):
    __slots__ = ("transaction_ids",)
    TRANSACTION_IDS_FIELD_NUMBER: _ClassVar[int]
    transaction_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, transaction_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class DescribeRunsResponse(_message.Message):
    __slots__ = ("staged",)
    STAGED_FIELD_NUMBER: _ClassVar[int]
    staged: _containers.RepeatedCompositeFieldContainer[StagedHere]
    def __init__(self, staged: _Optional[_Iterable[_Union[StagedHere, _Mapping]]] = ...) -> None: ...

class DescribeReplicasRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeReplicasResponse(_message.Message):
    __slots__ = ("groups", "bytes", "waiting", "lags")
    class WaitingEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    LAGS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[int]
    bytes: _containers.RepeatedScalarFieldContainer[int]
    waiting: _containers.ScalarMap[int, str]
    lags: _containers.RepeatedCompositeFieldContainer[ReplicaLag]
    def __init__(self, groups: _Optional[_Iterable[int]] = ..., bytes: _Optional[_Iterable[int]] = ..., waiting: _Optional[_Mapping[int, str]] = ..., lags: _Optional[_Iterable[_Union[ReplicaLag, _Mapping]]] = ...) -> None: ...

class ReplicaLag(_message.Message):
    __slots__ = ("group", "node_id", "entries")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    group: int
    node_id: int
    entries: int
    def __init__(self, group: _Optional[int] = ..., node_id: _Optional[int] = ..., entries: _Optional[int] = ...) -> None: ...

class LocateOffsetsRequest(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[OffsetsOfGroup]
    def __init__(self, partitions: _Optional[_Iterable[_Union[OffsetsOfGroup, _Mapping]]] = ...) -> None: ...

class OffsetsOfGroup(_message.Message):
    __slots__ = ("group", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: int
    offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[int] = ..., offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class LocateOffsetsResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[LocatedOffsets]
    def __init__(self, partitions: _Optional[_Iterable[_Union[LocatedOffsets, _Mapping]]] = ...) -> None: ...

class LocatedOffsets(_message.Message):
    __slots__ = ("group", "log_start_offset", "high_watermark", "newest_ms", "times_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    NEWEST_MS_FIELD_NUMBER: _ClassVar[int]
    TIMES_MS_FIELD_NUMBER: _ClassVar[int]
    group: int
    log_start_offset: int
    high_watermark: int
    newest_ms: int
    times_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., newest_ms: _Optional[int] = ..., times_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class StagedHere(_message.Message):
    __slots__ = ("transaction_id", "group", "records", "bytes", "offsets")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    group: int
    records: int
    bytes: int
    offsets: int
    def __init__(self, transaction_id: _Optional[int] = ..., group: _Optional[int] = ..., records: _Optional[int] = ..., bytes: _Optional[int] = ..., offsets: _Optional[int] = ...) -> None: ...
