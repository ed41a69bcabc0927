"""Partition replicas: applied state, the leader's part, and reads."""
