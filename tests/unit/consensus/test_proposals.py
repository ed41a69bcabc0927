"""A leader's appends in one round, and the order of its answers."""

from __future__ import annotations

from cluster.consensus.port import NO_OP
from cluster.consensus.proposals import MAX_SLICE_BYTES, Applied, Outcome, Proposals

THIRD = bytes(MAX_SLICE_BYTES // 3)


def test_a_round_has_a_limit_and_what_waits_for_confirmation_keeps_its_place():
    """Before, 64 MiB that waited for an fsync were written at once, on the event loop."""
    proposals, done = Proposals(), list[str]()

    def waiter(name: str):
        def answered(outcome: Outcome) -> None:
            done.append(name)

        return answered

    for number in range(4):
        proposals.propose(THIRD, waiter(f"batch {number}"))
    proposals.confirm(waiter("confirmed"))
    first = proposals.take()
    assert [data for data, _ in first] == [THIRD] * 3
    proposals.propose(b"later", waiter("later"))
    second = proposals.take()
    assert [data for data, _ in second] == [THIRD, NO_OP, b"later"]
    assert not proposals.queued
    for _, answered in first + second:
        answered(Applied(1, None))
    assert done == [*(f"batch {number}" for number in range(4)), "confirmed", "later"]


def test_one_proposal_may_be_larger_than_a_round():
    proposals = Proposals()
    for _ in range(2):
        proposals.propose(bytes(2 * MAX_SLICE_BYTES), lambda outcome: None)
    assert [len(proposals.take()) for _ in range(2)] == [1, 1]
