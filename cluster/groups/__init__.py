"""Consumer groups whose partitions the brokers share out. See README.md."""
