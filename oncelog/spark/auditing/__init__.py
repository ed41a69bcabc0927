"""What is wrong with a topic, counted by Spark and shown on a page."""
