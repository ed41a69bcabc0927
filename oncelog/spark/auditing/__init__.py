"""Audit of a topic: its faults, counted by Spark and shown on a page."""
