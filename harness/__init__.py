"""Real nodes as processes on this machine: for the integration tests, the demo and chaos.

Speaks to nodes through the generated stubs only, so that what is tested and what tests
it share no code. Nothing here imports `cluster` or `storage`.
"""

from __future__ import annotations
