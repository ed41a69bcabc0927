"""Offered calls and their versions: the head of each request, ApiVersions' answer.

    session --a frame--> read_head --> the call's reader
                              '-- a version of ApiVersions that is not known --> answered in form 0

Clients ask ApiVersions first, in the newest version that they know. A node that does not know it
answers in the form of version 0, with UNSUPPORTED_VERSION and its versions of this call (KIP-511).
The client then asks again; franz-go would take a longer list for the answer, and not give its name.
Any other unknown call ends the connection, as in Kafka.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from cluster.kafka.codec import CodecError, Source, encode
from cluster.kafka.errors import Error
from cluster.kafka.messages import API_VERSIONS, CALLS, ApiVersion, ApiVersionsResponse, Call

_HEAD = struct.Struct(">hhi")
_CORRELATION = struct.Struct(">i")
_LIST_VERSION = 0  # of ApiVersions, that every client reads
_OFFERED = [ApiVersion(call.key, call.oldest, call.newest) for call in CALLS.values()]


class Head(NamedTuple):
    """Head of a request. is_known: the node offers this version of the call."""

    call: Call
    version: int
    correlation: int
    client_id: str
    is_known: bool

    @property
    def flexible(self) -> bool:
        return self.version >= self.call.flexible

    def begin_answer(self) -> bytearray:
        """Return the head of the answer, to write the rest behind it."""
        out = bytearray(_CORRELATION.pack(self.correlation))
        # ApiVersions never has tagged fields here: the client may know an older version only.
        if self.flexible and self.call is not API_VERSIONS:
            out.append(0)
        return out


def read_head(source: Source) -> Head:
    """Read a request's head. Raises CodecError for a call or version that is not offered."""
    key, version, correlation = source.fixed(_HEAD)
    call = CALLS.get(key)
    known = call is not None and call.oldest <= version <= call.newest
    if call is None or not (known or call is API_VERSIONS):
        raise CodecError(f"version {version} of the call {key} is not offered")
    if not known:
        return Head(call, _LIST_VERSION, correlation, "", False)
    # Compact strings came later than this field.
    client_id = source.text(flexible=False, nullable=True) or ""
    source.skip_tagged(flexible=version >= call.flexible)
    return Head(call, version, correlation, client_id, True)


def api_versions(head: Head, wait_ms: int = 0) -> bytearray:
    """Return ApiVersions' answer. wait_ms: until the connection is read on."""
    error = Error.NONE if head.is_known else Error.UNSUPPORTED_VERSION
    offered = [one for one in _OFFERED if head.is_known or one.api_key == API_VERSIONS.key]
    answer = ApiVersionsResponse(error_code=error, api_keys=offered, throttle_time_ms=wait_ms)
    out = head.begin_answer()
    encode(answer, out, head.version, flexible=head.flexible)
    return out
