"""The console over real nodes: each page, its bounds, and the identity it acts with."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import pytest

from harness.api import batch, verdict
from harness.local_cluster import LocalCluster
from oncelog import Admin, Producer
from oncelog.cli.app import run
from oncelog.console.records import MAX_PARTITIONS
from oncelog.wire.batch import encode_payload
from oncelog.wire.compression import ZSTD, compress
from tests.integration.conftest import STEADY
from tests.integration.ops.commands import exists
from tests.integration.ops.consoles import Person, console, repeated

ORDERS = "orders"
LOCAL = ("--listen", "127.0.0.1:0")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One node with a topic, a group, and a producer with a batch that came three times."""
    with LocalCluster(tmp_path_factory.mktemp("console"), 1, settings=STEADY) as made:
        with Admin(bootstrap_servers=made.bootstrap) as admin:
            admin.create_topic(ORDERS, partitions=2)
            repeated(made, ORDERS, times=3)
            with Producer(bootstrap_servers=made.bootstrap, linger_ms=0) as producer:
                for n in range(40):
                    text = f"<b>value {n}</b>".encode()
                    producer.send(ORDERS, text, b"k%d" % n, partition=1, headers=[("n", b"%d" % n)])
            admin.commit_offsets("readers", {(ORDERS, 1): 10})
        yield made


@pytest.fixture(scope="module")
def link(cluster: LocalCluster) -> Iterator[str]:
    with console(*LOCAL, "-b", cluster.bootstrap) as made:
        yield made


@pytest.fixture
def person(link: str) -> Person:
    one = Person(link)
    assert one.get(link).status == 200
    return one


@pytest.fixture(scope="module")
def pid(cluster: LocalCluster) -> int:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        return next(one.producer_id for one in admin.list_producer_names() if one.name == "pay")


def test_the_first_page_tells_health_nodes_and_events(person: Person) -> None:
    page = person.until("The cluster is healthy.", "/")
    assert (page.status, "leads partition=orders-0" in page.text) == (200, True)
    assert "The same in a terminal: oncelog cluster health" in page.text


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/nodes", "127.0.0.1"),
        ("/topics", "without leader orders 2 1 20"),
        ("/topics?match=nothing", "No topic that you may describe has such a name."),
        ("/topics/orders", "retention_ms"),
        ("/topics/orders/0", "pay 0 49"),
        ("/groups", "0 - 30 "),
        ("/groups/readers", "orders 1 10 40 30"),
        ("/producers", "pay"),
        ("/transactions", "No unfinished transaction"),
        ("/sinks", "No sink that you may describe."),
        ("/security", "Permissions are not enforced"),
        ("/topics/orders/records", "value 17"),
        ("/topics/orders/records/1/17", "value 17"),
        ("/events?kind=verdict&topic=orders", "DUPLICATE"),
        ("/life", "Text of the error"),
    ],
)
def test_every_page_reads(person: Person, path: str, words: str) -> None:
    page = person.until(words, path)
    assert page.status == 200, page.text
    assert " style=" not in page.html and " onclick" not in page.html
    assert "<script" not in page.html  # each page is whole without
    exists(page.command)


def test_a_page_that_renews_itself_loads_scripts_of_this_process_only(person: Person) -> None:
    page = person.get("/groups/readers", live=1)
    scripts = re.findall(r'(?:src|href)="([^"]*\.(?:js|css))"', page.html)
    assert len(scripts) == 5 and all(script.startswith("/static/") for script in scripts)
    assert all(person.get(script).status == 200 for script in scripts)
    assert '<noscript><meta http-equiv="refresh"' in page.html
    assert 'hx-get="/groups/readers?live=1"' in page.html


# --- the life of a sequence --------------------------------------------------------------


def test_a_pasted_error_finds_its_record_and_its_repeats(person: Person, pid: int) -> None:
    error = (
        f"DeliveryTimeoutError: late; orders-0 producer {pid} epoch 0 sequences 0..9 may be stored"
    )
    page = person.until("40 to 49", "/life", error=error)  # the last batch
    assert page.url.endswith(f"/life?topic=orders&partition=0&producer={pid}&sequence=9&epoch=0")
    assert page.status == 200, page.text
    assert (
        f'Sequence 9 of producer {pid} ("pay", epoch 0) is in orders-0 once, at offset 9'
        in page.text
    )
    assert "Its batch came 3 times: 2 repeats got the offset that it already had." in page.text
    assert page.html.count("<rect") == 6 and "leader elected" in page.text
    assert page.command == f"oncelog producer resolve orders 0 {pid} 9 --epoch 0"
    exists(page.command)


