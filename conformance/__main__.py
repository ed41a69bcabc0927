"""Command of the kit: `conformance/run --client COMMAND`. See README.md."""

from __future__ import annotations

import sys

from conformance.command import main

if __name__ == "__main__":
    sys.exit(main())
