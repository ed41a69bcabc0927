"""Settings of topics under Kafka's names: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs.

session --> Configs --the services' AlterTopic--> ClusterService
             '-- SETTINGS: Kafka's name <-> the field of TopicConfig

A name that is not in SETTINGS is refused, and so is another value of FIXED: a client must not
believe in a setting that does nothing. With the node's setting `kafka_compact=keep` a topic of
`cleanup.policy=compact` is one without a limit of retention, and is described as that; else nodes
compact it, and COMPACTION has its settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from cluster.kafka.errors import (
    Error,
    InvalidConfigError,
    of_error,
    of_missing_topic,
    text_of,
)
from cluster.kafka.messages import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    OtherAlterableConfig,
)
from cluster.kafka.needs import Rights
from cluster.kafka.versions import Head
from cluster.metadata.topics import UNLIMITED, TopicSettings, is_internal
from cluster.services.admin.cluster_service import ClusterService
from cluster.services.context import NodeContext
from cluster.services.requests import Deadline, invalid
from cluster.services.slices import in_slices
from oncelog.v1 import cluster_pb2 as pb

SLICE = 50  # topics between two turns of other tasks
TOPIC, BROKER = 2, 4  # kinds of resources
STRING, INT, LONG, DOUBLE = 2, 3, 5, 6  # types of values
MAX_LONG = 2**63 - 1
SET_HERE, DEFAULT = 1, 5  # sources of values
SET, DELETE = 0, 1  # operations of IncrementalAlterConfigs
EXPECTED_OFFSETS, FORMATS = "oncelog.expected.offsets", "oncelog.formats"
MAX_MESSAGE = "max.message.bytes"


class TopicSetting(NamedTuple):
    """A setting's field of TopicConfig. words: its values, if they are no numbers."""

    field: str
    kind: int
    words: tuple[str, ...] = ()

    def read(self, name: str, text: str) -> int | float:
        """Return the field's value. Raises InvalidConfigError."""
        try:
            if self.kind == DOUBLE:
                return float(text)
            words = ",".join(sorted(word.strip() for word in text.split(",")))
            return self.words.index(words) if self.words else int(text)
        except ValueError:
            wanted = ", ".join(self.words) or "a number"
            raise _wrong(name, f"{text!r} must be {wanted}") from None

    def write(self, settings: TopicSettings) -> str:
        value = getattr(settings, self.field)
        return self.words[value] if self.words else str(value)


class LimitSetting(TopicSetting):
    """A setting that is -1 without a limit. Clients also send the highest number for that."""

    def read(self, name: str, text: str) -> int | float:
        number = super().read(name, text)
        return UNLIMITED if number == MAX_LONG else number


class EndlessSetting(LimitSetting):
    """A limit that Kafka shows as the highest number if there is none."""

    def write(self, settings: TopicSettings) -> str:
        text = super().write(settings)
        return str(MAX_LONG) if text == str(UNLIMITED) else text


SETTINGS: Mapping[str, TopicSetting] = {
    "retention.ms": LimitSetting("retention_ms", LONG),
    "retention.bytes": LimitSetting("retention_bytes", LONG),
    MAX_MESSAGE: TopicSetting("max_batch_bytes", INT),
    EXPECTED_OFFSETS: TopicSetting("expected_offsets", STRING, ("checked", "ignored", "required")),
    FORMATS: TopicSetting("formats", STRING, ("columnar", "kafka", "both")),
}
CLEANUP, DELETE_ONLY, COMPACT = "cleanup.policy", "delete", "compact"
# Settings that take the place of CLEANUP in FIXED, where nodes compact topics.
COMPACTION: Mapping[str, TopicSetting] = {
    CLEANUP: TopicSetting("cleanup_policy", STRING, ("delete", "compact", "compact,delete")),
    "delete.retention.ms": TopicSetting("delete_retention_ms", LONG),
    "max.compaction.lag.ms": EndlessSetting("max_compaction_lag_ms", LONG),
    "min.cleanable.dirty.ratio": TopicSetting("min_cleanable_dirty_ratio", DOUBLE),
    "min.compaction.lag.ms": TopicSetting("min_compaction_lag_ms", LONG),
}
# Settings of Kafka with the one value that holds here.
FIXED: Mapping[str, str] = {
    CLEANUP: DELETE_ONLY,
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
}
# With kafka_compact=keep, for clients that set them beside it: they say when to compact, and in
# files of which size.
UNUSED = frozenset(
    {"segment.bytes", "segment.ms", "delete.retention.ms", "min.cleanable.dirty.ratio",
     "min.compaction.lag.ms", "max.compaction.lag.ms"}
)  # fmt: skip
# Taken beside a cleanup.policy, where nodes compact: Kafka Streams sets both for each topic of its
# own, also for those that are not compacted.
FILE_SIZES = frozenset({"segment.bytes", "segment.ms"})
KEEP = "keep"  # the value of kafka_compact
KEPT_TEXT = "kafka_compact=keep: all records of this topic are kept."


