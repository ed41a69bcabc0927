"""Calls to the cluster: channels, leaders, retries, and the thread that all clients share."""
