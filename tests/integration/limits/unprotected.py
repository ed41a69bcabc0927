"""`python -m tests.integration.limits.unprotected`: a node without its guards against scarcity.

Tests show by it that their attack is one.
"""

from __future__ import annotations

import sys
from unittest.mock import patch

from cluster.__main__ import main
from cluster.metrics import http
from cluster.node.health.descriptors import Shares
from storage import errors, system
from storage.commitlog import log

PLENTY = 1_000_000

if __name__ == "__main__":
    no_space = tuple(set(system.NO_SPACE) - set(errors.NO_DESCRIPTORS))
    full = tuple(text for text in errors._FULL if text != "Too many open files")
    with (
        patch.object(Shares, "of", lambda _: Shares(PLENTY, 256, PLENTY)),
        patch.object(http, "MOST", PLENTY),
        patch.object(errors, "_FULL", full),
        patch.object(errors, "NO_DESCRIPTORS", ()),
        patch.object(log, "NO_DESCRIPTORS", ()),
        patch.object(log, "NO_SPACE", no_space),
    ):
        sys.exit(main())
