"""Spark sink: writes each row of a query or of a job once into a topic."""
