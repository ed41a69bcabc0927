"""Life of a sequence: the question in an error's text, and the sentence that answers it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog import NodeEvent, ProducerName, ProducerState, Resolution, TopicPartition
from oncelog.types import ResolvedSequence
from oncelog.views.life import (
    BatchSpan,
    LifeFacts,
    LifeView,
    SequenceQuestion,
    life_view,
    read_question,
)

TP = TopicPartition("orders", 3)
ASKED = SequenceQuestion(TP, 17, 4711, 2)
SOON = 1_764_162_131_000
STORED = BatchSpan(88_120, 30, 17, 2, 4711, 4740, SOON)
DUPLICATE = NodeEvent(
    2, 9, "verdict", "topic", "orders", 3, SOON + 200, SOON + 300, 2, "DUPLICATE", 17, 2, 4711,
    4740, 88_120, "token:pay", "", "",
)  # fmt: skip
LEADS = NodeEvent(
    2, 8, "leader", "topic", "orders", 3, SOON + 100, SOON + 100, 1, "", 0, -1, -1, -1, -1, "", "",
    "leads partition=orders-3 term=8 index=88119",
)  # fmt: skip
LED = replace(
    LEADS, node_id=1, first_ms=SOON - 9, last_ms=SOON - 9, text="leads partition=orders-3 term=7"
)
OPENED = NodeEvent(
    2, 10, "producer", "topic", "orders", 3, SOON + 900, SOON + 900, 1, "", 17, 3, 4740, 4740,
    88_149, "", "", "producer 17 opened epoch 3, lower epochs are fenced",
)  # fmt: skip
FENCED = replace(
    DUPLICATE, verdict="FENCED", first_sequence=4741, last_sequence=4750, offset=-1,
    text="epoch 2 is fenced by 3",
)  # fmt: skip


def resolved(resolution: Resolution, offset: int = -1, last: int = 4740) -> ResolvedSequence:
    return ResolvedSequence(resolution, offset, last, 2, 2)


def view_of(
    found: ResolvedSequence, question: SequenceQuestion = ASKED, **more: object
) -> LifeView:
    return life_view(LifeFacts(question, found, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "DeliveryTimeoutError: orders-3: no acknowledgement; orders-3 producer 17 epoch 2 "
        "sequences 4700..4711 may be stored, resolve_sequence tells",
        "2026-11-26T13:02:11Z node 2 verdict orders-3 DUPLICATE producer 17 epoch 2 sequences "
        "4700..4711 at 88120",
        '{"topic": "orders", "partition": 3, "producer_id": 17, "epoch": 2, "sequence": 4711}',
        "failed topic=orders partition=3 producer_id=17 epoch=2 sequence=4711",
    ],
)  # fmt: skip
def test_a_logged_error_names_its_batch(text: str) -> None:
    assert read_question(text) == ASKED


@pytest.mark.parametrize(
    "text",
    ["", "orders-3: no acknowledgement", "topic=orders partition=x producer_id=1 sequence=2"],
)
def test_other_texts_name_none(text: str) -> None:
    assert read_question(text) is None


def test_a_topic_with_a_number_at_its_end_and_no_epoch() -> None:
    found = read_question("a-1-2 producer 5 epoch 0 sequences 7..7 may be stored")
    assert found == SequenceQuestion(TopicPartition("a-1", 2), 5, 7, 0)
    assert read_question("topic=a partition=0 producer_id=5 sequence=7") == SequenceQuestion(
        TopicPartition("a", 0), 5, 7
    )


def test_a_stored_record_with_its_repeats() -> None:
    view = view_of(
        resolved(Resolution.COMMITTED, 88_120),
        names=[ProducerName("pay", 17, 2, 1)],
        events=[LED, LEADS, DUPLICATE],
        batches=[STORED, replace(STORED, producer_id=18)],
    )
    assert view.answer == "yes"
    assert view.sentence == (
        'Sequence 4,711 of producer 17 ("pay", epoch 2) is in orders-3 once, at offset 88,120, '
        "since 2025-11-26T13:02:11.000Z, in term 7."
    )
    assert view.details == (
        "Its batch came 3 times: 2 repeats got the offset that it already had, after node 2 became "
        "leader.",
    )
    assert [(row.kind, row.hits) for row in view.rows] == [
        ("leader", False), ("stored", True), ("leader", False), ("duplicate", True),
    ]  # fmt: skip


def test_folded_repeats_of_several_batches_are_not_said_to_be_its_own() -> None:
    folded = replace(DUPLICATE, first_sequence=4000, count=9)
    view = view_of(resolved(Resolution.COMMITTED, 88_120), events=[folded], batches=[STORED])
    assert view.details == (
        "Repeats with sequences 4,000 to 4,740 were answered as duplicates 9 times; it may be one "
        "of them.",
    )


def test_a_stored_record_that_retention_deleted() -> None:
    view = view_of(resolved(Resolution.COMMITTED, 88_120), log_start=90_000)
    assert view.answer == "yes"
    assert "Retention has deleted it since: the log starts at 90,000." in view.sentence


def test_a_record_is_not_said_to_be_there_if_retention_may_have_deleted_it() -> None:
    view = view_of(resolved(Resolution.COMMITTED))
    assert view.sentence.endswith("was stored in orders-3 once; its offset is no longer known, so "
                                  "retention may have deleted it.")  # fmt: skip
    view = view_of(resolved(Resolution.COMMITTED, 88_120), gaps=["stored batches: forbidden"])
    assert "was stored in orders-3 once, at offset 88,120. Whether" in view.sentence
    view = view_of(resolved(Resolution.COMMITTED, 88_120), log_start=0)
    assert view.sentence.endswith("is in orders-3 once, at offset 88,120.")


@pytest.mark.parametrize("after", [[], [replace(LEADS, text="leads partition=orders-3 term=9")]])
def test_a_term_is_told_only_if_no_unknown_leader_may_have_been(after: list[NodeEvent]) -> None:
    """Node 2 led in term 8 and was killed, and its events with it; node 1 led in term 7."""
    found = resolved(Resolution.COMMITTED, 88_120)
    view = view_of(found, events=[LED, *after], batches=[STORED])
    assert view.sentence.endswith("since 2025-11-26T13:02:11.000Z.")


def test_repeats_that_two_nodes_tell_are_counted_together() -> None:
    later = replace(DUPLICATE, node_id=1, first_ms=SOON + 70_000, last_ms=SOON + 70_000, count=1)
    found = resolved(Resolution.COMMITTED, 88_120)
    view = view_of(found, events=[DUPLICATE, later], batches=[STORED])
    assert view.details == (
        "Its batch came 4 times: 3 repeats got the offset that it already had.",
    )


def test_a_question_without_an_epoch_says_which_epoch_is_meant() -> None:
    found = resolved(Resolution.COMMITTED, 88_120)
    view = view_of(found, replace(ASKED, epoch=None), batches=[STORED])
    assert view.details == (
        "No epoch was asked for. Epoch 2 is the newest that stored this sequence; in another epoch "
        "it is another record.",
    )


def test_a_fenced_record_was_never_stored() -> None:
    late = replace(ASKED, sequence=4745)
    found = replace(resolved(Resolution.NEVER), current_epoch=3)
    view = view_of(found, late, events=[FENCED, OPENED])
    assert view.answer == "no"
    assert view.sentence == (
        "Sequence 4,745 of producer 17 (epoch 2) is not in orders-3, and never will be: epoch 3 "
        "fenced it at 2025-11-26T13:02:11.900Z."
    )
    assert view.details == (
        "Sequences 4,741 to 4,750 were refused twice: FENCED: epoch 2 is fenced by 3.",
    )
    assert "epoch 3 fenced it." in view_of(found, late).sentence


def test_a_record_that_may_still_come_and_one_nobody_knows_of() -> None:
    state = ProducerState(17, 2, 4740, SOON, ())
    view = view_of(resolved(Resolution.NOT_YET), replace(ASKED, sequence=4741), states=[state])
    assert (view.answer, "last stored sequence is 4,740" in view.sentence) == ("not yet", True)
    assert view.details == (
        "The partition knows the producer in epoch 2, up to sequence 4,740, since "
        "2025-11-26T13:02:11.000Z.",
    )
    view = view_of(resolved(Resolution.FORGOTTEN), gaps=["events: no answer"])
    assert (view.answer, view.gaps) == ("not known", ("events: no answer",))
    assert view.sentence.endswith("any more, unless the producer is a Kafka client.")


def test_another_epochs_event_is_not_the_record() -> None:
    other = replace(DUPLICATE, epoch=1)
    view = view_of(resolved(Resolution.COMMITTED, 88_120), events=[other], batches=[STORED])
    assert view.details == ()
