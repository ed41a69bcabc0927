"""Simulation of transactions: directed cases, some seeds, and the catcher of each weakness.

`scripts/sim --kind transactions` runs many more seeds.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim.transactions.cases import CASES
from tests.sim.transactions.run import run_seed
from tests.sim.transactions.weak import WEAKNESSES, planted

SEEDS = range(400)
PER_TEST = 50
# A case that must catch the weakness, beside the seeds.
CAUGHT_BY = {
    "ended-is-forgotten": "c01_staged_batch_proposed_behind_the_marker",
    "an-abort-keeps-the-sequence": "c09_aborted_sequences_are_sent_again",
    "staged-before-registered": "c28_checkpoint_and_restart_with_many_runs",
    "commit-without-a-check": "c13_commit_before_the_tail_has_arrived",
    "losers-are-published": "c46_losers_and_replaced_runs_of_a_sink",
    "an-open-does-not-wait": "c14_c38_successor_comes_while_it_is_being_published",
    "duplicates-by-the-last-sequence": "c34_tail_that_another_transaction_brought",
    "below-open-low-by-the-last-sequence": "c33_copies_after_everybody_forgot",
    "any-first-batch-begins-a-run": "c48_second_batch_of_a_run_comes_first",
    "a-run-does-not-fence": "c39_staged_successor_is_aborted_and_the_zombie_writes",
    "a-commit-brings-its-epoch": "c14_c38_successor_comes_while_it_is_being_published",
    "plain-beside-a-run": "c37_plain_batch_between_decision_and_marker",
    "a-repeated-marker-counts": "c07_marker_is_proposed_twice",
    "any-commit-of-a-committed-one-is-right": "c36_two_commits_that_name_other_runs",
    "registered-after-the-end": "c02_staged_batch_where_nobody_remembers_the_transaction",
    "what-is-staged-is-never": "c14_what_is_being_published_is_not_never",
    "a-lease-leaves-transactions-open": "c14_successor_comes_while_it_is_open",
    "begin-without-order": "c40_delayed_begin",
    "the-last-one-of-an-owner-is-forgotten": "c05_commit_repeated_over_leader_changes",
    "the-one-before-is-forgotten": "c05_commit_that_begins_the_next_one_is_repeated",
    "open-low-too-high": "c28_checkpoint_and_restart_with_many_runs",
    "markers-only-once": "c07_metadata_leader_goes_after_one_marker_of_many",
    "deleted-partitions-are-waited-for": "c18_topic_deleted_between_decision_and_marker",
    "a-deleted-partition-is-left-out": "c18_topic_deleted_before_the_commit",
    "batches-of-a-sink-overtake": "c46_next_batch_of_a_sink_before_the_markers",
    "offsets-before-records": "c43_marker_of_the_offsets_comes_last",
    "commits-beside-staged-offsets": "c25_new_owner_that_seeks",
    "a-fetch-does-not-wait": "c44_manual_group_restarts_between_decision_and_marker",
    "a-fetch-waits-for-the-decision-only": "c44_manual_group_restarts_between_decision_and_marker",
    "a-member-is-its-ownership": "c25_ownership_that_was_lost_and_won_again",
    "all-that-is-staged-is-stored": "c45_calls_that_come_in_another_order",
    "staged-offsets-in-any-order": "c45_calls_that_come_in_another_order",
    "offsets-after-the-end-are-staged": "c45_offsets_after_the_end",
    "overtaken-transactions-stay-open": "c25_old_owner_is_gone",
    "kafka-sequences-come-back": "k01_aborted_sequences_are_used_up",
    "an-end-counts-however-old-it-is": "k08_delayed_end",
    "offsets-count-however-old-they-are": "k14_delayed_offsets",
    "offsets-of-a-group-that-was-not-added": "k14_delayed_offsets",
    "a-kafka-commit-is-its-decision": "k08_delayed_end_while_leaders_acknowledge",
    "kafka-offsets-are-those-of-the-decision": "k08_delayed_end_while_offsets_are_staged",
    "native-sequences-are-used-up": "c09_aborted_sequences_are_sent_again",
    "used-up-at-the-next-offset": "k03_abort_before_the_first_record",
    "used-up-and-duplicates-again": "k02_batch_of_an_aborted_transaction_comes_in_the_next",
    "the-rest-of-an-expired-one-goes-on": "k04_rest_of_an_expired_transaction",
    "an-end-is-answered-at-its-decision": "k07_end_is_answered_when_its_markers_are_applied",
    "any-end-counts": "k06_end_at_a_node_that_knows_the_one_before",
    "an-end-goes-on-with-the-next": "k12_end_that_waits_while_its_client_goes_on",
    "offsets-believe-an-old-copy": "k13_offsets_at_a_node_that_knows_the_transaction_before",
    "an-old-copy-is-believed": "k07_batch_at_a_leader_that_knows_the_one_before",
    "each-lease-is-another": "k10_lease_is_repeated",
    "a-lease-does-not-wait": "k09_successor_waits_for_the_end_of_its_predecessor",
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    CASES[name]()


@pytest.mark.parametrize("first", SEEDS[::PER_TEST])
def test_seeds(first: int) -> None:
    results = [run_seed(seed) for seed in range(first, first + PER_TEST)]
    assert [(r.seed, r.error) for r in results if r.error] == []
    assert sum(r.counts["committed"] for r in results) > PER_TEST
    assert sum(r.counts["aborted"] for r in results) > PER_TEST


def test_a_seed_replays() -> None:
    assert run_seed(7) == run_seed(7)


def outcome(play: Callable[[], None]) -> str:
    try:
        play()
    except Exception as error:  # noqa: BLE001 - any error is a catch
        return f"{type(error).__name__}: {error}"
    return ""


def test_every_weakness_has_a_case() -> None:
    assert CAUGHT_BY.keys() == WEAKNESSES.keys()


@pytest.mark.parametrize("name", WEAKNESSES)
def test_weakness_is_caught(name: str) -> None:
    with planted(name):
        error = outcome(CASES[CAUGHT_BY[name]])
    assert error
