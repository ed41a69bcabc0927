"""Codecs and the checksum of a batch's payload.

Place in the flow: between the payload (`wire/batch.py`) and the bytes on the wire. The
checksum is over the payload as sent, that is, after compression, so a node can check it
without the codec's package. Packages are imported when a codec is first used.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Final

from oncelog.errors import InvalidBatchError, MissingExtraError
from oncelog.wire.batch import MAX_PAYLOAD_BYTES

NONE: Final = 0
ZSTD: Final = 1
LZ4: Final = 2
# Only of stored batches: the payload is a record batch of Kafka's protocol.
KAFKA_V2: Final = 16
# Setting `compression_type` -> Codec of the protocol.
CODECS: Final[dict[str, int]] = {"none": NONE, "zstd": ZSTD, "lz4": LZ4}

# A zstd frame's window limits the memory of its decompressor, whatever the output's size.
_MAX_ZSTD_WINDOW: Final = 1 << 27

_LONG_CHECKSUM: Final = 4 * 1024 * 1024

_local = threading.local()


def checksum(payload: bytes | memoryview) -> int:
    """Return the CRC-32C (Castagnoli)."""
    # A small payload keeps the interpreter lock: getting it back takes up to 5 ms if another thread
    # is busy, and the checksum of a megabyte a twentieth of that.
    return _crc32c()(payload, 0, len(payload) >= _LONG_CHECKSUM)


@functools.cache
def _crc32c() -> Callable[..., int]:
    """Import the package with the first checksum: 0.05 s that a command saves."""
    from crc32c import crc32c

    return crc32c


def require_codec(codec: int) -> None:
    """Raise now, not at the first batch, if a codec's package is missing or unknown."""
    if codec == ZSTD:
        _zstandard()
    elif codec == LZ4:
        _lz4_frame()
    elif codec != NONE:
        raise InvalidBatchError(f"unknown codec {codec}")


def compress(codec: int, payload: bytes, level: int | None = None) -> bytes:
    if codec == NONE:
        return payload
    if codec == ZSTD:
        wanted = 3 if level is None else level
        # A compressor object must not be used by two threads at once.
        cached: tuple[int, Any] | None = getattr(_local, "zstd", None)
        if cached is None or cached[0] != wanted:
            cached = _local.zstd = (wanted, _zstandard().ZstdCompressor(level=wanted))
        return bytes(cached[1].compress(payload))
    if codec == LZ4:
        return bytes(
            _lz4_frame().compress(
                payload, compression_level=0 if level is None else level, store_size=True
            )
        )
    raise InvalidBatchError(f"unknown codec {codec}")


def decompress(
    codec: int, data: bytes | memoryview, limit: int = MAX_PAYLOAD_BYTES
) -> bytes | memoryview:
    """Return the payload; never allocates much more than `limit`, whatever size a frame claims.

    Uncompressed data is returned as it is. A record batch of Kafka's protocol becomes columns.
    """
    if codec == NONE:
        if len(data) > limit:
            raise InvalidBatchError(f"payload of {len(data)} bytes is over the limit {limit}")
        return data
    if codec == ZSTD:
        return unzstd(data, limit)
    if codec == LZ4:
        return unlz4(data, limit)
    if codec == KAFKA_V2:
        from oncelog.wire.kafka_batch import to_columns

        return to_columns(data, limit)
    raise InvalidBatchError(f"unknown codec {codec}")


def unzstd(data: bytes | memoryview, limit: int) -> bytes:
    """Unpack one zstd frame of at most `limit` bytes. Raises InvalidBatchError."""
    zstandard = _zstandard()
    try:
        parameters = zstandard.get_frame_parameters(data)
        known = parameters.content_size != zstandard.CONTENTSIZE_UNKNOWN
        if (known and parameters.content_size > limit) or parameters.window_size > _MAX_ZSTD_WINDOW:
            raise InvalidBatchError(f"zstd payload unpacks to more than the limit {limit}")
        decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW)
        if known:
            return bytes(decompressor.decompress(data, allow_extra_data=False))
        with decompressor.stream_reader(data, read_across_frames=False) as reader:
            payload = bytes(reader.read(limit + 1))
    except zstandard.ZstdError as error:
        raise InvalidBatchError(f"zstd payload is damaged: {error}") from error
    if len(payload) > limit:
        raise InvalidBatchError(f"zstd payload unpacks to more than the limit {limit}")
    return payload


def unlz4(data: bytes | memoryview, limit: int) -> bytes:
    """Unpack one LZ4 frame of at most `limit` bytes. Raises InvalidBatchError."""
    frame = _lz4_frame()
    decompressor = frame.LZ4FrameDecompressor()
    try:
        payload = bytes(decompressor.decompress(data, max_length=limit + 1))
    except (RuntimeError, EOFError) as error:
        raise InvalidBatchError(f"lz4 payload is damaged: {error}") from error
    if len(payload) > limit:
        raise InvalidBatchError(f"lz4 payload unpacks to more than the limit {limit}")
    if not decompressor.eof or decompressor.unused_data:
        raise InvalidBatchError("lz4 payload is not exactly one frame")
    return payload


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtraError("compression_type 'zstd'", "zstandard", "zstd") from error
    return zstandard


def _lz4_frame() -> Any:
    try:
        import lz4.frame
    except ImportError as error:
        raise MissingExtraError("compression_type 'lz4'", "lz4", "lz4") from error
    return lz4.frame
