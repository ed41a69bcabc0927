"""Spark source: reads a topic; the data source, its options, offsets and readers."""
