"""Masks of records: hidden parts, also of values that are not as expected."""

from __future__ import annotations

import json

import pytest

from oncelog.console.masks import Masks, parse_mask
from oncelog.errors import ConfigError
from oncelog.types import Record

CARD = b'{"card": {"number": 4711, "name": "A"}, "items": [{"card": 1}, {"card": 2}, 3]}'


def hide(record: Record, *masks: str, topic: str = "pay-1") -> Record:
    found = Masks([parse_mask(one) for one in masks]).of_topic(topic)
    assert found is not None
    return found(record)


def test_a_path_is_hidden_in_objects_and_lists() -> None:
    hidden = hide(Record(CARD), "pay-*:json=card.number", "pay-*:json=items.card")
    assert hidden.value is not None
    assert json.loads(hidden.value) == {
        "card": {"number": "***", "name": "A"},
        "items": [{"card": "***"}, {"card": "***"}, "***"],
    }


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b'{"card": "4711", "n": 1}', b'{"card": "***", "n": 1}'),
        (b'{"card": 4711}', b'{"card": "***"}'),
        (b'{"card": ["4711", {"number": 4712, "n": 1}, null]}',
         b'{"card": ["***", {"number": "***", "n": 1}, null]}'),
        (b'"4711"', b'"***"'),
        (b"[4711]", b'["***"]'),
        (b'{"card": null}', b'{"card": null}'),
        (b'{"card": {"n": 1}}', b'{"card": {"n": 1}}'),
        (b"null", b"null"),
    ],
)  # fmt: skip
def test_a_value_where_the_path_expects_an_object_is_hidden(value: bytes, shown: bytes) -> None:
    """A producer of another release may write the card as a text."""
    assert hide(Record(value), "*:json=card.number").value == shown


@pytest.mark.parametrize(
    "value", [b"card=4711", b'{"card": {"number": 4711}', b"\xff4711", b"[" * 100_000 + b"4711"]
)
def test_a_value_that_is_not_json_shows_its_length_only(value: bytes) -> None:
    hidden = hide(Record(value), "*:json=card.number").value
    assert hidden == f"masked: {len(value)} bytes".encode()


@pytest.mark.parametrize("depth", [300, 600, 900, 5000, 100_000])
def test_a_deep_value_is_hidden_or_shows_its_length(depth: int) -> None:
    """Python's bound of nesting differs between reading, hiding and writing."""
    value = b"[" * depth + CARD + b"]" * depth
    hidden = hide(Record(value), "*:json=card.number").value
    assert hidden is not None and b"4711" not in hidden
    assert b'"number": "***"' in hidden or hidden == f"masked: {len(value)} bytes".encode()


def test_the_last_of_two_fields_of_one_name_does_not_uncover_the_first() -> None:
    hidden = hide(Record(b'{"pin": 4711, "pin": 4712}'), "*:json=pin").value
    assert hidden == b'{"pin": "***"}'


def test_whole_values_keys_and_headers_are_hidden() -> None:
    record = Record(b"secret", b"key", [("auth", b"4711"), ("n", b"1"), ("auth", None)])
    hidden = hide(record, "pay-1:value", "pay-1:key", "pay-1:header=auth")
    assert hidden.value == b"masked: 6 bytes" and hidden.key == b"masked: 3 bytes"
    assert list(hidden.headers) == [("auth", b"***"), ("n", b"1"), ("auth", b"***")]
    assert hide(Record(None), "*:value", "*:key").value is None


def test_other_topics_are_left_alone() -> None:
    assert Masks([parse_mask("pay-*:value")]).of_topic("orders") is None
    assert Masks().of_topic("orders") is None


@pytest.mark.parametrize("given", ["", "orders", "orders:", "orders:json", "orders:json=", ":value",
                                   "orders:value=x", "orders:body", "orders:header="])  # fmt: skip
def test_a_mask_that_hides_nothing_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="mask: "):
        parse_mask(given)


@pytest.mark.parametrize("path", ["a..b", ".", ".card", "card."])
def test_a_path_with_an_empty_part_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match=f"its path '{path}' has an empty part") as raised:
        parse_mask(f"orders:json={path}")
    assert raised.value.settings == ("mask",)
