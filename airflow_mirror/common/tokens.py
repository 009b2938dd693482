"""Hadoop's token files: how settings with passwords reach a driver that YARN starts on another host.

YARN carries the *credentials* of whoever submits to each container of the application: in memory and over its own
connections, then in a file of the container's directory that only its user can read, named by
``HADOOP_TOKEN_FILE_LOCATION``. They are in no argument, no setting and no environment variable.

The layout is that of ``org.apache.hadoop.security.Credentials``, written by ``writeTokenStorageToStream``: a magic, the
tokens that Hadoop's services know, the secrets of applications by name. Lengths are Hadoop's variable-length integers
(``WritableUtils.writeVInt``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FILE_VARIABLE = "HADOOP_TOKEN_FILE_LOCATION"
_MAGIC = b"HDTS"
_WRITABLE = 0  # the only layout that YARN writes by itself; 1 is protobuf
_PARTS_OF_A_TOKEN = 4  # identifier, password, kind, service


def encode(secrets: Mapping[str, str]) -> bytes:
    """Return a token file that holds nothing but secrets by name."""
    parts = [_MAGIC, bytes([_WRITABLE]), _number(0), _number(len(secrets))]
    for name, value in secrets.items():
        parts += [_text(name.encode()), _text(value.encode())]
    return b"".join(parts)


def decode(content: bytes) -> dict[str, str]:
    """Return the secrets by name; those of others that are no text are left out.

    :raises ValueError: it is no such file.
    """
    if content[:5] != _MAGIC + bytes([_WRITABLE]):
        raise ValueError("no token file of Hadoop's first layout")
    reader = _Reader(content, at=5)
    for _ in range(reader.number()):
        for _ in range(1 + _PARTS_OF_A_TOKEN):  # its name comes first
            reader.part()
    pairs = [(reader.part(), reader.part()) for _ in range(reader.number())]
    return {name.decode(errors="replace"): text for name, value in pairs if (text := _as_text(value)) is not None}


def secret_here(name: str) -> str | None:
    """Return a secret from the token file of this process's container; None if the file has no such secret.

    :raises OSError: the file can't be read. :raises KeyError: no file is named. :raises ValueError: it is none.
    """
    return decode(Path(os.environ[FILE_VARIABLE]).read_bytes()).get(name)


class _Reader:
    def __init__(self, content: bytes, at: int) -> None:
        self._content, self._at = content, at

    def number(self) -> int:
        first = int.from_bytes(self._take(1), signed=True)
        if first >= 0:
            return first
        if not -120 <= first <= -113:
            raise ValueError("a negative length")  # 112 values below 0 are numbers themselves, lower ones count bytes
        return int.from_bytes(self._take(-112 - first))

    def part(self) -> bytes:
        return self._take(self.number())

    def _take(self, count: int) -> bytes:
        found = self._content[self._at : self._at + count]
        if len(found) < count:
            raise ValueError("it ends too early")
        self._at += count
        return found


def _number(value: int) -> bytes:
    if value <= 127:
        return bytes([value])
    digits = value.to_bytes((value.bit_length() + 7) // 8)
    return bytes([256 - 112 - len(digits)]) + digits


def _text(value: bytes) -> bytes:
    return _number(len(value)) + value


def _as_text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
