"""Errors of a repeated call's attempts: chooses the one to raise when the time is over.

Place in the flow: `cluster`, and all others that repeat calls until a deadline, note each failed
attempt here. The last attempt is cut short by the deadline; its timeout must not hide a node's
refusal. Pure.
"""

from __future__ import annotations

import copy

from oncelog.errors import (
    BrokerUnavailableError,
    DeliveryError,
    OncelogError,
    RequestTimeoutError,
    RetriableError,
)


class Attempts:
    """Failed attempts of one call, or of calls for one purpose."""

    def __init__(self) -> None:
        self.last: OncelogError | None = None
        # The last error of those that tell the most.
        self.telling: OncelogError | None = None
        self._in_doubt = False

    def failed(self, error: OncelogError) -> None:
        self.last = error
        self._in_doubt |= may_have_been_done(error) or error.outcome == "unknown"
        if self.telling is None or _rank(error) >= _rank(self.telling):
            self.telling = error

    def clear(self) -> None:
        """Forget all errors: an attempt has succeeded."""
        self.last = self.telling = None
        self._in_doubt = False

    def error(self) -> OncelogError:
        """Return the most telling error. Its outcome is `unknown` if an attempt had no answer."""
        assert self.telling is not None, "an attempt has failed"
        return self.with_doubt(self.telling)

    def late(self, text: str) -> OncelogError:
        """Return the same with this text before it; a timeout if no node has answered."""
        if self.telling is None:
            return RequestTimeoutError(text)
        late = self.error()
        message = f"{text}: {late.message}"
        if not tells(self.telling):
            late, doubt = RequestTimeoutError(), late.outcome
            late.outcome, late.unsent = doubt, self.telling.unsent
        late.args = (message,)
        return late

    def final(self, error: OncelogError) -> OncelogError:
        """Return an answer that ends the call, with the doubt of an attempt that had none.

        That attempt may have been executed: a final refusal speaks for the last one alone.
        """
        if not self._in_doubt:
            return error
        twin = copy.copy(error)
        doubt = "an earlier attempt had no answer and may have taken effect"
        twin.args = (f"{error.message}; {doubt}",)
        if not isinstance(twin, DeliveryError):  # its outcome is that of records
            twin.outcome = "unknown"
        return twin

    def with_doubt(self, error: OncelogError) -> OncelogError:
        """Return a copy of this error, with the last attempt's text if that is another one."""
        twin = copy.copy(error)
        if self.last is not None and self.last is not error and not tells(self.last):
            twin.args = (f"{error.message}; the last attempt: {self.last.message}",)
        if self._in_doubt and isinstance(twin, RetriableError):
            twin.outcome = "unknown"
        return twin


def tells(error: OncelogError) -> bool:
    """Tell whether a node has said this: its own refusal, or its own view of the cluster."""
    return _rank(error) > 1


def _rank(error: OncelogError) -> int:
    if error.from_node or not isinstance(error, RequestTimeoutError | BrokerUnavailableError):
        return 2
    return isinstance(error, BrokerUnavailableError)  # more than a deadline of our own


def may_have_been_done(error: OncelogError) -> bool:
    """Tell whether a node may have executed a call that it did not answer."""
    lost = isinstance(error, RequestTimeoutError | BrokerUnavailableError)
    return lost and not error.unsent
