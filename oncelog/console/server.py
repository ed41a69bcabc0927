"""Server of a console: binds the address, prints the link, serves until a signal."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from oncelog.console.app import Console
from oncelog.console.connections import bounded
from oncelog.console.listening import ConsoleConfig
from oncelog.errors import ConfigError

BACKLOG = 128
MAX_CONNECTIONS = 100  # beyond them those end that wait for a request
KEEP_ALIVE_S = 30
GRACE_S = 5  # for requests in progress at the end


def serve(config: ConsoleConfig, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. ready: called with the first link once it listens.

    Raises ConfigError if the address cannot be used.
    """
    listener = _listen(config)
    console = Console(config)
    link = config.url(listener.getsockname()[1])
    if config.login == "own":
        link += f"enter?key={console.sessions.key}"
    settings = uvicorn.Config(
        console.app(),
        http=bounded(MAX_CONNECTIONS),
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=config.cert_file,
        ssl_keyfile=config.key_file,
    )
    try:
        settings.load()
    except OSError as error:
        listener.close()
        raise ConfigError(f"https_cert_file, https_key_file: {error}", "https_cert_file") from None
    ready(link)
    uvicorn.Server(settings).run(sockets=[listener])


def _listen(config: ConsoleConfig) -> socket.socket:
    host = config.host.strip("[]")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, config.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        text = f"listen: {config.host}:{config.port}: {error.strerror or error}"
        raise ConfigError(text, "listen") from None
    return listener


__all__ = ["serve"]
