"""Addresses in settings: "host:port", with [brackets] around an IPv6 host. Pure."""

from __future__ import annotations

import ipaddress

from cluster.errors import ClusterError


class ListenError(ClusterError):
    """An address cannot be listened on (in use, not ours, not allowed)."""


def host_and_port(address: str) -> tuple[str, int]:
    """Split "host:port", without the brackets of an IPv6 host."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def with_port(address: str, port: int) -> str:
    """Return the same host at another port."""
    return f"{address.rpartition(':')[0]}:{port}"


def shifted(address: str, offset: int) -> str:
    """Return the same host at a port that is higher by `offset`."""
    return with_port(address, host_and_port(address)[1] + offset)


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches "host:port", as far as its text shows."""
    host, _ = host_and_port(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
