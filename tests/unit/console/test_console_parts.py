"""The console without a cluster: addresses it refuses, sessions, the places in its picture."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.aio import Admin
from oncelog.config import AdminConfig
from oncelog.console.life import _producer_id
from oncelog.console.listening import ConsoleConfig, parse_listen
from oncelog.console.pages import event_table, number
from oncelog.console.parts import Link, path
from oncelog.console.picture import LEFT, MAX_DRAWN, WIDTH, draw
from oncelog.console.security import _told
from oncelog.console.sessions import IDLE_S, MAX_SESSIONS, BrowserSession, Sessions
from oncelog.errors import (
    ClientClosedError,
    ConfigError,
    InvalidRequestError,
    NotAuthorizedError,
    UnauthenticatedError,
)
from oncelog.events import NodeEvent
from oncelog.types import ProducerName, TopicPartition
from oncelog.views.life import LifeRow, LifeView, SequenceQuestion

PLAIN = AdminConfig(bootstrap_servers=("127.0.0.1:7001",))
SECURED = AdminConfig(bootstrap_servers=("127.0.0.1:7001",), tls_ca_file="ca", tls_cert_file="c",
                      tls_key_file="k")  # fmt: skip


@pytest.mark.parametrize(
    ("host", "clients", "more", "text"),
    [
        ("0.0.0.0", PLAIN, {}, "not this machine's loopback, and with --login own"),
        ("10.0.0.1", SECURED, {"cert_file": "c", "key_file": "k"}, "would act as you"),
        ("::", SECURED, {"login": "token"}, "so tokens need TLS"),
        ("console.example", SECURED, {"login": "token"}, "so tokens need TLS"),
        ("127.0.0.1", PLAIN, {"login": "token"}, "over TLS only"),
        ("127.0.0.1", PLAIN, {"cert_file": "c"}, "belong together"),
    ],
)
def test_an_address_that_would_expose_an_identity_is_refused(
    host: str, clients: AdminConfig, more: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        ConsoleConfig(host, 8470, clients, **more)


def test_addresses_that_are_allowed() -> None:
    for host in ("127.0.0.1", "127.0.0.9", "localhost", "[::1]"):
        assert ConsoleConfig(host, 8470, PLAIN).url(8470) == f"http://{host}:8470/"
    published = ConsoleConfig("0.0.0.0", 8470, PLAIN, insecure=True)
    assert published.url(8470) == "http://127.0.0.1:8470/"
    assert [published.names_host(one) for one in ("localhost:8470", "evil.example")] == [
        True,
        False,
    ]
    public = ConsoleConfig("0.0.0.0", 443, SECURED, "token", "c", "k")
    assert public.url(443) == "https://0.0.0.0:443/"
    with pytest.raises(ConfigError, match="is not HOST:PORT"):
        parse_listen("8470")
    assert parse_listen("[::1]:0") == ("[::1]", 0)


def test_a_person_with_a_token_gets_nothing_of_the_callers_identity() -> None:
    config = ConsoleConfig("127.0.0.1", 1, SECURED, "token")
    own, theirs = config.settings(), config.settings("secret")
    assert own["tls_cert_file"] == "c"
    assert {name for name, value in theirs.items() if value} == {
        "bootstrap_servers", "request_timeout_ms", "tls", "tls_ca_file", "token",
    }  # fmt: skip


def test_a_strangers_name_for_this_machine_is_refused() -> None:
    config = ConsoleConfig("127.0.0.1", 8470, PLAIN)
    assert all(map(config.names_host, ("127.0.0.1:8470", "localhost:9000", "[::1]:1", "localhost")))
    assert not any(map(config.names_host, ("evil.example:8470", "", "127.0.0.1.evil.example:8470")))


async def test_an_idle_session_ends_and_closes_its_client() -> None:
    now = 0.0
    sessions = Sessions(ConsoleConfig("127.0.0.1", 1, PLAIN), clock=lambda: now)
    idle, used = (Admin(bootstrap_servers="127.0.0.1:1") for _ in range(2))
    cookies = [await sessions._add(BrowserSession(one, {}, "", True)) for one in (idle, used)]
    now = IDLE_S
    assert sessions.find(cookies[1]) is not None
    now += 1
    await sessions.end_idle()
    assert [sessions.find(cookie) is None for cookie in cookies] == [True, False]
    with pytest.raises(ClientClosedError):
        await idle.list_topics()
    await sessions.close()
    with pytest.raises(ClientClosedError):
        await used.list_topics()


async def test_the_session_that_was_idle_longest_makes_room() -> None:
    now = 0.0
    sessions = Sessions(ConsoleConfig("127.0.0.1", 1, PLAIN), clock=lambda: now)
    one = Admin(bootstrap_servers="127.0.0.1:1")
    first, second = [await sessions._add(BrowserSession(one, {}, "", False)) for _ in range(2)]
    now = 1.0
    assert sessions.find(first) is not None
    for _ in range(MAX_SESSIONS - 1):
        await sessions._add(BrowserSession(one, {}, "", False))
    assert len(sessions) == MAX_SESSIONS
    assert sessions.find(second) is None and sessions.find(first) is not None
    await one.close()


async def test_a_person_with_many_sessions_ends_none_of_another() -> None:
    sessions = Sessions(ConsoleConfig("127.0.0.1", 1, PLAIN), clock=lambda: 0.0)
    one = Admin(bootstrap_servers="127.0.0.1:1")
    ann = await sessions._add(BrowserSession(one, {}, "token:ann", False))
    first, *_ = [
        await sessions._add(BrowserSession(one, {}, "token:bob", False))
        for _ in range(MAX_SESSIONS)
    ]
    assert len(sessions) == MAX_SESSIONS
    assert sessions.find(ann) is not None and sessions.find(first) is None
    await one.close()


def test_a_part_with_an_error_is_told_unless_the_token_has_ended() -> None:
    refused = NotAuthorizedError("no")
    assert _told(refused) is refused
    for error in (UnauthenticatedError("ended"), ValueError()):
        with pytest.raises(type(error)):
            _told(error)


def test_digits_are_a_producers_id_also_if_they_are_the_name_of_another() -> None:
    """A pasted error names an id: an answer about another producer would be taken for its own."""
    names, gaps = [ProducerName("17", 99, 0, 1), ProducerName("pay", 5, 0, 1)], list[str]()
    assert _producer_id("pay", names, gaps) == 5 and not gaps
    assert _producer_id("17", names, gaps) == 17
    assert gaps == ["names: 17 is taken as an id; the producer of this name is 99"]
    for wrong in ("0", "other", "9" * 5000):
        with pytest.raises(InvalidRequestError, match="neither a producer id nor"):
            _producer_id(wrong, names, gaps)


def test_a_number_that_is_too_long_to_read_is_refused() -> None:
    assert number({"n": "9223372036854775807"}, "n", 0) == 2**63 - 1
    for wrong in ("9223372036854775808", "9" * 5000, "-1", "1_0", "\u0663"):
        with pytest.raises(InvalidRequestError, match="is not a whole number"):
            number({"n": wrong}, "n", 0)


def test_an_events_life_is_that_of_its_epoch() -> None:
    """The same sequence of a newer epoch may be stored, when this one was fenced."""
    event = NodeEvent(
        1, 1, "verdict", "topic", "t", 0, 1, 1, 1, "FENCED", 17, 2, 50, 59, -1, "", "", "",
    )  # fmt: skip
    (row,) = event_table([event]).rows
    href = "/life?topic=t&partition=0&producer=17&sequence=59&epoch=2"
    assert Link("17", href) in row


def test_names_in_addresses_are_quoted() -> None:
    assert path("groups", "a/b?c", first=0, match="", at=5) == "/groups/a%2Fb%3Fc?first=0&at=5"


def picture_of(*rows: LifeRow) -> Any:
    question = SequenceQuestion(TopicPartition("t", 0), 1, 50)
    return draw(LifeView(question, "yes", "", (), rows, ()))


def row(kind: str, at: int, first: int = -1, last: int = -1, hits: bool = False) -> LifeRow:
    return LifeRow(kind, at, at, "text", first, last, 0, count=2, node_id=3, hits=hits)


def test_the_picture_runs_to_the_right_and_upwards() -> None:
    found = picture_of(
        row("stored", 0, 0, 49), row("stored", 10, 50, 99), row("leader", 10_000),
        row("duplicate", 10_001, 50, 99), row("fence", 10_002), row("refused", 10**9, 100, 109),
    )  # fmt: skip
    xs = [shape.x for shape in found.shapes]
    assert xs == sorted(set(xs)) and xs[0] > LEFT and xs[-1] < WIDTH
    first, second, leader, duplicate, fence, refused = found.shapes
    assert first.y > second.y == duplicate.y > refused.y
    assert first.y == pytest.approx(second.y + second.height, abs=0.2)
    assert (leader.label, fence.label, duplicate.label) == ("node 3", "epoch 0", "2x")
    assert second.y <= found.asked_y <= second.y + second.height
    assert picture_of() is None
    assert len(picture_of(row("stored", 5, 0, 0)).shapes) == 1


def test_the_picture_shows_what_is_near_the_record() -> None:
    rows = [row("stored", at, at, at, hits=at == 900) for at in range(1000)]
    found = picture_of(*rows)
    assert (len(found.shapes), found.left_out) == (MAX_DRAWN, 1000 - MAX_DRAWN)
    assert sum(shape.hits for shape in found.shapes) == 1
    assert len({shape.title for shape in found.shapes}) == MAX_DRAWN
