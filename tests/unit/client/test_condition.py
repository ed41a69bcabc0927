"""A signal handler that raises within the wait of a condition leaves its lock as it was."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from oncelog._engine.net import threads


class HandlerError(Exception):
    pass


def when_released(condition: Any) -> None:
    """Raises once the lock has been given back, before the wait is known to be one."""
    release = condition._release_save

    def raising() -> None:
        release()
        raise HandlerError

    condition._release_save = raising


def before_it_is_taken_again(condition: Any) -> None:
    def raising(state: object) -> None:
        raise HandlerError

    condition._acquire_restore = raising


def interrupted(kind: Any, raises: Any) -> tuple[type[BaseException], bool]:
    """The exception that ends a wait, and whether another thread can then take the lock."""
    lock = threading.RLock()
    condition = kind(lock)
    raises(condition)
    ended: type[BaseException] = type(None)  # type: ignore[assignment]
    try:
        with lock:
            condition.wait(0.001)
    except BaseException as error:  # noqa: BLE001  # of any type
        ended = type(error)
    free: list[bool] = []
    other = threading.Thread(target=lambda: free.append(lock.acquire(blocking=False)))
    other.start()
    other.join()
    return ended, free[0]


@pytest.mark.parametrize("raises", [when_released, before_it_is_taken_again])
def test_the_lock_of_a_wait_that_a_signal_ends_is_free_again(raises: Any) -> None:
    assert interrupted(threads.SharedCondition, raises) == (HandlerError, True)
    # With a plain threading.Condition the program gets an error that is not its own.
    assert interrupted(threading.Condition, raises)[0] is RuntimeError
