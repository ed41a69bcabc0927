"""Backoff of a partition's preferred node: it leads again some time after a loss.

    Maintenance.look --current leader--> PreferredLeader --may_return--> transfer

A node with a sick disk or a busy loop answers well as a follower and fails as a leader. To
hand leadership back to it each time that it looks well is to lose it each time, and with it
a second of the partition's work. So each loss doubles the wait, until a leadership lasted.
Each node keeps this for itself, from its own replica's view, and forgets it with its process.
"""

from __future__ import annotations

MAX_WAIT = 600.0  # seconds, unless the delay itself is longer
MIN_STEP = 1.0  # seconds: the wait to double if the delay is shorter
HEALTHY = 4  # waits: a leadership that lasted so many was a healthy one


class PreferredLeader:
    """One partition's preferred node, seen from another replica. delay: seconds."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._losses = 0  # in a row, with no healthy leadership between
        self._lost_at = 0.0
        self._led_since: float | None = None

    @property
    def wait(self) -> float:
        """Return the seconds without leadership after the last loss."""
        if self._losses <= 1:
            return self._delay
        step = max(self._delay, MIN_STEP)
        # The exponent is bounded: a float has no room for the power of a year of losses.
        return max(self._delay, min(MAX_WAIT, step * 2.0 ** min(self._losses - 1, 32)))

    def seen(self, now: float, *, leads: bool) -> None:
        """Note whether it leads now, or another node does."""
        if leads:
            if self._led_since is None:
                self._led_since = now
        elif self._led_since is not None:
            healthy = now - self._led_since >= HEALTHY * max(self.wait, MIN_STEP)
            self._losses = 1 if healthy else self._losses + 1
            self._lost_at = now
            self._led_since = None

    def handed_over(self, now: float) -> None:
        """Note that it is asked to lead. If it then does not, or not for long, that is a loss."""
        self._led_since = now

    def may_return(self, now: float) -> bool:
        return self._losses == 0 or now - self._lost_at >= self.wait