def test_a_producer_by_name_and_a_sequence_that_never_came(person: Person) -> None:
    query = {"topic": ORDERS, "partition": 0, "producer": "pay", "sequence": 0}
    page = person.until("is in orders-0 once", "/life", **query)
    assert "No epoch was asked for. Epoch 0 is the newest" in page.text
    page = person.get("/life", topic=ORDERS, partition=0, producer="pay", sequence=99)
    assert page.status == 200
    assert "is not in orders-0" in page.text


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ({"error": "no batch here"}, 400, "the text names no batch"),
        ({"error": "x" * 9000}, 400, "9000 characters, at most 8000"),
        ({"topic": ORDERS, "producer": "nobody", "sequence": 1}, 400, "neither a producer id nor"),
        ({"topic": "gone", "producer": 1, "sequence": 1}, 404, "gone"),
        ({"topic": ORDERS, "partition": 7, "producer": 1, "sequence": 1}, 404, "no partition 7"),
        ({"topic": ORDERS, "producer": 1, "sequence": "-1"}, 400, "'-1' is not a whole number"),
    ],
)
def test_a_wrong_question_gets_an_error_beside_the_form(
    person: Person, query: dict[str, Any], status: int, words: str
) -> None:
    page = person.get("/life", **query)
    assert (page.status, words in page.text) == (status, True), page.text
    assert "Ask by its numbers" in page.text


# --- records -----------------------------------------------------------------------------


def test_records_are_found_within_bounds_and_the_search_goes_on(person: Person) -> None:
    query = {"partition": 1, "limit": 30, "from": "start"}
    page = person.until("<b>value 29</b>", "/topics/orders/records", **query)
    assert "<b>value 0</b>" in page.text and "<b>" not in page.html
    assert "value 30" not in page.text
    more = re.search(r'href="([^"]*at=[^"]*)"', page.html)
    assert more is not None
    rest = person.until("<b>value 39</b>", more.group(1).replace("&amp;", "&"))
    assert "value 29<" not in rest.text
    assert "up to the end of each partition" in rest.text


def test_the_bound_of_a_search_is_of_bytes_that_are_not_compressed(
    person: Person, cluster: LocalCluster
) -> None:
    """A batch of 16 MiB may be stored in a few kilobytes: many of them would end the console."""
    payload = compress(ZSTD, encode_payload([bytes(16 * 1024 * 1024)], [1_700_000_000_000_000]))
    assert len(payload) < 16 * 1024
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic("bombs")
    for _ in range(8):
        assert verdict(cluster.produce(batch("bombs", 0, 0, 0, payload, codec=ZSTD))) == "APPENDED"
    page = person.until("Read 4 records", "/topics/bombs/records", **{"from": "start"})
    assert "Read 4 records and 67,108,864 bytes, up to a bound of this page." in page.text
    assert "at=0%3A4" in page.html


def test_records_are_chosen_by_key_header_and_text(person: Person) -> None:
    where = "/topics/orders/records"
    for query in ({"key": "k17"}, {"header": "n=17"}, {"contains": "value 17<"}):
        page = person.until("<b>value 17</b>", where, **query)
        assert page.text.count("<b>value") == 1
    assert person.get(where, contains="value .*").text.count("No record matches.") == 1


def test_a_wrong_value_of_a_search_gets_an_error_beside_the_form(
    person: Person, cluster: LocalCluster
) -> None:
    where = "/topics/orders/records"
    for name, value, words in (
        ("header", "n", "a header is NAME=VALUE"), ("partition", "2", "has the partitions 0 to 1"),
        ("at", "9:1", "names other partitions"), ("from", "soon", "from must be start, end"),
        ("limit", "x<y", "is not a whole number"),
    ):  # fmt: skip
        page = person.get(where, **{name: value})
        assert (page.status, words in page.text) == (400, True), page.text
        assert "Choose records" in page.text and "x<y" not in page.html
        assert name == "at" or f'name="{name}" value="{html.escape(value)}"' in page.html
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic("wide", partitions=MAX_PARTITIONS + 1)
    page = person.get("/topics/wide/records")
    assert (page.status, "the topic has 65; name one" in page.text) == (400, True), page.text
    assert "Choose records" in page.text
    assert person.until("No record matches.", "/topics/wide/records", partition=64).status == 200


