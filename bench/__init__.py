"""Benchmarks: `scripts/bench` runs them, docs/performance.md explains them.

run.py        measurements and their order; one section fails, the others go on
limits.py     the machine's own limits, measured in the same run
systems/      Oncelog and its peers behind one small face: start, load, stop
clients/      one program for each peer's client, run as a process of its own
own/          measurements of Oncelog alone: failover, partitions, restart, producers
results.py    measurements as JSON lines
goals.py      goals, and whether they were reached
report.py, plots.py    tables and pictures of the JSON lines
"""
