"""gRPC's error texts for a port that is no node's, or speaks TLS where the client does not.

gRPC reports bytes on the wire; an operator needs the name of the wrong setting.
"""

from __future__ import annotations

_HTTP1 = ("http1.x server", "got frame type 79")  # "HTTP/1.", read as a frame's head
_CLOSED = ("Socket closed", "Connection reset by peer")


def certain(text: str) -> str:
    """Explain an error that no retry can fix; else return ""."""
    if any(words in text for words in _HTTP1):
        return (
            "an HTTP/1 server answers there, perhaps a node's metrics page; "
            "name the port of the node's `listen`"
        )
    if "WRONG_VERSION_NUMBER" in text:
        return (
            "the port does not speak TLS; leave out tls and its files, or name the port of "
            "the node's `listen`"
        )
    return ""


def likely(text: str) -> str:
    """Explain the probable cause of an error that persists; else return ""."""
    if "failed to connect to all addresses" in text and any(words in text for words in _CLOSED):
        return (
            "it closes connections without a word; perhaps it speaks TLS (tls_ca_file), or is "
            "the port that nodes have for each other (peer_port_offset above `listen`)"
        )
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "its certificate is not of tls_ca_file's CAs, or does not name this host"
    if "address lookup failed" in text or "errors resolving" in text:
        return "the name is not known here; an IPv6 address stands in brackets: [::1]:7001"
    return ""
