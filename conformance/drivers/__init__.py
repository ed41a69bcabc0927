"""Drivers of clients written in Python."""
