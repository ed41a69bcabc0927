"""The cluster to call: channels, leaders, retries, and the thread that all clients share."""
