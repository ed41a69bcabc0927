"""Frames between nodes over TCP: connections, what is refused, what is sent."""
