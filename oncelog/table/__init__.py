"""Tables of topics: `oncelog table` and the Spark reader of table and topic.

Needs the extra `table`. Importing this package imports neither Arrow nor Delta.
"""
