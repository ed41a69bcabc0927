"""Command `oncelog`: topics, records, the cluster, producers, groups, mirrors, measurements.

Place in the flow: a thin layer over Admin, Producer and Consumer. The exit code is 0 only if the
command succeeded; errors are one line on stderr.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the console script."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        print(
            f"oncelog: the command line needs the package {error.name}: pip install 'oncelog[cli]'",
            file=sys.stderr,
        )
        raise SystemExit(1) from None
    from oncelog.cli.app import run

    run()


__all__ = ["main"]
