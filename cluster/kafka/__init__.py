"""Kafka's protocol: its batches, stored as they are. See README.md."""
