"""Mirror by Spark: a topic copied into another one, each record once."""
