"""Simulated cluster of the kit: honest by the nodes' own rules, lying on a case's demand."""
