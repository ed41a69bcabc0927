"""Known weaknesses, planted one at a time: they measure the simulator.

Each mutation patches the running code with a bug of pysyncobj, Kafka or an earlier version of
Oncelog (`weak_consensus`, `weak_verdicts`). A mutation that nothing catches means that the
simulator lacks a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import tests.sim.compaction.cleaning_schedules
import tests.sim.compaction.schedules
import tests.sim.kafka.schedules
import tests.sim.membership.balances
import tests.sim.membership.contact_schedules
import tests.sim.membership.founding_schedules
import tests.sim.membership.learner_schedules
import tests.sim.membership.loss_schedules
import tests.sim.membership.many_schedules
import tests.sim.membership.mixed_schedules
import tests.sim.membership.node_schedules
import tests.sim.membership.put_back_schedules
import tests.sim.membership.repair_schedules
import tests.sim.membership.rest_schedules
import tests.sim.membership.schedules
import tests.sim.membership.size_schedules
import tests.sim.membership.survivor_schedules
import tests.sim.membership.voter_schedules  # noqa: F401 - they register their schedules
from tests.sim import (  # noqa: F401 - they register theirs
    clocks,
    contract,
    damaged,
    found,
    liveness,
    long_work,
    uneven,
    years,
)
from tests.sim.run import run_seed
from tests.sim.schedules import SCHEDULES


@dataclass(frozen=True, slots=True)
class Mutation:
    """A planted weakness; `plant` returns (object, attribute, replacement) for each patch."""

    name: str
    weakness: str
    plant: Callable[[], list[tuple[Any, str, Any]]]

    @contextmanager
    def planted(self) -> Iterator[None]:
        patches = self.plant()
        before = [(target, name, target.__dict__[name]) for target, name, _ in patches]
        for target, name, value in patches:
            setattr(target, name, value)
        try:
            yield
        finally:
            for target, name, value in before:
                setattr(target, name, value)


MUTATIONS: list[Mutation] = []


def mutation(weakness: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Registers a function that returns patches, under its own name."""

    def register(plant: Callable[[], Any]) -> Callable[[], Any]:
        MUTATIONS.append(Mutation(plant.__name__.replace("_", "-"), weakness, plant))
        return plant

    return register


def named(name: str) -> Mutation:
    return next(one for one in MUTATIONS if one.name == name)


@dataclass(slots=True)
class Caught:
    """Catchers of a mutation: directed schedules, and `failed` of `runs` seeds."""

    schedules: list[str] = field(default_factory=list)
    runs: int = 0
    failed: int = 0
    error: str = ""

    def __bool__(self) -> bool:
        return bool(self.schedules or self.failed)


def catch(mutation: Mutation, seeds: Iterable[int], duration: float, enough: int = 3) -> Caught:
    """Runs all schedules, and seeds until `enough` of them failed, with the mutation planted."""
    caught = Caught()
    for name, script in SCHEDULES.items():
        with mutation.planted():
            error = outcome(script)
        if error:
            caught.schedules.append(name)
            caught.error = caught.error or error
    for seed in seeds:
        with mutation.planted():
            result = run_seed(seed, duration=duration)
        caught.runs += 1
        if result.error:
            caught.failed += 1
            caught.error = caught.error or result.error
        if caught.failed >= enough:
            break
    return caught


def outcome(script: Callable[[], None]) -> str:
    """Runs a schedule; returns its error, empty if there was none."""
    try:
        script()
    except Exception as error:  # noqa: BLE001 - any error is the schedule's result
        return f"{type(error).__name__}: {error.__cause__ or error}"
    return ""
