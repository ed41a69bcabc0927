"""gRPC servicers of a node: decode, call, encode; nothing else."""
