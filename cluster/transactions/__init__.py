"""Transactions: the coordinator's states and a partition's staged runs. Pure."""
