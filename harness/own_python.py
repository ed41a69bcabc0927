"""Switch to the project's own interpreter, for scripts written in Python.

Such scripts start with any `python3` and call `start_with` before any import from outside the
standard library. Shell scripts call scripts/setup instead.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def start_with(package: str, *extras: str) -> None:
    """Returns if this interpreter has the package; else sets the project's own up and starts again.

    An interpreter that has it need not be the project's.
    """
    if importlib.util.find_spec(package) is not None:
        return
    done = subprocess.run([ROOT / "scripts" / "setup", "--quiet", *extras], check=False)
    if done.returncode:
        sys.exit(done.returncode)  # scripts/setup has printed the reason
    python = Path(os.environ.get("SETUP_VENV", ROOT / ".venv")) / "bin" / "python"
    importlib.invalidate_caches()
    if importlib.util.find_spec(package) is None:
        if sys.executable == str(python):
            sys.exit(f"{python} lacks {package}: remove {python.parent.parent} and start again")
        os.execv(python, [str(python), *sys.argv])
