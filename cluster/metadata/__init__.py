"""The cluster metadata as a replicated state: topics, nodes, producer ids and names. Pure."""
