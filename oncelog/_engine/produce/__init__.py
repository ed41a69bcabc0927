"""Records become batches, get their sequences and go to leaders until each has an answer."""
