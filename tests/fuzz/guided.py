"""`python -m tests.fuzz.guided TARGET [libFuzzer options] CORPUS`: one target under atheris.

Our modules are instrumented as they are imported, so new code guides the fuzzer.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    fuzzer: Any = importlib.import_module("atheris")
    with fuzzer.instrument_imports(include=["cluster", "oncelog", "storage"]):
        from tests.fuzz.mutate import attempt
        from tests.fuzz.targets import TARGETS
    name, corpus = sys.argv[1], Path(sys.argv[-1])
    target = TARGETS[name]
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)

    def once(data: bytes) -> None:
        attempt(target, data)
        if target.fix is not None:
            attempt(target, target.fix(data))

    fuzzer.Setup([sys.argv[0], *sys.argv[2:]], once)
    fuzzer.Fuzz()


if __name__ == "__main__":
    main()
