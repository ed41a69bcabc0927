"""Answers to probes for a whole machine: asks each of its processes.

    GET /readyz --> a thread of the supervisor's server --GET /readyz--> each process

A process that ended is started again by the supervisor, and the others serve meanwhile. So it
makes the machine unready, but a restart of the machine would not help: it stays alive. The
supervisor takes a process out that it does not start again.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus

from cluster.config.addresses import host_and_port
from cluster.metrics.http import Page, PageAnswer
from cluster.node.health.probes import probe_answer

TIMEOUT = 2.0  # seconds for a process's answer


def pages_of(processes: Mapping[int, str]) -> dict[str, Page]:
    """Return the machine's pages. processes: where each node answers probes; may change."""
    return {
        "/livez": partial(_answer, "alive", "/livez", processes, ""),
        "/readyz": partial(_answer, "ready", "/readyz", processes, "it does not run"),
    }


def _answer(
    good: str, path: str, processes: Mapping[int, str], gone: str, query: str
) -> PageAnswer:
    asked = dict(processes)
    with ThreadPoolExecutor(len(asked) or 1) as pool:
        faults = pool.map(partial(_faults, path, gone), asked.values())
        told = [
            f"node {node}: {fault}"
            for node, each in zip(asked, faults, strict=True)
            for fault in each
        ]
    return probe_answer(good, told)


def _faults(path: str, gone: str, address: str) -> list[str]:
    """Return a process's faults in plain words. gone: the fault of one that does not run."""
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
