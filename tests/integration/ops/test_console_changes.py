"""Changes from the console in a real browser, each by a person with the right and one without."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from harness.local_cluster import LocalCluster
from oncelog import Admin, PermissionRule, Producer, TopicPartition, TransactionAbortedError
from tests.integration.ops.browsing import flawless, watched
from tests.integration.ops.commands import exists
from tests.integration.ops.consoles import Person, as_person, console, guarded, token_of
from tests.integration.waiting import eventually

SELECTED = ("deny", "streams", "compact")  # choices of a list
REFUSED = (
    ("/change/topic-create?look=1&topic=mine", "create topic mine"),
    ("/change/topic-alter?look=1&topic=orders&retention_ms=1", "alter topic orders"),
    ("/change/topic-grow?look=1&topic=orders&partitions=9", "alter topic orders"),
    ("/change/topic-replicate?look=1&topic=orders&replicas=1", "alter topic orders"),
    ("/change/topic-delete?topic=orders", "delete topic orders"),
    ("/change/record-send?look=1&topic=orders&value=x", "write topic orders"),
    ("/change/group-seek?look=1&group=g&topic=orders&to=start", "describe group g"),
    ("/change/group-delete?group=g", "describe group g"),
    ("/change/producer-fence?producer=pay", "describe producer"),
    ("/change/transaction-abort?transaction=1", "describe"),
    ("/change/sink-reset?sink=s", "describe sink s"),
    ("/change/node-drain?node=1", "alter cluster"),
    ("/change/node-undrain?node=1", "alter cluster"),
    ("/change/node-add?look=1&node=2", "alter cluster"),
    ("/change/node-remove?node=1", "alter cluster"),
    ("/change/balance", "describe cluster"),
    ("/change/rule-add?look=1&principal=x&operations=read&kind=topic&name=orders",
     "describe cluster"),
    ("/change/quota-set?look=1&principal=x&name=streams&value=1", "describe cluster"),
)  # fmt: skip
LogIn = Callable[..., AbstractContextManager[Page]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with guarded(tmp_path_factory.mktemp("changes")) as made:
        yield made


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(**as_person(cluster, "boss")) as one:
        yield one


@pytest.fixture(scope="module")
def link(cluster: LocalCluster) -> Iterator[str]:
    ca = cluster.client_files["tls_ca_file"]
    flags = ("--login", "token", "--tls-ca-file", ca, "--allow-changes")
    with console("--listen", "127.0.0.1:0", "-b", cluster.bootstrap, *flags) as made:
        yield made


@pytest.fixture
def log_in(browser: Browser, link: str) -> LogIn:
    @contextmanager
    def opened(name: str, refused: bool = False) -> Iterator[Page]:
        with watched(browser, link, refused=refused) as page:
            page.get_by_label("Token").fill(token_of(name))
            page.get_by_role("button", name="Log in").click()
            expect(page.locator("form.who")).to_contain_text(f"token:{name}")
            yield page

    return opened


def show_effects(page: Page, **fields: str) -> None:
    for name, value in fields.items():
        field = page.locator(f"form.filter [name={name}]")
        if value in SELECTED:
            field.select_option(value)
        else:
            field.fill(value)
    page.get_by_role("button", name="Show the effects").click()


def confirm(page: Page, button: str, typed: str = "") -> None:
    exists(page.locator("footer code").inner_text())
    if typed:
        page.get_by_label(f"Type {typed} to confirm").fill(typed)
    page.locator("form.confirm").get_by_role("button", name=button, exact=True).click()


def effects(page: Page) -> Any:
    return page.locator("ul.effects")


def done(page: Page) -> Any:
    return page.get_by_role("status")


# --- topics ------------------------------------------------------------------------------


def test_a_topic_is_created_altered_grown_written_and_deleted(log_in: LogIn, admin: Admin) -> None:
    with log_in("boss") as page:
        page.goto("/topics")
        page.get_by_role("link", name="Create a topic").click()
        show_effects(page, topic="made", partitions="2", retention_ms="3600000")
        expect(effects(page)).to_contain_text("Topic made is created with 2 partitions")
        assert "made" not in admin.list_topics()
        flawless(page)
        confirm(page, "Create")
        expect(done(page)).to_have_text("Created topic made with 2 partitions.")
        page.get_by_role("link", name="made", exact=True).click()

        page.get_by_role("link", name="Settings", exact=True).click()
        show_effects(page, retention_ms="60000", max_batch_bytes="4096")
        expect(effects(page)).to_contain_text("retention_ms: 3600000 becomes 60000")
        expect(effects(page)).to_contain_text("records beyond retention_ms 60000 are deleted")
        confirm(page, "Alter", "made")
        expect(done(page)).to_have_text("Altered topic made.")
        config = admin.describe_topic("made").config
        assert (config.retention_ms, config.max_batch_bytes) == (60000, 4096)

        page.get_by_role("link", name="Settings", exact=True).click()
        show_effects(page, cleanup_policy="compact")
        expect(effects(page)).to_contain_text("records of a key are removed, except the newest")
        page.get_by_role("link", name="Back, without a change").click()

        page.get_by_role("link", name="More partitions").click()
        show_effects(page, partitions="3")
        expect(effects(page)).to_have_text("made gets 1 more partitions, 3 in all.")
        confirm(page, "Add partitions", "made")
        expect(done(page)).to_have_text("Topic made has 3 partitions.")

        page.get_by_role("link", name="Send a record").click()
        show_effects(page, partition="2", key="k", value="<b>once</b>")
        expect(effects(page)).to_contain_text("of 11 bytes with the key 'k' is stored in made-2")
        confirm(page, "Send")
        expect(done(page)).to_have_text("Stored in made-2 at offset 0.")

        page.get_by_role("link", name="Delete", exact=True).click()
        expect(effects(page)).to_contain_text("is deleted with 3 partitions and all of its records")
        flawless(page)
        confirm(page, "Delete", "made")
        expect(done(page)).to_have_text("Deleted topic made.")
        assert "made" not in admin.list_topics()


def test_who_may_not_is_told_before_and_offered_nothing(log_in: LogIn) -> None:
    with log_in("reader", refused=True) as page:
        for address, words in REFUSED:
            page.goto(address)
            expect(page.locator("main")).to_contain_text(f"token:reader may not {words}")
            expect(page.locator("form.confirm")).to_have_count(0)


# --- groups, producers, transactions, sinks ----------------------------------------------


def test_a_groups_offsets_move_and_the_group_is_deleted(log_in: LogIn, admin: Admin) -> None:
    admin.commit_offsets("readers", {("orders", 0): 1})
    with log_in("boss") as page:
        page.goto("/groups/readers")
        page.get_by_role("link", name="Move its offsets").click()
        show_effects(page, topic="orders", to="start")
        expect(effects(page)).to_have_text(
            "orders-0: readers goes from 1 to 0 and reads again 1 record"
        )
        confirm(page, "Move the offsets")
        expect(done(page)).to_contain_text("goes on from the new offsets in orders")
        assert admin.describe_group("readers").offsets[TopicPartition("orders", 0)].offset == 0
        page.get_by_role("link", name="Delete", exact=True).click()
        confirm(page, "Delete", "readers")
        expect(done(page)).to_have_text("Deleted group readers.")
    assert not admin.describe_group("readers").exists


def test_what_was_shown_is_what_is_done(log_in: LogIn, admin: Admin, cluster: LocalCluster) -> None:
    """New records move the end of a partition: the group goes to the end that was shown."""
    admin.create_topic("moving", partitions=1)
    admin.commit_offsets("late", {("moving", 0): 0})
    with log_in("boss", refused=True) as page, Producer(**as_person(cluster, "boss")) as producer:
        producer.send("moving", b"1").result(60)
        page.goto("/change/group-seek?group=late")
        show_effects(page, topic="moving", to="end")
        expect(effects(page)).to_contain_text("goes from 0 to 1")
        producer.send("moving", b"2").result(60)
        confirm(page, "Move the offsets")
        expect(done(page)).to_contain_text("goes on from the new offsets")
        assert admin.describe_group("late").offsets[TopicPartition("moving", 0)].offset == 1

        page.goto("/change/group-seek?group=late")
        show_effects(page, topic="moving", to="start")
        expect(effects(page)).to_contain_text("goes from 1 to 0")
        admin.commit_offsets("late", {("moving", 0): 2})
        confirm(page, "Move the offsets")
        expect(page.locator("main")).to_contain_text("no longer those that were shown")
        expect(effects(page)).to_contain_text("goes from 2 to 0")
        assert admin.describe_group("late").offsets[TopicPartition("moving", 0)].offset == 2


def test_a_producer_is_fenced(log_in: LogIn, admin: Admin) -> None:
    epoch = admin.lease_producer("pay").epoch
    with log_in("boss") as page:
        page.goto("/producers")
        page.get_by_role("link", name="Fence").click()
        expect(effects(page)).to_contain_text(f"(pay) loses its epoch {epoch}")
        confirm(page, "Fence", "pay")
        expect(done(page)).to_contain_text(f"has the epoch {epoch + 1} now")


def test_a_transaction_is_aborted(log_in: LogIn, admin: Admin, cluster: LocalCluster) -> None:
    with Producer(**as_person(cluster, "boss"), producer_name="till") as producer:
        txn = producer.transaction()
        txn.begin()
        producer.send("orders", b"never read").result(60)
        (open_one,) = admin.list_transactions("till")
        with log_in("boss") as page:
            page.goto("/transactions")
            page.get_by_role("link", name=str(open_one.transaction_id), exact=True).click()
            flawless(page)
            page.get_by_role("link", name="Abort").click()
            expect(effects(page)).to_contain_text("of till is aborted")
            confirm(page, "Abort", str(open_one.transaction_id))
            expect(done(page)).to_have_text(f"Aborted transaction {open_one.transaction_id}.")
        with pytest.raises(TransactionAbortedError):
            txn.commit()


# --- nodes -------------------------------------------------------------------------------


def test_a_node_is_drained_and_undrained(log_in: LogIn, admin: Admin) -> None:
    with log_in("boss") as page:
        page.goto("/nodes")
        flawless(page)
        page.get_by_role("link", name="Drain").click()
        expect(effects(page)).not_to_be_empty()
        assert not admin.list_nodes()[0].drained
        confirm(page, "Drain")
        expect(done(page)).to_have_text("Node 1 leads nothing until it is undrained.")
        assert admin.list_nodes()[0].drained
        page.get_by_role("link", name="Undrain").click()
        confirm(page, "Undrain")
        expect(done(page)).to_have_text("Node 1 may lead again.")
        assert not admin.list_nodes()[0].drained
        page.get_by_role("link", name="Balance the cluster").click()
        expect(effects(page)).to_have_text("Nothing would change.")
        expect(page.locator("form.confirm")).to_have_count(0)


# --- security ----------------------------------------------------------------------------


def test_rules_and_limits_are_shown_asked_and_changed(log_in: LogIn, admin: Admin) -> None:
    with log_in("boss") as page:
        page.goto("/security")
        flawless(page)
        expect(page.locator("main")).to_contain_text("These rules are enforced.")
        page.get_by_role("link", name="Add a permission").click()
        show_effects(page, principal="token:reader", operations="write", name="secret",
                     effect="deny")  # fmt: skip
        expect(effects(page)).to_have_text("token:reader may not write topic secret.")
        confirm(page, "Add")
        expect(done(page)).to_contain_text("Added the rule")
        page.goto(
            "/security?principal=token:reader&operation=read&kind=topic&name=orders&of=token:reader"
        )
        expect(page.locator("main")).to_contain_text("token:reader may read topic orders")
        row = page.locator("tr", has_text="deny")
        row.get_by_role("link", name="Remove").click()
        expect(effects(page)).to_contain_text("token:reader may not write topic secret")
        confirm(page, "Remove")
        expect(done(page)).to_contain_text("Removed the rule")
        assert all(not rule.deny for rule in admin.list_permissions("token:reader").rules)

        page.get_by_role("link", name="Limit a principal").click()
        show_effects(page, principal="token:reader", name="streams", value="7")
        expect(effects(page)).to_contain_text("none of its own becomes 7")
        confirm(page, "Change")
        expect(done(page)).to_contain_text("Changed the limit streams")
        assert [one.value for one in admin.list_quotas("token:reader")] == [7]
        page.get_by_role("link", name="Change", exact=True).click()
        show_effects(page, value="")
        confirm(page, "Change")
        expect(done(page)).to_contain_text("Changed the limit streams")
        assert admin.list_quotas("token:reader") == []


def test_a_reader_sees_the_parts_of_the_page_that_it_may(log_in: LogIn) -> None:
    with log_in("reader", refused=True) as page:
        page.goto("/security?operation=read&kind=topic&name=orders")
        expect(page.locator("main")).to_contain_text("You may read topic orders")
        expect(page.locator("main")).to_contain_text("No rules:")


# --- forged forms ------------------------------------------------------------------------


def entered(link: str, name: str, follows: bool = True) -> Person:
    person = Person(link, follows=follows)
    person.post("/enter", {"Origin": person.origin}, token=token_of(name))
    return person


def fields_of(page: str) -> dict[str, str]:
    form = page[page.index('class="filter confirm"') :]
    return dict(re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', form))


def test_a_form_is_good_once_and_for_its_own_session(
    link: str, admin: Admin, cluster: LocalCluster
) -> None:
    boss = entered(link, "boss")
    shown = boss.get("/change/record-send", look=1, topic="orders", value="one")
    fields = fields_of(shown.html)
    here = {"Origin": boss.origin}
    end = admin.describe_topic("orders").partitions[0].high_watermark
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert boss.post("/change/record-send", headers, **fields).status == 403
    for forged in ({**fields, "offer": ""}, {**fields, "offer": "x"}):
        page = boss.post("/change/record-send", here, **forged)
        assert "This form was used already, or is too old." in page.text
    other = entered(link, "boss")
    assert "was used already" in other.post("/change/record-send", here, **fields).text
    assert f"at offset {end}." in boss.post("/change/record-send", here, **fields).text
    assert "was used already" in boss.post("/change/record-send", here, **fields).text
    assert admin.describe_topic("orders").partitions[0].high_watermark == end + 1


def test_only_the_page_of_a_change_shows_its_result(link: str) -> None:
    """Other pages, and those that renew themselves, may be asked for in between."""
    boss = entered(link, "boss", follows=False)
    fields = fields_of(boss.get("/change/record-send", look=1, topic="orders", value="x").html)
    assert boss.post("/change/record-send", {"Origin": boss.origin}, **fields).status == 303
    where = "/topics/orders"
    for other in ("/", "/topics", "/groups?live=1", f"{where}?live=1"):
        assert "Stored in" not in boss.get(other).text
    assert ["Stored in" in boss.get(where).text for _ in range(2)] == [True, False]


def test_the_nodes_decide_also_if_a_form_is_forged(link: str, admin: Admin) -> None:
    """A reader takes the key of a form that it may send for another change."""
    rule = PermissionRule("token:reader", ("write",), "topic", "orders")
    admin.alter_permissions([rule])
    reader, found = entered(link, "reader"), list[dict[str, str]]()

    def offered() -> bool:
        page = reader.get("/change/record-send", look=1, topic="orders", value="one")
        found[:] = [fields_of(page.html)] if 'class="filter confirm"' in page.html else []
        return bool(found)

    eventually(offered, "the reader may write")
    shown = entered(link, "boss").get("/change/topic-delete", topic="orders")
    fields = {**fields_of(shown.html), "offer": found[0]["offer"], "typed": "orders"}
    page = reader.post("/change/topic-delete", {"Origin": reader.origin}, **fields)
    assert (page.status, "token:reader may not delete topic orders" in page.text) == (403, True)
    assert "orders" in admin.list_topics()
    admin.alter_permissions(remove=[rule])


def test_names_are_taken_as_they_are(link: str, admin: Admin) -> None:
    """A group's name may begin with a space, and another group be named like the rest of it."""
    for name in ("twin", " twin"):
        admin.commit_offsets(name, {("orders", 0): 0})
    boss = entered(link, "boss")
    page = boss.get("/change/group-delete", group=" twin")
    fields = fields_of(page.html)
    boss.post("/change/group-delete", {"Origin": boss.origin}, **fields, typed="twin")
    assert [admin.describe_group(one).exists for one in ("twin", " twin")] == [True, False]


def test_a_wrong_name_changes_nothing(link: str, admin: Admin) -> None:
    boss = entered(link, "boss")
    fields = fields_of(boss.get("/change/topic-delete", topic="orders").html)
    page = boss.post("/change/topic-delete", {"Origin": boss.origin}, **fields, typed="order")
    assert (page.status, "Nothing was changed." in page.text) == (400, True)
    assert "orders" in admin.list_topics()
