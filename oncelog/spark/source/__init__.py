"""A topic as Spark reads it: the data source, its options, offsets and readers."""
