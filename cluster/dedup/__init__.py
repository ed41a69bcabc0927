"""May a batch be stored: the verdict, the last-seen map and what a leader has in flight. Pure."""
