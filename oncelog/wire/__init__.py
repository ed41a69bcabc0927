"""Wire format: messages <-> types, errors <-> gRPC status, and the batch codec."""
