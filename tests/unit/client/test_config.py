"""Settings: rejected values with the names at fault, and Kafka's dotted names."""

from __future__ import annotations

import pickle

import pytest

from oncelog import errors
from oncelog.config import (
    AdminConfig,
    ConsumerConfig,
    ProducerConfig,
    parse_bootstrap,
)
from oncelog.dotted import settings_from_dotted
from oncelog.types import ProducerIdentity, TopicPartition


def producer(**settings) -> ProducerConfig:
    return ProducerConfig.from_settings({"bootstrap_servers": "a:1", **settings})


def test_defaults_are_sound():
    config = producer()
    assert config.bootstrap_servers == ("a:1",)
    assert config.enable_idempotence
    assert config.acks == "all"
    ConsumerConfig.from_settings({"bootstrap_servers": ["a:1", "b:2"]})
    AdminConfig.from_settings({"bootstrap_servers": "a:1"})


def test_servers_that_are_not_given_come_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", "c:3, d:4")
    assert AdminConfig.from_settings({}).bootstrap_servers == ("c:3", "d:4")
    assert AdminConfig.from_settings({"bootstrap_servers": "a:1"}).bootstrap_servers == ("a:1",)
    empty: list[object] = ["", []]
    for none in empty:
        with pytest.raises(errors.ConfigError, match="bootstrap_servers is empty"):
            AdminConfig.from_settings({"bootstrap_servers": none})
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", "nowhere")
    with pytest.raises(errors.ConfigError, match="ONCELOG_BOOTSTRAP: 'nowhere' is not host:port"):
        ProducerConfig()
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", "")
    assert ConsumerConfig().bootstrap_servers == ("127.0.0.1:7001",)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a:1", ("a:1",)),
        (" a:1 , b:2,a:1", ("a:1", "b:2")),
        (["[::1]:7001"], ("[::1]:7001",)),
        (("a:1,b:2", "c:3"), ("a:1", "b:2", "c:3")),
    ],
)
def test_bootstrap(given: object, expected: tuple):
    assert parse_bootstrap(given) == expected


@pytest.mark.parametrize("given", ["", ",", "host", "host:", ":1", "h:0", "h:65536", "h:x", 5, []])
def test_bad_bootstrap(given: object):
    with pytest.raises(errors.ConfigError) as raised:
        parse_bootstrap(given)
    assert raised.value.settings == ("bootstrap_servers",)


CONTRADICTIONS: list[tuple[dict, tuple[str, ...]]] = [
    ({"acks": 1}, ("acks", "enable_idempotence")),
    ({"acks": "0"}, ("acks", "enable_idempotence")),
    ({"acks": "0", "enable_idempotence": False}, ("acks",)),
    ({"retries": 0}, ("retries", "enable_idempotence")),
    ({"producer_name": "n", "enable_idempotence": False}, ("producer_name", "enable_idempotence")),
    ({"resume_from": ProducerIdentity(1), "producer_name": "n"}, ("resume_from", "producer_name")),
    (
        {"resume_from": ProducerIdentity(1), "enable_idempotence": False},
        ("resume_from", "enable_idempotence"),
    ),
    ({"batch_size": 2000, "buffer_memory": 1000}, ("batch_size", "buffer_memory")),
    (
        {"delivery_timeout_ms": 5000, "linger_ms": 1, "request_timeout_ms": 5000},
        ("delivery_timeout_ms", "linger_ms", "request_timeout_ms"),
    ),
    ({"compression_level": 3}, ("compression_level", "compression_type")),
    (
        {"retry_backoff_ms": 100, "retry_backoff_max_ms": 50},
        ("retry_backoff_max_ms", "retry_backoff_ms"),
    ),
]


