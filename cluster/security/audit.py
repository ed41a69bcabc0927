"""Audit log: refused calls, and changes with their callers. JSON lines, one for each call.

    Gate --> Audit.note --> (queue, thread) --> file

Names only: never records, keys, tokens. The node does not wait for the disk: beyond
MAX_WAITING lines the newest are dropped. So are refusals beyond MAX_REFUSED in a second, which
anyone can cause: of a source, of all strangers, of all principals, so that none of them hides the
others. The next line that is written has the number of those dropped.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import unquote

from cluster.errors import ConfigError
from cluster.security.permissions import Need

log = logging.getLogger(__name__)

MAX_WAITING = 10_000
# Lines in a second, of one source, and of all sources of a kind.
MAX_REFUSED_EACH, MAX_REFUSED = 20, 100
SITE_BITS = 64  # of an IPv6 address; its owner has all the others
MAX_RESOURCES = 20  # in one line
MAX_CHARS = 255
CLOSE_TIMEOUT = 5.0  # seconds that the last lines get


class Audit:
    """Appends to one file, which may be moved away: it is opened for each line."""

    def __init__(
        self, path: Path, node_id: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises ConfigError if the file cannot be written."""
        self._path = path
        self._node_id = node_id
        self._lines: queue.Queue[str | None] = queue.Queue(MAX_WAITING)
        self._dropped = 0  # since the last line
        self.dropped = 0  # since the start
        self._clock = clock
        self._second = 0
        self._refused = Counter[str]()  # noted refusals in that second, by source and kind
        try:
            self._append("")
        except OSError as error:
            raise ConfigError(f"audit_file: {path}: {error.strerror or error}") from error
        self._thread = threading.Thread(target=self._write, name="audit", daemon=True)
        self._thread.start()

    def note(
        self, method: str, principal: str, address: str, needs: Iterable[Need], result: str
    ) -> None:
        """Note a call; never waits. result: "ok", or the reason of the error."""
        if result != "ok" and self._is_too_often(principal, address):
            self._drop()
            return
        wanted = list(needs)
        line: dict[str, object] = {
            "time_ms": time.time_ns() // 1_000_000,
            "node": self._node_id,
            "method": method,
            "principal": principal,
            "from": address,
            "needs": [_cut(str(need)) for need in wanted[:MAX_RESOURCES]],
            "result": _cut(result),
        }
        if len(wanted) > MAX_RESOURCES:
            line["more"] = len(wanted) - MAX_RESOURCES
        if self._dropped:
            line["dropped"] = self._dropped
        try:
            self._lines.put_nowait(json.dumps(line))
            self._dropped = 0
        except queue.Full:
            self._drop()

    def _drop(self) -> None:
        self._dropped += 1
        self.dropped += 1

    def _is_too_often(self, principal: str, address: str) -> bool:
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._refused.clear()
        # A principal begins with its kind and a colon, so it is none of the other names.
        kind = "principals" if principal else "strangers"
        source = principal or _site(address)
        refused = self._refused
        if refused[source] >= MAX_REFUSED_EACH or refused[kind] >= MAX_REFUSED:
            return True
        refused[source] += 1
        refused[kind] += 1
        return False

    def close(self) -> None:
        """Write the queued lines, if the file takes them in time: a pipe may have no reader."""
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=CLOSE_TIMEOUT)
        self._thread.join(CLOSE_TIMEOUT)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._append(line + "\n")
            except OSError as error:
                log.error("audit_file: %s: %s", self._path, error)

    def _append(self, text: str) -> None:
        with open(self._path, "a", encoding="utf-8", opener=_private) as file:
            file.write(text)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _site(address: str) -> str:
    """Return the host of a peer's address, of an IPv6 address its site."""
    version, _, rest = address.partition(":")
    host = rest.rpartition(":")[0] or rest
    if version != "ipv6":
        return f"host {host}"
    try:
        site = int(ipaddress.IPv6Address(unquote(host).strip("[]").partition("%")[0]))
    except ValueError:
        return f"host {host}"
    return f"host {site >> 128 - SITE_BITS:x}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS] + "..."
