"""Scrape targets of this node's machine, for Prometheus's service discovery by HTTP.

Prometheus --GET /targets--> any process of the machine --> the metrics pages of all of them
"""

from __future__ import annotations

import json
from http import HTTPStatus

from cluster.config.addresses import host_and_port, shifted, with_port
from cluster.config.node_config import NodeConfig
from cluster.config.settings import PROCESS_STEP
from cluster.metrics.http import PageAnswer


def scrape_targets(config: NodeConfig) -> PageAnswer:
    """Return the list, at the host that clients are told."""
    own = with_port(config.advertised, host_and_port(config.metrics_listen)[1])
    first = -(config.process or 0)
    groups = []
    for process in range(first, first + config.processes):
        labels = {
            "__scheme__": "http" if config.tls_cert is None else "https",
            "node": str(config.node_id + PROCESS_STEP * process),
            **{name: text for name in ("rack", "machine") if (text := getattr(config, name))},
        }
        groups.append({"targets": [shifted(own, PROCESS_STEP * process)], "labels": labels})
    return PageAnswer(HTTPStatus.OK, json.dumps(groups) + "\n", "application/json")
