"""Memory of Spark workers: large buffers that come and go are not cleared again each time."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import resource, sys
from oncelog.spark.allocator import keep_large_buffers

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        some = [bytearray(1 << 20) for _ in range(4)]
        del some
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if sys.argv[1] == "keep":
    keep_large_buffers()
faults()
print(faults())
"""


def test_large_buffers_are_used_again() -> None:
    found = {}
    for how in ("keep", "leave"):
        command = [sys.executable, "-c", PROGRAM, how]
        found[how] = int(subprocess.run(command, capture_output=True, check=True).stdout)
    assert found["keep"] < 100 < found["leave"], found
