"""Names in a certificate: its subject alternative names and nothing else. Pure.

A name is taken as it stands, byte for byte: no wildcard, no change of case, no common name.
A signed name that only resembles a valid one is refused.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from cryptography import x509

MAX_NAME_CHARS = 255
MAX_NODES = 64  # as many as processes of one machine
_SCHEME = "oncelog://"  # of nodes; never a client's
_NODE_ID = re.compile(r"[1-9][0-9]{0,9}")
# No user, query, fragment or percent sign: other readers parse their content differently.
_URI = re.compile(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9._~:/-]+")
_DNS = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")


class NamelessError(ValueError):
    """A certificate without a name that can be let in; the text gives the reason."""


def node_uri(cluster_id: str, node_id: int) -> str:
    """Return the name in a node's certificate for its peers."""
    return f"{_SCHEME}{quote(cluster_id, safe='')}/node/{node_id}"


def nodes_of(der: bytes, cluster_id: str) -> frozenset[int]:
    """Return the nodes that the certificate names: one, or all of a machine.

    Raises NamelessError.
    """
    uris, _ = _names(der)
    if not 1 <= len(uris) <= MAX_NODES:
        raise NamelessError(f"has {len(uris)} URIs, and a node's has 1..{MAX_NODES}")
    prefix = node_uri(cluster_id, 0)[:-1]
    for uri in uris:
        if not uri.startswith(prefix) or not _NODE_ID.fullmatch(uri.removeprefix(prefix)):
            raise NamelessError(f"{uri!r} is not {prefix}ID")
    return frozenset(int(uri.removeprefix(prefix)) for uri in uris)


def principal_of(der: bytes) -> str:
    """Return a client certificate's URI, or "dns:" and its DNS name. Raises NamelessError."""
    uris, dns = _names(der)
    names = uris or dns
    if len(names) != 1:
        raise NamelessError(
            f"has {len(names)} names, and a client's has one: a URI, else a DNS name"
        )
    (name,) = names
    if uris and name.startswith(_SCHEME):
        raise NamelessError(f"{name!r} is a node's name, not a client's")
    if len(name) > MAX_NAME_CHARS or not (_URI if uris else _DNS).fullmatch(name):
        raise NamelessError(f"{name!r} is not a plain lower-case URI or DNS name")
    return name if uris else f"dns:{name}"


def expiry_of(der: bytes) -> float:
    """Return the certificate's expiry: seconds since the Unix epoch. Raises NamelessError."""
    try:
        return x509.load_der_x509_certificate(der).not_valid_after_utc.timestamp()
    except (ValueError, x509.InvalidVersion) as error:
        raise NamelessError(f"cannot be read: {error}") from error


def _names(der: bytes) -> tuple[list[str], list[str]]:
    """Return (URIs, DNS names) of a certificate, in their order."""
    try:
        found = x509.load_der_x509_certificate(der).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except x509.ExtensionNotFound:
        raise NamelessError("has no subject alternative name") from None
    except (
        ValueError,
        x509.DuplicateExtension,
        x509.InvalidVersion,
        x509.UnsupportedGeneralNameType,
    ) as error:
        raise NamelessError(f"cannot be read: {error}") from error
    names = found.value
    return (
        names.get_values_for_type(x509.UniformResourceIdentifier),
        names.get_values_for_type(x509.DNSName),
    )
