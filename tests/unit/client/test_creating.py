"""A topic that may have been created though the answer was lost."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog._engine.admin import AdminCore
from oncelog.errors import (
    BrokerUnavailableError,
    InvalidRequestError,
    NotAuthorizedError,
    OncelogError,
    TopicAlreadyExistsError,
)


def admin_of(answers: list[OncelogError]) -> AdminCore:
    """Admin of a cluster whose first answer was lost, and that gives these in turn."""

    async def call(
        method: object,
        request: object,
        *,
        on_retry: Callable[[OncelogError], None] | None = None,
        **more: object,
    ) -> None:
        if on_retry is not None:
            on_retry(BrokerUnavailableError("a:1: Socket closed"))
        raise answers.pop(0)

    cluster: Any = SimpleNamespace(call=call, config=SimpleNamespace(request_timeout_ms=10_000))
    return AdminCore(cluster)


REFUSED = NotAuthorizedError("describe topic t")


async def test_the_doubt_stays_if_the_topic_cannot_be_described() -> None:
    admin = admin_of([TopicAlreadyExistsError("there is one; in doubt"), REFUSED])
    with pytest.raises(TopicAlreadyExistsError, match="in doubt"):
        await admin.create_topic("t", 1, 1, None, 1000)
    admin = admin_of([InvalidRequestError("there are 2; in doubt", field="partitions"), REFUSED])
    with pytest.raises(InvalidRequestError, match="in doubt"):
        await admin.resize_topic("t", 2, 0, False, 1000)
