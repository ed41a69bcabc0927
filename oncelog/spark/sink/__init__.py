"""A topic as Spark writes it: each row of a query or of a job once."""
