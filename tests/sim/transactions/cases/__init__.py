"""Directed cases: each broke transactions elsewhere, or in an early design of Oncelog.

The numbers are those of the list in ADR 32, which describes each case and names those that need
more than these machines. A case is a function that plays on a Stage.
"""

from tests.sim.transactions.cases import ends, kafka, late_copies, model, offsets
from tests.sim.transactions.cases.registry import CASES

__all__ = ["CASES", "ends", "kafka", "late_copies", "model", "offsets"]
