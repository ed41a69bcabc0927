"""One node: creation, wiring, maintenance and shutdown."""
