"""The five compression codecs of record batches, each through its C library.

Kafka reads only LZ4 frames with independent blocks (a linked-block frame makes the broker fail with
UNKNOWN_SERVER_ERROR), and its Java producers write snappy in xerial blocks; this module does the same.
"""

from __future__ import annotations

import gzip
import zlib

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")


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


def compress(codec: int, payload: bytes | memoryview) -> bytes | memoryview:
    """Return a payload compressed in a form that every Kafka client can read."""
    return payload if codec == NONE else _COMPRESS[codec](payload)


def _gunzip(payload: bytes | memoryview) -> bytes:
    return gzip.decompress(payload)  # reads several members: concatenated streams are legal


def _gzip(payload: bytes | memoryview) -> bytes:
    deflate = zlib.compressobj(6, zlib.DEFLATED, 31)
    return deflate.compress(payload) + deflate.flush()


def _unsnappy(payload: bytes | memoryview) -> bytes:
    from aiokafka.codec import snappy_decode  # handles raw and xerial framing

    return bytes(snappy_decode(bytes(payload)))


def _snappy(payload: bytes | memoryview) -> bytes:
    from aiokafka.codec import snappy_encode

    return bytes(snappy_encode(payload))


def _unlz4(payload: bytes | memoryview) -> bytes:
    import lz4.frame

    return bytes(lz4.frame.decompress(payload))


def _lz4(payload: bytes | memoryview) -> bytes:
    import lz4.frame

    return bytes(lz4.frame.compress(payload, block_linked=False, store_size=False))


def _unzstd(payload: bytes | memoryview) -> bytes:
    import zstandard

    # Streamed, because frames without a content size and several frames in a row are legal.
    with zstandard.ZstdDecompressor().stream_reader(payload, read_across_frames=True) as reader:
        return reader.read()


def _zstd(payload: bytes | memoryview) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=3).compress(payload)


_DECOMPRESS = {GZIP: _gunzip, SNAPPY: _unsnappy, LZ4: _unlz4, ZSTD: _unzstd}
_COMPRESS = {GZIP: _gzip, SNAPPY: _snappy, LZ4: _lz4, ZSTD: _zstd}
