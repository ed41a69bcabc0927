"""Command `oncelog`: topics, records, the cluster, producers, groups, mirrors, measurements.

Place in the flow: a thin layer over Admin, Producer and Consumer. The exit code is 0 only if the
command succeeded; errors are one line on stderr.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> None:
    """Run the console script."""
    if find_spec("click") is None:
        print(
            "oncelog: the command line needs the package click: pip install 'oncelog[cli]'",
            file=sys.stderr,
        )
        raise SystemExit(1)
    from oncelog.cli.app import run

    run()


__all__ = ["main"]
