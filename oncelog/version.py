"""The release, for the client, the node and the packaging alike. Imports nothing."""

from __future__ import annotations

__version__ = "0.1.0"
