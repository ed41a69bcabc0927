"""A topic copied into another one by Spark, each record once."""
