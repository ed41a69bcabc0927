"""Subscription of a group's member: names of topics, and patterns of names.

Patterns are RE2's, because they come from clients and run on the node's event loop: RE2
takes time in proportion to the name, whichever pattern it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import re2

from cluster.services.requests import count_in_range, invalid

MAX_TOPICS = 100  # names and patterns of one member
MAX_PATTERN_CHARS = 500
PATTERN = "^"


class Subscription:
    """Checked names and patterns. Raises InvalidRequestError."""

    def __init__(self, topics: Iterable[str]) -> None:
        wanted = list(topics)
        count_in_range("topics", len(wanted), 1, MAX_TOPICS)
        self.names = frozenset(name for name in wanted if not name.startswith(PATTERN))
        self._patterns = [_compiled(one) for one in wanted if one.startswith(PATTERN)]

    def topic_ids(self, names: Mapping[int, str]) -> frozenset[int]:
        """Return the ids of the matching topics in `names` (topic id -> name)."""
        return frozenset(topic_id for topic_id, name in names.items() if self._takes(name))

    def _takes(self, name: str) -> bool:
        return name in self.names or any(one.fullmatch(name) for one in self._patterns)


def _compiled(pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN_CHARS:
        text = f"a pattern of {len(pattern)} characters, the limit is {MAX_PATTERN_CHARS}"
        raise invalid("topics", text, f"1..{MAX_PATTERN_CHARS}")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise invalid("topics", f"{pattern!r} is not a pattern: {error}") from None
