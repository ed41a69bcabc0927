"""Channels to nodes: plain, or over TLS with this client's certificate or token.

Place in the flow: `cluster` asks a pool for a channel to an address; producers with equal settings
share a pool. Certificate files are read when a channel is made, a token file with each call, so
replaced files are used without a restart.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from oncelog._engine.net.reachability import Reachability
from oncelog.config import ClientConfig
from oncelog.errors import ConfigError

log = logging.getLogger("oncelog.client")

MAX_FILE_BYTES = 1024 * 1024
FILES_LOOK_S = 5.0  # between checks for replaced certificates
_MAX_MESSAGE = 128 * 1024 * 1024
_CONNECT_MS = 2000  # A node that hangs must not hold up what another one answers.
_Stamp = tuple[int, int, int]


class Channels:
    """Makes channels by a client's settings. Raises ConfigError for unusable files."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        names = ("tls_ca_file", "tls_cert_file", "tls_key_file")
        self._files = [(name, path) for name in names if (path := getattr(config, name))]
        self._stamp = self._stamped()
        self._credentials = self._read() if config.secured else None

    def renewed(self) -> bool:
        """Tell whether the files have changed; channels made from now on use them."""
        if not self._files:
            return False
        stamp = self._stamped()
        if stamp == self._stamp or not stamp:
            return False
        try:
            self._credentials = self._read()
        except ConfigError as error:
            # A replacement of two files is half done; checked again later.
            log.debug("new certificates are not used: %s", error)
            return False
        self._stamp = stamp
        return True

    def open(self, address: str) -> grpc.aio.Channel:
        options = self._options()
        if self._credentials is None:
            return grpc.aio.insecure_channel(address, options=options)
        return grpc.aio.secure_channel(address, self._credentials, options=options)

    def _options(self) -> tuple[tuple[str, Any], ...]:
        backoff = self._config
        return (
            ("grpc.max_send_message_length", _MAX_MESSAGE),
            ("grpc.max_receive_message_length", _MAX_MESSAGE),
            ("grpc.primary_user_agent", self._config.client_id),
            # A restarted node must be found again soon, not after two minutes.
            ("grpc.initial_reconnect_backoff_ms", max(100, backoff.retry_backoff_ms)),
            # A name can vanish while a container restarts; resolve it again soon. gRPC's default is
            # 30 s.
            ("grpc.dns_min_time_between_resolutions_ms", 500),
            # Despite its name, the shortest limit of an attempt to connect, TLS and the first
            # frames included.
            ("grpc.min_reconnect_backoff_ms", min(_CONNECT_MS, backoff.request_timeout_ms)),
            ("grpc.max_reconnect_backoff_ms", max(100, backoff.retry_backoff_max_ms)),
            ("grpc.use_local_subchannel_pool", 1),
            # HTTP proxies are for other programs; only gRPC's own variable applies here.
            ("grpc.enable_http_proxy", int("grpc_proxy" in os.environ)),
            ("grpc.http2.lookahead_bytes", 1024 * 1024),
        )

    def _stamped(self) -> tuple[_Stamp, ...]:
        """Return a stamp that changes with the files; empty if one is missing."""
        try:
            return tuple(_stamp_of(path) for _, path in self._files)
        except OSError:
            return ()

    def _read(self) -> grpc.ChannelCredentials:
        held = {name: _bytes(name, path) for name, path in self._files}
        tls = grpc.ssl_channel_credentials(
            held.get("tls_ca_file"), held.get("tls_key_file"), held.get("tls_cert_file")
        )
        config = self._config
        if config.token is None and config.token_file is None:
            return tls
        token = _Token(config.token, config.token_file)
        return grpc.composite_channel_credentials(tls, grpc.metadata_call_credentials(token))


class ChannelPool:
    """A channel for each address, closed when its last user has left.

    Runs on the engine's loop. Raises ConfigError for unusable files.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._made = Channels(config)
        self.reachability = Reachability(config.request_timeout_ms / 1000, time.monotonic)
        self._users: set[object] = set()
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._replaced: list[grpc.aio.Channel] = []
        self._look_at_files = time.monotonic() + FILES_LOOK_S

    @property
    def users(self) -> int:
        return len(self._users)

    def join(self, user: object) -> None:
        self._users.add(user)

    async def leave(self, user: object) -> None:
        self._users.discard(user)
        if self._users:
            return
        channels, self._channels = [*self._replaced, *self._channels.values()], {}
        self._replaced.clear()
        for channel in channels:
            await channel.close()

    def channel(self, address: str) -> grpc.aio.Channel:
        if time.monotonic() >= self._look_at_files:
            self._look_at_files = time.monotonic() + FILES_LOOK_S
            if self._made.renewed():
                # Calls in progress go on over their old channels.
                self._replaced += self._channels.values()
                self._channels.clear()
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._made.open(address)
        return channel


class _Token(grpc.AuthMetadataPlugin):
    """Adds the token to each call; gRPC sends it over TLS only. Called on threads of gRPC."""

    def __init__(self, token: str | None, path: str | None) -> None:
        self._token = token or ""
        self._path = path
        self._stamp: _Stamp | None = None
        self._lock = threading.Lock()
        if path is not None:
            self._current()

    def __call__(self, context: Any, callback: Callable[[Any, Exception | None], None]) -> None:
        try:
            callback((("authorization", f"Bearer {self._current()}"),), None)
        except (ConfigError, OSError) as error:
            callback((), error)

    def _current(self) -> str:
        """Return the present token. Raises ConfigError."""
        if self._path is None:
            return self._token
        with self._lock:
            try:
                stamp = _stamp_of(self._path)
            except OSError as error:
                text = f"token_file: {self._path}: {error.strerror}"
                raise ConfigError(text, "token_file") from None
            if stamp != self._stamp:
                token = _bytes("token_file", self._path).decode("ascii", "replace").strip()
                if not token or not token.isprintable() or not token.isascii():
                    text = f"token_file: {self._path} holds no token in one line of ASCII"
                    raise ConfigError(text, "token_file")
                self._token = token
                self._stamp = stamp
            return self._token


def _stamp_of(path: str) -> _Stamp:
    """Return a stamp that changes with the file. Raises OSError."""
    found = os.stat(path)
    return (found.st_mtime_ns, found.st_ino, found.st_size)


def _bytes(setting: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{setting}: {path}: {error.strerror or error}", setting) from None
    if not 0 < len(data) <= MAX_FILE_BYTES:
        text = "is empty" if not data else f"has more than {MAX_FILE_BYTES} bytes"
        raise ConfigError(f"{setting}: {path} {text}", setting)
    return data
