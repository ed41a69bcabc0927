"""The Oncelog node: consensus, partitions, metadata and the gRPC services over them."""
