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

# ConnectionError: nothing listens there. TimeoutError: none came. Another one: it was not asked.
Answer = PageAnswer | OSError


def pages_of(processes: Mapping[int, str], own: Probes) -> dict[str, Page]:
    """Return the machine's pages.

    processes: where each node answers probes; may change. own: of the supervisor.
    """
    return {"/livez": own.pages["/livez"], "/readyz": partial(_readyz, processes)}


def _readyz(processes: Mapping[int, str], query: str) -> PageAnswer:
    told = ask_all("/readyz", processes)
    lines = [f"node {node}: {fault}" for node, answer in told.items() for fault in _faults(answer)]
    return probe_answer("ready", lines)


def ask_all(path: str, processes: Mapping[int, str], timeout: float = TIMEOUT) -> dict[int, Answer]:
    """Return each process's answer."""
    asked = dict(processes)
    with ThreadPoolExecutor(len(asked) or 1) as pool:
        answers = pool.map(partial(_ask, path, timeout), asked.values())
        return dict(zip(asked, answers, strict=True))


def _ask(path: str, timeout: float, address: str) -> Answer:
    connection = http.client.HTTPConnection(*host_and_port(address), timeout=timeout)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read().decode(errors="replace")
        return PageAnswer(HTTPStatus(answer.status), body)
    except OSError as error:
        return error
    except (http.client.HTTPException, ValueError) as error:
        return OSError(f"no answer of HTTP: {error}")
    finally:
        connection.close()


def _faults(answer: Answer) -> Iterator[str]:
    """Yield a process's faults in plain words, none if it is ready."""
    if isinstance(answer, ConnectionError):
        yield "it does not run"
    elif isinstance(answer, TimeoutError):
        yield "it has not answered in time"
    elif isinstance(answer, OSError):
        yield f"it could not be asked: {answer}"
    elif answer.status != HTTPStatus.OK:
        for line in answer.body.splitlines()[1:]:
            yield line.removeprefix("- ")
