"""Sending: records become batches, get their sequences and go to leaders until all are answered."""
