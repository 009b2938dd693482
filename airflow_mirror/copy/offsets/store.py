"""Where offset maps are kept: Parquet files in a directory, or under any URL that fsspec knows.

For each partition (its *key*, ``<topic>/<partition>``) there is

- ``origin.json``: where the copy began on both sides, written before its first record, and a token;
- parts, ``<first source offset>-<end>.parquet`` (20 digits each): a piece of the map each, with the token of the origin
  that they belong to. Columns ``source, target, count`` (int64, delta packed, zstd: 2 to 5 bytes a segment); the piece's
  ends are in the metadata.

The map is derived from the two logs; what is stored only saves the walk. So nothing here needs to be complete: a part
that is missing, truncated or garbage ends what can be loaded, and the rest is walked again. What is loaded must be
*right*, though. Hence the token: a target topic that was deleted and copied anew gets a new origin, and the parts of
its former life no longer count, not even those that a frozen copier writes when it thaws.

A file appears whole or not at all: locally it is written beside its place, synced and renamed; object stores do the
same by themselves. No file is ever replaced by one that holds less, and whoever takes a part away has stored one that
covers it: so several processes may append, complete and compact at once.
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
# Segments. Whoever joins or goes on holds no more of a map than this, some megabytes, however long it is.
_LARGEST_PART = 1 << 18
_LISTINGS = 3  # how often a compaction beside us may take parts away between listing and reading


class Origin(NamedTuple):
    """Where a copy began, and the token that its parts carry."""

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
        """Begin a new map. To be called before the first record is written: what was stored of ``key`` no longer counts.

        :raises OSError: if it can't be stored; then nothing must be written to the target.
        """
        where = Origin(source_start, target_start, uuid.uuid4().hex)
        directory = self._root / key
        directory.mkdir(parents=True, exist_ok=True)
        _write(directory / _ORIGIN, json.dumps(where._asdict()).encode())
        self._tokens[key] = where.token
        for name in _part_names(directory):
            _remove(directory / name)  # only tidy: they carry another token

    def has_begun(self, target_topic: str) -> bool:
        """Say whether any partition of a target topic was ever copied with a map.

        :raises OSError: if the store itself can't be read.
        """
        return (self._root / target_topic).is_dir()

    def source_start(self, key: str) -> int | None:
        """Return the source offset at which a map begins; None when it was never begun.

        :raises OSError: if the store itself can't be read.
        """
        origin = _read_origin(self._root / key)
        return None if origin is None else origin.source_start

    def append(self, key: str, part: OffsetMap) -> None:
        """Store a piece of the map; again is harmless. Without an origin nothing is stored: it would never be read.

        :raises OSError: if it can't be stored.
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
        """Return the map from its origin up to the first part that is missing or unreadable; None without an origin.

        :raises OSError: if the store itself can't be read (rights, network).
        """
        return self._read(key, whole=True)

    def load_end(self, key: str) -> OffsetMap | None:
        """Return the end of the map, which is all that a copy needs to go on: its ends and its last segment.

        The map may be larger than a task's memory: no more than a part of it is held at a time.

        :raises OSError: if the store itself can't be read.
        """
        return self._read(key, whole=False)

    def compact(self, key: str, many: int = _MANY_PARTS) -> None:
        """Join small parts when there are at least ``many``; a crash at any moment loses nothing.

        Only the newest parts are joined, until the next older one is larger than them together: so each segment is
        written again a logarithmic number of times. No part becomes longer than fits well into memory.
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
                return  # another compaction is at work
            if older is None:
                _remove(directory / name)  # unreadable, or of a former life: of no use to anybody
                continue
            if joined is not None:
                enough = len(used) > 1 and len(older) > 2 * len(joined)
                if enough or len(older) + len(joined) > _LARGEST_PART or not _extend(older, joined, name):
                    break
            joined = older
            used.append(name)
        if joined is None or len(used) < 2:
            return
        # First the long part is there, then its pieces go: in between they overlap and agree.
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
                        break  # a gap: what comes behind it can't be joined on
                    if end < found.source_end:
                        continue  # nothing new; a compaction that was cut off leaves such parts behind
                    if not whole and first < found.source_start:
                        return self._read(key, whole=True)  # to be compared with what was let go already
                    part = _read_part(directory / name, origin.token)
                    # Where one is of no use, another one may cover the same offsets.
                    if part is not None and _extend(found, part, name) and not whole:
                        found = found.end()
                break
            except FileNotFoundError:
                pass  # a part went away between listing and reading: look again
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
    """Return the part, None when it belongs to another origin.

    :raises Exception: of many types, for anything that is no part.
    """
    import pyarrow as pa
    from pyarrow import parquet

    table = parquet.read_table(pa.BufferReader(content), page_checksum_verification=True)
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
    """Put a whole file in place, durably."""
    if not isinstance(path, PosixPath):
        path.write_bytes(content)
        return
    replace_file(path, content)


def _remove(path: Path | UPath) -> None:
    try:
        path.unlink()
    except FileNotFoundError:
        pass  # another compaction was faster


def _name(part: OffsetMap) -> str:
    return f"{part.source_start:020d}-{part.source_end:020d}.parquet"


def _bounds(name: str) -> tuple[int, int]:
    found = _PART.fullmatch(name)
    assert found is not None
    return int(found[1]), int(found[2])


def _part_names(directory: Path | UPath) -> list[str]:
    """Return the names of all parts in the order of their first source offset; of two, the longer one first."""
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

    :raises FileNotFoundError: it is gone.
    """
    content = path.read_bytes()
    try:
        return _decode(content, token)
    except Exception as e:  # pyarrow has an error for each way in which a file can be broken
        log.warning("%s is no part of an offset map (%s): it is derived anew", path, e)
        return None
