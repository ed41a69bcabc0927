"""Raft for many groups on one node, built on pysyncobj."""
