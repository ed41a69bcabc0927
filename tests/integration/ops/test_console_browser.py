"""The console in a real browser: tasks of a person, rules of the page, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from playwright.sync_api import Browser, expect

from harness.api import batch, verdict
from harness.local_cluster import LocalCluster
from oncelog import Admin
from oncelog.wire.batch import encode_payload
from tests.integration.conftest import STEADY
from tests.integration.ops.browsing import PATIENCE_MS, Open, flawless, watched
from tests.integration.ops.consoles import console, repeated
from tests.integration.waiting import eventually

REPEATED = "orders-0 producer {pid} epoch 0 sequences 0..9 may be stored, resolve_sequence tells"
# One page of each form; lists look alike.
PAGES = (
    "/", "/topics/orders", "/topics/orders/records", "/topics/orders/records/0/3",
    "/groups/readers", "/events?kind=verdict", "/life?topic=orders&producer=pay&sequence=9",
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One node with a producer that sends a batch three times, then writes on and is fenced."""
    with LocalCluster(tmp_path_factory.mktemp("browser"), 1, settings=STEADY) as made:
        with Admin(bootstrap_servers=made.bootstrap) as admin:
            admin.create_topic("orders", partitions=1)
            old = repeated(made, "orders", times=2)
            new = admin.lease_producer("pay")
            payload = encode_payload([b"new"], [1_700_000_000_000_000])
            first = batch("orders", 0, old.producer_id, 0, payload, codec=0, epoch=new.epoch)
            first.lease_token = new.lease_token
            assert verdict(made.produce(first)) == "APPENDED"
            zombie = batch("orders", 0, old.producer_id, 50, b"late", count=10)
            assert verdict(made.produce(zombie)) == "FENCED"
            admin.commit_offsets("readers", {("orders", 0): 5})
        yield made


@pytest.fixture(scope="module")
def link(cluster: LocalCluster) -> Iterator[str]:
    with console("--listen", "127.0.0.1:0", "-b", cluster.bootstrap) as made:
        yield made


@pytest.fixture
def visit(browser: Browser, link: str) -> Open:
    """Open a logged-in page; at its end nothing of it may have broken a rule."""
    return partial(watched, browser, link)


def break_rules(visit: Open) -> None:
    with visit() as page, page.expect_console_message(lambda said: "CSP" in said.text):
        page.evaluate(
            "document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.2/'}))"
        )


def test_a_violation_would_be_noticed(visit: Open) -> None:
    with pytest.raises(AssertionError, match=r"CSP|Content Security Policy"):
        break_rules(visit)


def test_no_page_breaks_a_rule_or_keeps_somebody_out(visit: Open) -> None:
    with visit() as page:
        for path in PAGES:
            page.goto(path)
            flawless(page)


def test_a_pasted_error_is_answered_and_leads_to_the_record(
    visit: Open, cluster: LocalCluster
) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        (name,) = admin.list_producer_names()
    with visit() as page:
        page.get_by_role("link", name="Did my record get in?").click()
        page.get_by_label("Text of the error").fill(REPEATED.format(pid=name.producer_id))
        page.get_by_role("button", name="Find it").click()
        expect(page.locator(".answer .word")).to_have_text("yes")
        expect(page.locator(".answer")).to_contain_text("Its batch came twice")

        def all_read() -> bool:
            """A page reads for a few seconds only."""
            page.reload()
            return bool(page.locator("svg g.stored").count() == 6)

        eventually(all_read, "six batches in the picture", PATIENCE_MS / 1000)
        expect(page.locator("svg g.duplicate.hit")).to_have_count(1)
        expect(page.locator("svg g.refused")).to_have_count(1)
        page.locator("tr.hit a").click()
        expect(page.locator("h1")).to_have_text("orders-0 at 0")


def test_the_same_without_javascript(visit: Open) -> None:
    with visit(java_script_enabled=False) as page:
        page.goto("/life")
        page.get_by_label("Topic").fill("orders")
        page.get_by_label("Producer id or name").fill("pay")
        page.get_by_label("Sequence").fill("55")
        page.get_by_label("Epoch").fill("0")
        page.get_by_role("button", name="Ask").click()
        expect(page.locator(".answer .word")).to_have_text("no")
        expect(page.locator(".answer")).to_contain_text("were refused once: FENCED")


def test_a_groups_page_renews_itself_and_draws_its_lag(visit: Open, cluster: LocalCluster) -> None:
    with visit() as page, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        page.goto("/groups/readers")
        page.get_by_role("link", name="Renew every 5 seconds").click()
        expect(page.locator("#lag-chart canvas")).to_be_visible()
        expect(page.locator("#lag")).to_have_attribute("value", "46")
        admin.commit_offsets("readers", {("orders", 0): 50})
        expect(page.locator("#lag")).to_have_attribute("value", "1", timeout=PATIENCE_MS)
        stop = page.get_by_role("link", name="Stop")
        expect(stop).to_have_attribute("href", "/groups/readers")


def test_a_person_logs_out_with_the_button_of_a_page(browser: Browser, link: str) -> None:
    """A browser tells a form's Origin only if the page's referrer policy lets it."""
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(link)
    page.get_by_role("button", name="Log out").click()
    expect(page.locator("h1")).to_have_text("Log in")
    assert context.cookies() == []
    context.close()
