"""Command of the metadata log as it was written: bytes that this release knows in full.

MetadataState.apply --entry--> parsed_command --> MetadataCommand
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from cluster.entries import has_unknown_fields
from cluster.v1 import metadata_pb2 as pb
from storage.errors import CorruptionError


class MetadataCorruptError(CorruptionError):
    """A stored command or snapshot is malformed. The replica must stop."""


def parsed_command(index: int, command: bytes) -> pb.MetadataCommand:
    """Parses the command of the entry at `index`. Raises MetadataCorruptError."""
    try:
        parsed = pb.MetadataCommand.FromString(command)
    except DecodeError as error:
        raise MetadataCorruptError(f"metadata command: {error}", index=index) from error
    if has_unknown_fields(parsed):
        raise MetadataCorruptError(
            "metadata command: it has fields unknown to this release", index=index
        )
    return parsed
