"""Store offset maps as Parquet files in a directory or under any URL that fsspec supports.

Each partition (its *key* is ``<topic>/<partition>``) has

- ``origin.json``: the start offsets of the copy on both sides and a token, written before the first record;
- parts, ``<first source offset>-<end>.parquet`` (20 digits each): pieces of the map, each with the token of its origin.
  Columns ``source, target, count`` (int64, delta packed, zstd: 2 to 5 bytes per segment); the metadata hold the ends of
  the piece.

The map is derived from the two logs; a stored map only saves walking them. So the store need not be complete: loading
stops at a missing, truncated or corrupt part, and the rest is derived again. A part that does load must be *right*,
though. Hence the token: a target topic that was deleted and copied again gets a new origin, which invalidates the
parts of the previous copy, including those that a frozen copier writes after it resumes.

A file appears completely or not at all: a local file is written to a temporary name, synced and renamed; object stores
write atomically by themselves. A file is never replaced by one that holds less, and a process deletes a part only after
it has stored one that covers it. So several processes may append, complete and compact at once.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from array import array
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.files import replace_file

if TYPE_CHECKING:
    from upath import UPath

log = logging.getLogger(__name__)

_ORIGIN = "origin.json"
_PART = re.compile(r"(\d{20})-(\d{20})\.parquet")
_COLUMNS = ("source", "target", "count")
_MANY_PARTS = 32
# In segments. Joining parts, or continuing a copy, holds at most this much of a map in memory: some megabytes.
_LARGEST_PART = 1 << 18
_LISTINGS = 3  # how often a concurrent compaction may delete parts between listing and reading


class Origin(NamedTuple):
    """The start offsets of a copy, and the token that its parts carry."""

    source_start: int
    target_start: int
    token: str


class MapStore:
    """The offset maps of one mirror.

    :param root: a directory, or a URL (``s3://...``, ``memory://...``) whose fsspec driver is installed. It need not
        exist.
    """

    def __init__(self, root: str) -> None:
        self._root = _directory(root)
        self._tokens: dict[str, str] = {}

    def origin(self, key: str, source_start: int, target_start: int) -> None:
        """Begin a new map and invalidate what is stored for ``key``. Call this before the first record is written.

        :raises OSError: the origin can't be stored; nothing may be written to the target then.
        """
        where = Origin(source_start, target_start, uuid.uuid4().hex)
        directory = self._root / key
        directory.mkdir(parents=True, exist_ok=True)
        _write(directory / _ORIGIN, json.dumps(where._asdict()).encode())
        self._tokens[key] = where.token
        for name in _part_names(directory):
            _remove(directory / name)  # cleanup only: their token is already invalid

    def has_begun(self, target_topic: str) -> bool:
        """Return whether any partition of a target topic was ever copied with a map.

        :raises OSError: the store can't be read.
        """
        return (self._root / target_topic).is_dir()

    def source_start(self, key: str) -> int | None:
        """Return the source offset at which a map begins; None if the map was never begun.

        :raises OSError: the store can't be read.
        """
        origin = _read_origin(self._root / key)
        return None if origin is None else origin.source_start

    def append(self, key: str, part: OffsetMap) -> None:
        """Store a piece of the map; idempotent. Stores nothing without an origin, because it would never be read.

        :raises OSError: the piece can't be stored.
        """
        directory = self._root / key
        token = self._tokens.get(key)
        if token is None:
            origin = _read_origin(directory)
            if origin is None:
                log.warning("offset map of %s: no origin is stored, so that it has to be derived when it is needed", key)
                return
            token = self._tokens[key] = origin.token
        _write(directory / _name(part), _encode(part, token))

    def load(self, key: str) -> OffsetMap | None:
        """Return the map from its origin up to the first missing or unreadable part; None without an origin.

        :raises OSError: the store can't be read (permissions, network).
        """
        return self._read(key, whole=True)

    def load_end(self, key: str) -> OffsetMap | None:
        """Return the end of the map, which is all that a copy needs to continue: its ends and its last segment.

        The map may exceed a task's memory, so only one part of it is held at a time.

        :raises OSError: the store can't be read.
        """
        return self._read(key, whole=False)

    def compact(self, key: str, many: int = _MANY_PARTS) -> None:
        """Join small parts if there are at least ``many``; a crash at any moment loses nothing.

        Only the newest parts are joined, until the next older part is larger than all of them together, so each segment
        is rewritten a logarithmic number of times. No part grows beyond what fits comfortably in memory.
        """
        directory = self._root / key
        names = _part_names(directory)
        origin = _read_origin(directory)
        if len(names) < many or origin is None:
            return
        joined: OffsetMap | None = None
        used: list[str] = []
        for name in reversed(names):
            try:
                older = _read_part(directory / name, origin.token)
            except FileNotFoundError:
                return  # another compaction is running
            if older is None:
                _remove(directory / name)  # unreadable, or from an earlier copy
                continue
            if joined is not None:
                enough = len(used) > 1 and len(older) > 2 * len(joined)
                if enough or len(older) + len(joined) > _LARGEST_PART or not _extend(older, joined, name):
                    break
            joined = older
            used.append(name)
        if joined is None or len(used) < 2:
            return
        # Write the joined part before its pieces are deleted: meanwhile they overlap and agree.
        _write(directory / _name(joined), _encode(joined, origin.token))
        for name in used:
            if name != _name(joined):
                _remove(directory / name)

    def _read(self, key: str, *, whole: bool) -> OffsetMap | None:
        directory = self._root / key
        origin = _read_origin(directory)
        if origin is None:
            return None
        for _ in range(_LISTINGS):
            found = OffsetMap(origin.source_start, origin.target_start)
            try:
                for name in _part_names(directory):
                    first, end = _bounds(name)
                    if first > found.source_end:
                        break  # a gap: later parts can't be appended
                    if end < found.source_end:
                        continue  # covered already; an interrupted compaction leaves such parts behind
                    if not whole and first < found.source_start:
                        return self._read(key, whole=True)  # it must be compared with segments that were dropped already
                    part = _read_part(directory / name, origin.token)
                    # If this part is unusable, another one may cover the same offsets.
                    if part is not None and _extend(found, part, name) and not whole:
                        found = found.end()
                break
            except FileNotFoundError:
                pass  # a part was deleted between listing and reading: list again
        return found


def _extend(older: OffsetMap, newer: OffsetMap, name: str) -> bool:
    try:
        older.extend(newer)
    except ValueError as e:
        log.warning("%s is not used: %s", name, e)
        return False
    return True


# --- Parquet ---------------------------------------------------------------------------------------------------------


def _encode(part: OffsetMap, token: str) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    arrays = [pa.Array.from_buffers(pa.int64(), len(part), [None, pa.py_buffer(side)]) for side in part.columns]
    ends = {
        "origin": token, "source_start": part.source_start, "target_start": part.target_start,
        "source_end": part.source_end, "target_log_end": part.target_log_end,
    }  # fmt: skip
    fields = [pa.field(name, pa.int64(), nullable=False) for name in _COLUMNS]
    schema = pa.schema(fields, {name: str(value) for name, value in ends.items()})
    sink = pa.BufferOutputStream()
    parquet.write_table(
        pa.Table.from_arrays(arrays, schema=schema), sink, compression="zstd", use_dictionary=False,
        column_encoding=dict.fromkeys(_COLUMNS, "DELTA_BINARY_PACKED"), write_page_checksum=True,
    )  # fmt: skip
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def _decode(content: bytes, token: str) -> OffsetMap | None:
    """Return the part, or None if it belongs to another origin.

    :raises Exception: of many types, if the content is not a part.
    """
    import pyarrow as pa
    from pyarrow import parquet

    # Not read_table: it reads a directory of files just as well, and imports pandas for that, half a second and 50 MB.
    table = parquet.ParquetFile(pa.BufferReader(content), page_checksum_verification=True).read()
    kept = {name.decode(): value.decode() for name, value in table.schema.metadata.items()}
    if kept["origin"] != token:
        return None
    source, target, count = (_to_array(table.column(name)) for name in _COLUMNS)
    starts = int(kept["source_start"]), int(kept["target_start"])
    ends = int(kept["source_end"]), int(kept["target_log_end"])
    return OffsetMap.of_columns(starts, ends, (source, target, count))


def _to_array(column: Any) -> array[int]:
    values = array("q")
    for chunk in column.chunks:
        if len(chunk):
            values.frombytes(memoryview(chunk.buffers()[1])[chunk.offset * 8 : (chunk.offset + len(chunk)) * 8])
    return values


# --- files -----------------------------------------------------------------------------------------------------------


def _directory(root: str) -> Path | UPath:
    if "://" not in root or root.startswith("file://"):
        return Path(root.removeprefix("file://")).expanduser()
    from upath import UPath

    # A cached listing would hide what other machines have written meanwhile.
    return UPath(root, use_listings_cache=False)


def _write(path: Path | UPath, content: bytes) -> None:
    """Write a complete file, durably."""
    if not isinstance(path, PosixPath):
        path.write_bytes(content)
        return
    replace_file(path, content)


def _remove(path: Path | UPath) -> None:
    try:
        path.unlink()
    except FileNotFoundError:
        pass  # another compaction has deleted it


def _name(part: OffsetMap) -> str:
    return f"{part.source_start:020d}-{part.source_end:020d}.parquet"


def _bounds(name: str) -> tuple[int, int]:
    found = _PART.fullmatch(name)
    assert found is not None
    return int(found[1]), int(found[2])


def _part_names(directory: Path | UPath) -> list[str]:
    """Return the names of all parts, ordered by first source offset; the longer of two with the same start first."""
    try:
        names = [path.name for path in directory.iterdir() if _PART.fullmatch(path.name)]
    except FileNotFoundError:
        return []
    return sorted(names, key=lambda name: (_bounds(name)[0], -_bounds(name)[1]))


def _read_origin(directory: Path | UPath) -> Origin | None:
    try:
        return Origin(**json.loads((directory / _ORIGIN).read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as e:
        log.warning("%s is unreadable (%s): the offset map is derived anew", directory / _ORIGIN, e)
        return None


def _read_part(path: Path | UPath, token: str) -> OffsetMap | None:
    """Return a part; None if it can't be used.

    :raises FileNotFoundError: the file no longer exists.
    """
    content = path.read_bytes()
    try:
        return _decode(content, token)
    except Exception as e:  # pyarrow raises a different error for each kind of corruption
        log.warning("%s is no part of an offset map (%s): it is derived anew", path, e)
        return None
