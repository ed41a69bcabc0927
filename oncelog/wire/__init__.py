"""Messages <-> types, errors <-> gRPC status, and the batch codec."""
