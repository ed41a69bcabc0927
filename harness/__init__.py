"""Real nodes as processes on this machine: for the integration tests, the demo and chaos.

The harness speaks to nodes through the generated stubs only: tests share no code with the code
they test. Nothing here imports `cluster` or `storage`.
"""

from __future__ import annotations
