"""Answers to probes for a whole machine: asks each of its processes.

    GET /readyz --> a thread of the supervisor's server --GET /readyz--> each process
    GET /livez  --> the supervisor's own event loop turns

A process that ended or hangs is started again by the supervisor (hangs.py), and the others serve
meanwhile. So it makes the machine unready, but a restart of the machine would not help: it stays
alive. The supervisor takes a process out that it does not start again.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus

from cluster.config.addresses import host_and_port
from cluster.metrics.http import Page, PageAnswer
from cluster.node.health.probes import Probes, probe_answer

TIMEOUT = 2.0  # seconds for a process's answer


def pages_of(processes: Mapping[int, str], own: Probes) -> dict[str, Page]:
    """Return the machine's pages.

    processes: where each node answers probes; may change. own: of the supervisor.
    """
    return {"/livez": own.pages["/livez"], "/readyz": partial(_readyz, processes)}


def _readyz(processes: Mapping[int, str], query: str) -> PageAnswer:
    told = faults_of("/readyz", processes, "it does not run")
    lines = [f"node {node}: {fault}" for node, faults in told.items() for fault in faults]
    return probe_answer("ready", lines)


def faults_of(path: str, processes: Mapping[int, str], gone: str = "") -> dict[int, list[str]]:
    """Return each node's faults in plain words, none if it is well.

    gone: the fault of one that does not run; empty: that is none.
    """
    asked = dict(processes)
    with ThreadPoolExecutor(len(asked) or 1) as pool:
        faults = pool.map(partial(_faults, path, gone), asked.values())
        return dict(zip(asked, faults, strict=True))


def _faults(path: str, gone: str, address: str) -> list[str]:
    connection = http.client.HTTPConnection(*host_and_port(address), timeout=TIMEOUT)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read().decode(errors="replace")
    except ConnectionError:
        return [gone] if gone else []
    except (OSError, http.client.HTTPException):
        return ["it has not answered in time"]
    finally:
        connection.close()
    return [] if answer.status == HTTPStatus.OK else [*_lines(body)]


def _lines(body: str) -> Iterator[str]:
    for line in body.splitlines()[1:]:
        yield line.removeprefix("- ")
