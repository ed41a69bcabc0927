"""Consumer groups with partitions assigned by the brokers. See README.md."""