def keeps_compacted(node: NodeContext) -> bool:
    """Return whether a topic may have cleanup.policy=compact, which keeps all of its records."""
    return node.config.kafka_compact == KEEP


def settings_of(keeps_compacted: bool) -> Mapping[str, TopicSetting]:
    """Return the settings that a topic has."""
    return SETTINGS if keeps_compacted else {**SETTINGS, **COMPACTION}


def created(values: Mapping[str, str | None], *, keeps_compacted: bool = False) -> pb.TopicConfig:
    """Return a new topic's settings. Raises InvalidConfigError."""
    config = pb.TopicConfig(formats=pb.TOPIC_FORMATS_KAFKA)
    _fill(config, values, keeps_compacted=keeps_compacted)
    return config


def _fill(
    config: pb.TopicConfig, values: Mapping[str, str | None], *, keeps_compacted: bool
) -> None:
    """Write settings into `config`. Raises InvalidConfigError."""
    policies = {one.strip() for one in (values.get(CLEANUP) or "").split(",")}
    is_compacted = COMPACT in policies <= {COMPACT, DELETE_ONLY}
    is_kept = is_compacted and keeps_compacted
    unused = UNUSED if keeps_compacted else FILE_SIZES if CLEANUP in values else frozenset()
    settings = settings_of(keeps_compacted)
    for name, value in values.items():
        if not (is_kept and name == CLEANUP) and name not in unused:
            _put(config, name, value, settings)
    # With "delete" beside it the topic has a limit of age, which holds here as well.
    if is_kept and DELETE_ONLY not in policies:
        config.retention_ms = config.retention_bytes = UNLIMITED


def _check_deletes(settings: TopicSettings, config: pb.TopicConfig) -> None:
    """Check that a topic without any limit gets a policy with it. Raises InvalidConfigError.

    The policy alone would change nothing: the topic would be described as compacted as before.
    """
    named = config.HasField("retention_ms") or config.HasField("retention_bytes")
    if _is_unlimited(settings) and not named:
        raise _wrong(CLEANUP, "the topic has no limit of retention; set retention.ms beside it")


def _is_unlimited(settings: TopicSettings) -> bool:
    return settings.retention_ms == settings.retention_bytes == UNLIMITED


def _put(
    config: pb.TopicConfig, name: str, value: str | None, settings: Mapping[str, TopicSetting]
) -> None:
    """Write one setting into `config`; no value: its default. Raises InvalidConfigError."""
    setting = settings.get(name)
    if setting is None:
        fixed = FIXED.get(name)
        if fixed is None:
            raise _wrong(name, f"not supported; a topic has {', '.join(settings)}")
        if value not in (None, fixed):
            raise _wrong(name, f"{value!r} is not supported, only {fixed!r}")
        return
    text = setting.write(TopicSettings()) if value is None else value
    number = setting.read(name, text)
    try:
        setattr(config, setting.field, number)
    except ValueError:  # beyond 64 bits, or 32
        raise _wrong(name, f"{text} is out of range") from None


def _wrong(name: str, text: str) -> InvalidConfigError:
    return InvalidConfigError(f"{name}: {text}", field=name)


