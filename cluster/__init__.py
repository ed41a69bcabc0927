"""The Oncelog node: consensus, partitions, metadata and the gRPC services over them."""

import os

# Read when gRPC is loaded: its server takes what comes on threads of its own and hands that to
# Python's by a queue. Without, a message costs a third less (ADR 81).
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")
