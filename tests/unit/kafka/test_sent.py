"""Age of calls by their connections."""

from __future__ import annotations

import pytest

from cluster.kafka import sent as module
from cluster.kafka.sent import DelayedCallError, Newest, Sent


def is_delayed(sent: Sent, name: str, transaction_id: int) -> bool:
    try:
        sent.check(name, transaction_id)
    except DelayedCallError:
        return True
    return False


def test_an_end_means_what_began_before_its_connection_or_over_it() -> None:
    sent = Sent(5)
    assert [is_delayed(sent, "a", number) for number in (4, 5, 6)] == [False, True, True]
    sent.added("a", 6)
    assert [is_delayed(sent, "a", number) for number in (4, 5, 6, 7)] == [False, True, False, True]
    assert is_delayed(sent, "b", 6)
    sent.added("a", 8)
    assert is_delayed(sent, "a", 6)


def test_a_connection_remembers_so_many_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of a forgotten one comes again, over a newer connection."""
    monkeypatch.setattr(module, "MAX_ADDED", 2)
    sent = Sent(1)
    for number, name in enumerate("abac", 1):
        sent.added(name, number)
    assert not is_delayed(sent, "a", 3) and not is_delayed(sent, "c", 4)
    assert is_delayed(sent, "b", 2) and not is_delayed(Sent(3), "b", 2)


def test_offsets_come_by_the_newest_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NEWEST", 2)
    newest, old, new = Newest(), Sent(1), Sent(1)
    for client, sent in (("a", old), ("a", new), ("a", new), ("b", old)):
        newest.check(client, sent)
    with pytest.raises(DelayedCallError):
        newest.check("a", old)
    newest.check("c", old)  # only two are kept
    newest.check("b", old)
    newest.check("a", old)
