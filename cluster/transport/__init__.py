"""Frames between nodes over TCP: connections, admission, sending."""
