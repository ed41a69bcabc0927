"""Release number, for the client, the node and the packaging. Imports nothing."""

from __future__ import annotations

__version__ = "0.1.0"