@pytest.mark.parametrize(("settings", "names"), CONTRADICTIONS)
def test_contradictions_name_every_setting(settings: dict, names: tuple[str, ...]):
    with pytest.raises(errors.ConfigError) as raised:
        producer(**settings)
    assert raised.value.settings == names
    for name in names:
        assert name in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"linger_ms": -1}, "linger_ms"),
        ({"linger_ms": 1.5}, "linger_ms"),
        ({"linger_ms": True}, "linger_ms"),
        ({"batch_size": 10}, "batch_size"),
        ({"batch_size": 2**40, "buffer_memory": 2**41}, "batch_size"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"compression_type": "gzip"}, "compression_type"),
        ({"enable_idempotence": "yes"}, "enable_idempotence"),
        ({"partitioner": "murmur2"}, "partitioner"),
        ({"producer_name": ""}, "producer_name"),
        ({"producer_name": "x" * 300}, "producer_name"),
        ({"producer_name": "tab\t"}, "producer_name"),
        ({"resume_from": (1, 2)}, "resume_from"),
        ({"resume_from": ProducerIdentity(0)}, "resume_from.producer_id"),
        ({"resume_from": ProducerIdentity(1, -1)}, "resume_from.epoch"),
        (
            {"resume_from": ProducerIdentity(1, 0, {TopicPartition("t", 0): -1})},
            "resume_from.next_sequences[t-0]",
        ),
        ({"no_such_setting": 1}, "no_such_setting"),
        ({"group_id": "g"}, "group_id"),
    ],
)
def test_one_setting_is_named(settings: dict, name: str):
    with pytest.raises(errors.ConfigError) as raised:
        producer(**settings)
    assert raised.value.settings == (name,)
    assert name in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"auto_offset_reset": "first"}, ("auto_offset_reset",)),
        ({"isolation_level": "snapshot"}, ("isolation_level",)),
        ({"fetch_max_wait_ms": 10_000}, ("fetch_max_wait_ms", "request_timeout_ms")),
        ({"replica_node_id": 2}, ("replica_node_id", "any_replica")),
        ({"rack": ""}, ("rack",)),
        ({"rack": "a", "any_replica": True}, ("rack", "any_replica")),
        ({"linger_ms": 5}, ("linger_ms",)),
    ],
)
def test_consumer_settings(settings: dict, names: tuple[str, ...]):
    with pytest.raises(errors.ConfigError) as raised:
        ConsumerConfig.from_settings({"bootstrap_servers": "a:1", **settings})
    assert raised.value.settings == names


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_kafkas_isolation_levels_are_accepted_and_moot(level: str):
    dotted = {"bootstrap.servers": "a:1", "isolation.level": level}
    settings = settings_from_dotted(ConsumerConfig, dotted)
    assert ConsumerConfig.from_settings(settings).isolation_level == level


def test_dotted_names():
    settings = settings_from_dotted(
        ProducerConfig,
        {
            "bootstrap.servers": "a:1,b:2",
            "linger.ms": "7",
            "enable.idempotence": "true",
            "transactional.id": "pay-7",
            "max.in.flight.requests.per.connection": 3,
            "compression.type": "none",
            "acks": "-1",
        },
    )
    config = ProducerConfig.from_settings(settings)
    assert config.bootstrap_servers == ("a:1", "b:2")
    assert (config.linger_ms, config.producer_name, config.max_in_flight) == (7, "pay-7", 3)
    settings = settings_from_dotted(
        ConsumerConfig, {"bootstrap.servers": "a:1", "auto.offset.reset": "earliest"}
    )
    assert ConsumerConfig.from_settings(settings).auto_offset_reset == "earliest"


@pytest.mark.parametrize(
    ("dotted", "names"),
    [
        ({"bootstrap.servers": "a:1", "lingerms": 1}, ("lingerms",)),
        ({"bootstrap.servers": "a:1", "linger.ms": "soon"}, ("linger.ms",)),
        ({"bootstrap.servers": "a:1", "enable.idempotence": "1"}, ("enable.idempotence",)),
        (
            {"bootstrap.servers": "a:1", "transactional.id": "a", "producer.name": "b"},
            ("transactional.id", "producer.name"),
        ),
    ],
)
def test_bad_dotted_names(dotted: dict, names: tuple[str, ...]):
    with pytest.raises(errors.ConfigError) as raised:
        settings_from_dotted(ProducerConfig, dotted)
    assert raised.value.settings == names


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    import sys

    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(errors.MissingExtraError, match=r"oncelog\[zstd\]") as raised:
        producer(compression_type="zstd")
    assert isinstance(raised.value, ImportError)
    assert raised.value.extra == "zstd"


def test_errors_survive_pickling():
    """Errors cross process borders in multiprocessing and in Spark."""
    config_error = errors.ConfigError("bad", "linger_ms", "acks")
    missing = errors.MissingExtraError("Arrow batches", "pyarrow", "arrow")
    mismatch = errors.OffsetMismatchError("no", next_offset=7)
    mismatch.outcome = "unknown"
    for error in (config_error, missing, mismatch):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_unknown_details_are_a_bug():
    with pytest.raises(TypeError, match="no detail"):
        errors.FencedError("x", epoch=3)


@pytest.mark.parametrize("address", ["::1:7001", "::1", "fe80::1%eth0:7001", "2001:db8::1:7001"])
def test_an_ipv6_host_without_brackets_is_told_the_form(address: str) -> None:
    with pytest.raises(errors.ConfigError, match=r"is not host:port; .* in brackets: \[::1\]:7001"):
        parse_bootstrap(address)


def test_an_ipv6_host_in_brackets() -> None:
    assert parse_bootstrap("[::1]:7001,[fe80::1%eth0]:7001") == (
        "[::1]:7001",
        "[fe80::1%eth0]:7001",
    )


@pytest.mark.parametrize("address", ["user:secret@host:7001", "user:se,cret@host:7001"])
def test_a_password_in_an_address_is_not_printed(address: str) -> None:
    with pytest.raises(errors.ConfigError, match="no user and no password") as caught:
        parse_bootstrap(["a:1", address])
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize("address", ["http://host:7001", "host:\u00b2", "a b:1", "host:7001/x"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(errors.ConfigError, match=r"is not host:port$"):
        parse_bootstrap(address)
