"""Random lives of a query and its sink: kills, losses, restored checkpoints, and users' repairs.

`scripts/sim --kind sinks --seeds 0..10000` runs many.

The promise: all rows are readable in the end, each once, in their order. A user helps only
where the sink refuses: looks how far it is, and begins there.
"""

from __future__ import annotations

from tests.sim.sinks.driver import Driver
from tests.sim.sinks.world import KEYS, Checkpoint, Violation, World

CHAOS, REST = 600, 20_000  # steps
NEEDS_USER = ("OTHER_QUERY", "OTHER_SINK", "BATCH_BEHIND", "BATCH_GAP", "BATCH_CHANGED")


class Life:
    """A query that a user wants to run, and its state."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.rng = self.world.rng
        self.world.loss = self.rng.choice((0.0, 0.05, 0.15))
        self.queries = 1
        self.used: set[str] = set()  # sinks that have committed something
        self.checkpoint = Checkpoint("q1", KEYS[0])
        self.copies: list[Checkpoint] = []
        self.mended = False
        self.drivers = [Driver(self.world, self.checkpoint)]

    def run(self) -> World:
        for _ in range(CHAOS):
            self.world.step()
            if self.rng.random() < 0.01:
                self.fault()
            self.look()
        self.world.loss = 0.0
        for _ in range(REST):
            self.world.step()
            self.look()
            if self.is_written() and not self.world.coordinator.has_decided:
                break
        self.check()
        return self.world

    # -- faults -------------------------------------------------------------------------

    def fault(self) -> None:
        if self.rng.random() < 0.4:
            self.copies.append(self.checkpoint.copy())
            return
        for driver in self.drivers:  # else it lives on, beside its successor
            if self.rng.random() < 0.7:
                self.world.kill(driver.process)
        draw, known = self.rng.random(), self.checkpoint
        if draw < 0.3:
            known.commits.discard(max(known.commits, default=0))
        elif draw < 0.5 and self.copies:
            self.checkpoint = self.rng.choice(self.copies).copy()
        elif draw < 0.6:
            self.checkpoint = known.copy()
        elif draw < 0.7:
            self.checkpoint = Checkpoint(self.new_query(), self.sink())
        elif draw < 0.8 and self.has_begun():
            self.checkpoint = known.copy()
            self.checkpoint.key = self.rng.choice(KEYS)
        elif draw < 0.9:
            self.write_elsewhere()
        self.mended = False
        self.drivers.append(Driver(self.world, self.checkpoint))

    def write_elsewhere(self) -> None:
        """Writes a batch with this checkpoint into another sink, such as a file for inspection."""
        known, sink = self.checkpoint, self.world.coordinator.sinks.get(self.checkpoint.key)
        last = max(known.commits, default=-1)
        if sink is None or last < 0 or (sink.query, sink.committed_batch) != (known.query, last):
            return  # nobody could know: the first batch of a sink may be any
        end = known.ends[last] + 1
        if end >= self.world.total:
            return  # nor without a batch after it
        for driver in self.drivers:
            self.world.kill(driver.process)
        known.ends[last + 1] = end
        known.commits.add(last + 1)

    def has_begun(self) -> bool:
        """Returns whether the sink has begun; only then may its query be renamed."""
        found = self.world.coordinator.sinks.get(self.checkpoint.key)
        return found is not None and found.query == self.checkpoint.query

    def sink(self) -> str:
        """The sink that has the rows: nobody takes a new query to a new sink and begins at 0."""
        sinks = self.world.coordinator.sinks
        return max(sorted(self.used), key=sinks.last_id, default=KEYS[0])

    def new_query(self) -> str:
        self.queries += 1
        return f"q{self.queries}"

    # -- users --------------------------------------------------------------------------

    def look(self) -> None:
        """Restarts ended queries as their errors ask."""
        self.used |= {key for key, sink in self.world.coordinator.sinks if sink.version}
        newest = self.drivers[-1]
        if not newest.done:
            return
        refused = newest.refused
        if refused is not None and refused.reason in NEEDS_USER:
            self.world.refusals += 1
            if not self.mend(str(refused)):
                return
        elif self.is_written():
            return
        self.drivers = [d for d in self.drivers if not d.done]
        self.drivers.append(Driver(self.world, self.checkpoint))

    def mend(self, text: str) -> bool:
        """Begins where the sink is, with the token of the refusal if there is one. False: later."""
        for driver in self.drivers:
            self.world.kill(driver.process)
        coordinator = self.world.coordinator
        for key in KEYS:
            row = coordinator.open_in(key)
            if row is not None:
                coordinator.abort(row.transaction_id, None, "operator")
        if coordinator.has_decided:
            return False
        token = text.split("sinkReset=")[1].split(maxsplit=1)[0] if "sinkReset=" in text else ""
        known = self.checkpoint
        if not self.mended:
            query = known.query if self.rng.random() < 0.5 else self.new_query()
            key = self.rng.choice(KEYS) if query == known.query else self.sink()
            self.checkpoint = Checkpoint(query, key, self.rng.randint(0, 3))
            token = token if self.rng.random() < 0.1 else ""  # of another refusal
        else:
            self.world.resets += 1
            self.checkpoint = Checkpoint(known.query, known.key, known.first)
        self.checkpoint.start, self.checkpoint.reset = self.written(), token
        self.copies.clear()
        self.mended = True
        return True

    # -- the promise --------------------------------------------------------------------

    def written(self) -> int:
        """Number of readable rows."""
        return sum(map(len, self.world.readable.values()))

    def is_written(self) -> bool:
        return self.written() >= self.world.total

    def check(self) -> None:
        for group, rows in self.world.readable.items():
            wanted = [row for row in range(self.world.total) if 1 + row % 2 == group]
            if rows != wanted:
                raise Violation(f"partition {group} has {rows}, not {wanted}")


def run_seed(seed: int) -> World:
    """Raises Violation."""
    return Life(seed).run()
