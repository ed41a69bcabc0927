"""gRPC reflection: describes the node's services to tools without .proto files.

    node's server <-- both versions of ServerReflection -- this file
                      names of all services                <-- needs: each RPC has its line there

Python's gRPC brings `v1alpha` only. `v1` has the same messages under another package name,
which is not on the wire.
"""

from __future__ import annotations

import grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.reflection import aio

from cluster.rpc.required_permissions import NEEDS, OPEN

V1 = "grpc.reflection.v1.ServerReflection"


def add_reflection(offered: grpc.aio.Server) -> None:
    """Add reflection of all services that have a line in `needs`."""
    names = {method.split("/")[1] for method in (*NEEDS, *OPEN)}
    servicer = aio.ReflectionServicer(sorted(names))
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, offered)
    info = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    handlers = grpc.method_handlers_generic_handler(V1, {"ServerReflectionInfo": info})
    offered.add_generic_rpc_handlers((handlers,))
