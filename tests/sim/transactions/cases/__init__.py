"""Directed cases: each broke somebody's transactions, or a first design of ours.

The numbers are those of the list in ADR 32, which says what each is about and which of them
need more than these machines. A case is a function that plays on a Stage.
"""

from tests.sim.transactions.cases import ends, late_copies, model, offsets
from tests.sim.transactions.cases.registry import CASES

__all__ = ["CASES", "ends", "late_copies", "model", "offsets"]
