"""Flight recorder of a node: recent events, in memory."""
