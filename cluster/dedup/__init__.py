"""Deduplication: the verdict on a batch, the last-seen map, a leader's batches in flight. Pure."""