def test_no_filter_and_no_page_finds_a_masked_part(cluster: LocalCluster) -> None:
    masks = ("--mask", "orders:value", "--mask", "ord*:header=n")
    with console(*LOCAL, "-b", cluster.bootstrap, *masks) as link:
        person = Person(link)
        person.get(link)
        where = "/topics/orders/records"
        page = person.until("masked: 15 bytes", where, partition=1, **{"from": "start"})
        assert "value 17" not in page.text
        for query in ({"contains": "value 17"}, {"header": "n=17"}):
            assert "No record matches." in person.until("up to the end", where, **query).text
        page = person.until("masked: 15 bytes", f"{where}/1/17")
        assert "value 17" not in page.text and "76616c75" not in page.text
        assert b"value".hex() not in page.html and "***" in page.text


def test_one_record_leads_to_the_life_of_its_sequence(person: Person) -> None:
    page = person.until("<b>value 17</b>", "/topics/orders/records/1/17")
    assert "<b>" not in page.html
    life = re.search(r'href="(/life[?][^"]*)"', page.html)
    assert life is not None
    person.until("is in orders-1 once, at offset 17", life.group(1).replace("&amp;", "&"))
    page = person.get("/topics/orders/records/1/40")
    assert (page.status, "it has the offsets 0 to 39" in page.text) == (404, True)


# --- sessions and headers ----------------------------------------------------------------


def test_nobody_reads_without_the_link(link: str) -> None:
    stranger = Person(link)
    assert stranger.get("/topics").url.endswith("/enter")
    assert stranger.get("/enter", key="guess").status == 403
    assert stranger.get("/topics").status == 403
    assert not list(stranger.cookies)
    assert stranger.post("/enter", token="x").status == 405
    assert stranger.get("/static/../app.py").status == 404


def test_other_hosts_and_forms_of_other_sites_are_refused(person: Person) -> None:
    assert person.get("/topics", {"Host": "evil.example"}).status == 421
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert person.post("/leave", headers).status == 403
    assert person.get("/topics").status == 200
    assert person.post("/leave", {"Origin": person.origin}).url.endswith("/enter")
    assert person.get("/topics").url.endswith("/enter")


def test_each_answer_has_the_headers_that_bound_it(person: Person) -> None:
    for path in ("/", "/static/console.css", "/nothing", "/topics/gone"):
        headers = person.get(path).headers
        assert headers["content-security-policy"].startswith(
            "default-src 'none'; script-src 'self'"
        )
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
    assert person.get("/").headers["cache-control"] == "no-store"
    (cookie,) = person.cookies
    assert cookie.has_nonstandard_attr("HttpOnly")
    assert cookie.get_nonstandard_attr("SameSite") == "strict"


def test_errors_of_the_cluster_are_pages(person: Person) -> None:
    page = person.get("/topics/gone")
    assert (page.status, "UNKNOWN_TOPIC_OR_PARTITION" in page.text) == (404, True)
    assert person.get("/groups/gone").status == 404
    assert person.get("/nothing").status == 404
    assert person.get("/events", producer="x").status == 400


def test_a_console_only_reads_unless_it_is_told_otherwise(person: Person) -> None:
    page = person.get("/topics/orders")
    assert "This console only reads." in page.text and "/change/" not in page.html
    for page in (
        person.get("/change/topic-delete", topic=ORDERS),
        person.post("/change/topic-delete", {"Origin": person.origin}, topic=ORDERS),
    ):
        assert (page.status, "start it with --allow-changes" in page.text) == (403, True)


def test_an_address_that_others_reach_is_refused(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        run(["console", "--listen", "0.0.0.0:0", "-b", cluster.bootstrap])
    assert exited.value.code == 1
    assert "with --login own other machines would act as you" in capsys.readouterr().err
