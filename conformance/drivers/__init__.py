"""Drivers of the clients that are written in Python."""
