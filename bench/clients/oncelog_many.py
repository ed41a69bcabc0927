"""Many producers of our Python client in one process, one record in flight in each."""

from __future__ import annotations

import time

from bench.clients.common import Asked, Figures, main, until_start
from oncelog.cli import load


def producers(asked: Asked) -> Figures:
    return load.many_producers(
        asked.addresses,
        {"linger.ms": "0", **asked.settings},
        asked.topic,
        size=asked.size,
        seconds=asked.seconds,
        producers=asked.window,
        depth=1,
        connected=lambda: time.sleep(until_start(asked)),
    )


if __name__ == "__main__":
    main({"producers": producers})
