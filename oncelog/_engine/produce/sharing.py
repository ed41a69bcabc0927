"""Connections shared by a process's producers: a channel and a stream to each node.

Place in the flow: `Producer` joins, its `cluster` takes channels from the pool, its `sender` takes
a lane of a stream. A small record costs far less in a message with others (ADR 72).

Producers share only if their settings towards the nodes are equal, and their batches may be sent
again without harm: one producer's error may end the stream of all. A producer with a name has its
own connections, since a transaction's batch may hold up later ones on a stream.
"""

from __future__ import annotations

import dataclasses
import os
from weakref import WeakValueDictionary

from oncelog._engine.net.channels import ChannelPool
from oncelog._engine.net.founding import ClientFounding
from oncelog._engine.produce.stream import ProduceStream
from oncelog.config import ClientConfig, ProducerConfig

_MOST_TIMEOUT_MS = 600_000  # the nodes' limit

# Interval of a producer's timeout checks; with many producers it is longer.
_TICK_S, _SLOWEST_TICK_S, _LOOKS_PER_S = 0.1, 0.5, 640

_Key = tuple[object, ...]


class Connections:
    """Connections of one producer, or of several. Raises ConfigError for unusable files."""

    def __init__(self, config: ClientConfig) -> None:
        self.pool = ChannelPool(config)
        self._timeout_ms = config.request_timeout_ms
        self._streams: dict[tuple[str, str], ProduceStream] = {}  # by address and founding

    @classmethod
    def of(cls, config: ProducerConfig) -> Connections:
        """Return the connections for a producer with these settings."""
        if not config.enable_idempotence or config.producer_name:
            return cls(config)
        key = tuple(getattr(config, one.name) for one in dataclasses.fields(ClientConfig))
        found = _shared.get(key)
        if found is None:
            found = _shared[key] = cls(config)
        return found

    @property
    def tick_s(self) -> float:
        return min(_SLOWEST_TICK_S, max(_TICK_S, self.pool.users / _LOOKS_PER_S))

    def stream(self, address: str, founding: ClientFounding, *, alone: bool) -> ProduceStream:
        """Return a stream that is open, or opens itself; alone: shared with no other producer."""
        if alone:
            return self._opened(address, founding)
        key = address, founding.known
        stream = self._streams.get(key)
        if stream is None or stream.is_closing:
            stream = self._streams[key] = self._opened(address, founding)
        return stream

    def _opened(self, address: str, founding: ClientFounding) -> ProduceStream:
        return ProduceStream(
            address,
            self.pool.channel(address),
            founding.metadata,
            connect_timeout_s=min(2.0, self._timeout_ms / 1000),
            commit_timeout_ms=min(max(1, self._timeout_ms * 4 // 5), _MOST_TIMEOUT_MS),
        )


_shared: WeakValueDictionary[_Key, Connections] = WeakValueDictionary()
# A forked child has none of the streams' tasks.
os.register_at_fork(after_in_child=_shared.clear)
