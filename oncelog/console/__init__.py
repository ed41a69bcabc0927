"""Web console: pages that show a cluster, served by a process of its own on the client library."""
