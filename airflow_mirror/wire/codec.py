"""The five compression codecs of record batches, each through its C library.

Kafka reads only LZ4 frames with independent blocks (a linked-block frame makes the broker fail with
UNKNOWN_SERVER_ERROR), and its Java producers write snappy in xerial blocks; this module does the same.

Most payloads are one frame or block of a few KB. Its codec's context would take longer to make than to use, so contexts
are kept; what is framed in another way, and what is broken, goes the long way.
"""

from __future__ import annotations

import gzip
import zlib
from collections import defaultdict
from collections.abc import Callable
from typing import Any

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
# Sixteen bytes: this, a version and the oldest one that reads it; then blocks, each behind its length of four bytes
# (xerial's snappy-java).
_XERIAL = b"\x82SNAPPY\0"
_BLOCK_AT = 20  # of the first block, behind its length
_idle: dict[object, list[Any]] = defaultdict(list)  # contexts of a kind, each for one thread at a time


def decompress(codec: int, payload: bytes | memoryview) -> bytes | memoryview:
    """Return the decompressed records of a payload.

    :raises ValueError: the codec number is unknown, or the codec can't read the payload.
    """
    if codec == NONE:
        return payload
    try:
        return _DECOMPRESS[codec](payload)
    except KeyError:
        raise ValueError(f"unknown compression codec {codec}") from None
    except Exception as e:  # each library has its own error class
        raise ValueError(f"payload of {len(payload)} bytes is not valid {NAMES[codec]}: {e}") from e


def compress(codec: int, payload: bytes | memoryview, *, quick: bool = False) -> bytes | memoryview:
    """Return a payload compressed in a form that every Kafka client can read.

    :param quick: at the lowest level: what is many batches at the source is smaller than these all the same.
    """
    if codec == NONE:
        return payload
    return _COMPRESS[codec](payload, 1) if quick and codec in (GZIP, ZSTD) else _COMPRESS[codec](payload)


def _context(kind: object) -> Any:
    """Return an idle context, None without one. Who could use it puts it back; one that failed is not used again."""
    try:
        return _idle[kind].pop()
    except IndexError:
        return None


def _gunzip(payload: bytes | memoryview) -> bytes:
    # 15 bits of window, and 16 for a gzip header.
    inflate = zlib.decompressobj(31)
    plain = inflate.decompress(payload)
    # Several members in a row are legal.
    return plain if inflate.eof and not inflate.unused_data else gzip.decompress(payload)


def _gzip(payload: bytes | memoryview, level: int = 6) -> bytes:
    deflate = zlib.compressobj(level, zlib.DEFLATED, 31)
    return deflate.compress(payload) + deflate.flush()


def _unsnappy(payload: bytes | memoryview) -> bytes:
    import cramjam

    if payload[:8] == _XERIAL and int.from_bytes(payload[16:_BLOCK_AT], "big") == len(payload) - _BLOCK_AT > 0:
        return bytes(cramjam.snappy.decompress_raw(payload[_BLOCK_AT:]))
    from aiokafka.codec import snappy_decode  # handles raw and xerial framing

    return bytes(snappy_decode(bytes(payload)))


def _snappy(payload: bytes | memoryview) -> bytes:
    from aiokafka.codec import snappy_encode

    return bytes(snappy_encode(payload))


def _unlz4(payload: bytes | memoryview) -> bytes:
    import lz4.frame

    context = _context(LZ4) or lz4.frame.create_decompression_context()
    plain, _, whole = lz4.frame.decompress_chunk(context, payload)
    if not whole:
        raise ValueError("the frame is incomplete")
    # Only when the frame is whole: a context that failed may hold half of another batch.
    _idle[LZ4].append(context)
    return bytes(plain)


def _lz4(payload: bytes | memoryview) -> bytes:
    import lz4.frame

    # No size: Kafka's own encoder writes none (Lz4BlockOutputStream).
    return bytes(lz4.frame.compress(payload, block_linked=False, store_size=False))


def _unzstd(payload: bytes | memoryview) -> bytes:
    import zstandard

    context = _context(ZSTD) or zstandard.ZstdDecompressor()
    frame = context.decompressobj()
    plain: bytes = frame.decompress(payload)
    if not frame.eof or frame.unused_data:
        # Streamed, because frames without a content size and several frames in a row are legal.
        with context.stream_reader(payload, read_across_frames=True) as reader:
            plain = reader.read()
    _idle[ZSTD].append(context)
    return plain


def _zstd(payload: bytes | memoryview, level: int = 3) -> bytes:
    import zstandard

    context = _context(("zstd of level", level)) or zstandard.ZstdCompressor(level=level)
    compressed: bytes = context.compress(payload)
    _idle["zstd of level", level].append(context)
    return compressed


_DECOMPRESS = {GZIP: _gunzip, SNAPPY: _unsnappy, LZ4: _unlz4, ZSTD: _unzstd}
_COMPRESS: dict[int, Callable[..., bytes]] = {GZIP: _gzip, SNAPPY: _snappy, LZ4: _lz4, ZSTD: _zstd}