class Configs:
    """Settings of topics, for one node."""

    def __init__(self, service: ClusterService) -> None:
        self._service = service
        self._metadata = service.node.metadata
        self._keeps_compacted = keeps_compacted(service.node)

    async def describe(
        self, rights: Rights, head: Head, request: DescribeConfigsRequest
    ) -> DescribeConfigsResponse:
        answer = DescribeConfigsResponse()
        async for resource in in_slices(request.resources, SLICE):
            answer.results.append(self._described(rights, resource))
        return answer

    def _described(self, rights: Rights, wanted: DescribeConfigsResource) -> DescribeConfigsResult:
        name = wanted.resource_name
        result = DescribeConfigsResult(0, None, wanted.resource_type, name)
        if wanted.resource_type == BROKER:
            return result  # a node's settings are in its own file
        topic = None if is_internal(name) else self._metadata.topic(name)
        refused = rights.refusal(DESCRIBE_CONFIGS, name)
        if wanted.resource_type != TOPIC:
            result.error_code = Error.INVALID_REQUEST
        elif refused is not None:
            result.error_code, result.error_message = of_error(refused), text_of(refused)
        elif topic is None:
            result.error_code = of_missing_topic(self._service.node.controller_id)
        else:
            keys = wanted.configuration_keys
            values = described(topic.settings, keeps_compacted=self._keeps_compacted)
            result.configs = [one for one in values if keys is None or one.name in keys]
        return result

    async def alter(
        self, rights: Rights, head: Head, request: AlterConfigsRequest
    ) -> AlterConfigsResponse:
        """Set all settings; those that are not named get their defaults."""
        answer, deadline = AlterConfigsResponse(), Deadline(0, self._service.node)
        async for resource in in_slices(request.resources, SLICE):
            known = settings_of(self._keeps_compacted)
            values = dict.fromkeys(known) | {one.name: one.value for one in resource.configs}
            # The stored batches have their format: no default can change it.
            if values[FORMATS] is None:
                del values[FORMATS]
            key = resource.resource_type, resource.resource_name
            work = partial(self._alter, *key, values, request.validate_only)
            done = await rights.changed(ALTER_CONFIGS, key[1], work, deadline)
            answer.responses.append(AlterConfigsResourceResponse(*done, *key))
        return answer

    async def alter_some(
        self, rights: Rights, head: Head, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        answer = IncrementalAlterConfigsResponse()
        deadline = Deadline(0, self._service.node)
        async for resource in in_slices(request.resources, SLICE):
            key = resource.resource_type, resource.resource_name
            work = partial(self._alter_some, *key, resource.configs, request.validate_only)
            done = await rights.changed(INCREMENTAL_ALTER_CONFIGS, key[1], work, deadline)
            answer.responses.append(AlterConfigsResourceResponse(*done, *key))
        return answer

    async def _alter_some(
        self, kind: int, name: str, changes: Sequence[OtherAlterableConfig], is_trial: bool
    ) -> None:
        for one in changes:
            if one.config_operation not in (SET, DELETE):
                raise _wrong(one.name, "only lists are appended to and subtracted from")
        values = {one.name: one.value if one.config_operation == SET else None for one in changes}
        await self._alter(kind, name, values, is_trial)

    async def _alter(
        self, kind: int, name: str, values: Mapping[str, str | None], is_trial: bool
    ) -> None:
        if kind != TOPIC:
            raise invalid("resource_type", f"{kind} must be {TOPIC}, a topic")
        config = pb.TopicConfig()
        _fill(config, values, keeps_compacted=self._keeps_compacted)
        if MAX_MESSAGE in values and values[MAX_MESSAGE] is None:
            config.max_batch_bytes = self._service.default_max_batch_bytes
        topic = self._metadata.topic(name)
        if self._keeps_compacted and topic is not None and CLEANUP in values:
            _check_deletes(topic.settings, config)
        request = pb.AlterTopicRequest(
            name=name, config=config, set_expected_offsets=EXPECTED_OFFSETS in values
        )
        if is_trial:
            self._service.alter_command(request)
        else:
            await self._service.AlterTopic(request)


def described(
    settings: TopicSettings, *, keeps_compacted: bool
) -> Iterator[DescribeConfigsResourceResult]:
    defaults = TopicSettings()
    settings_here = settings_of(keeps_compacted)
    for name, setting in settings_here.items():
        value = setting.write(settings)
        source = DEFAULT if value == setting.write(defaults) else SET_HERE
        yield DescribeConfigsResourceResult(
            name, value, False, source, False, [], setting.kind, None
        )
    for name, value in FIXED.items():
        if name in settings_here:
            continue
        if name == CLEANUP and _is_unlimited(settings):
            yield DescribeConfigsResourceResult(
                name, COMPACT, False, SET_HERE, False, [], STRING, KEPT_TEXT
            )
            continue
        yield DescribeConfigsResourceResult(name, value, True, DEFAULT, False, [], STRING, None)
