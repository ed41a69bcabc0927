"""One partition replica: what it applies, what its leader keeps, what it reads."""
