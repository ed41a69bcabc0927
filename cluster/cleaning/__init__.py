"""Which records of a compacted topic stay; see README.md."""
