"""One node: made, wired, maintained and taken down here."""
