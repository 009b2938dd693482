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
_ROW_GROUP = 1 << 16
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
        for _ in range(_LISTINGS):
            try:
                return self._load(key, must_exist=True)
            except FileNotFoundError:
                continue  # a part went away between listing and reading: look again
        return self._load(key, must_exist=False)

    def load_end(self, key: str) -> OffsetMap | None:
        """Return the end of the map, which is all that a copy needs to go on: its ends and its last segments.

        The map may be larger than a task's memory. Of parts that fit together by their names only the ends are read;
        where anything is not as expected, the whole map is loaded, which knows what to do.

        :raises OSError: if the store itself can't be read.
        """
        directory = self._root / key
        origin = _read_origin(directory)
        if origin is None:
            return None
        found = _end_of(directory, origin)
        return self.load(key) if found is None else found

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
            if joined is not None and _is_too_much(directory / name, joined):
                break
            older = _read_part(directory / name, origin.token, must_exist=False)
            if older is None:
                _remove(directory / name)  # unreadable, or of a former life: of no use to anybody
                continue
            if joined is not None and len(used) > 1 and _is_enough(older, joined):
                break
            if joined is not None and not _extend(older, joined, directory / used[-1]):
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

    def _load(self, key: str, must_exist: bool) -> OffsetMap | None:
        directory = self._root / key
        origin = _read_origin(directory)
        if origin is None:
            return None
        whole = OffsetMap(origin.source_start, origin.target_start)
        for name in _part_names(directory):
            first, end = _bounds(name)
            if first > whole.source_end:
                break  # a gap: what comes behind it can't be joined on
            if end < whole.source_end:
                continue  # nothing new; a compaction that was cut off leaves such parts behind
            part = _read_part(directory / name, origin.token, must_exist)
            if part is not None:  # otherwise another one may cover the same offsets
                _extend(whole, part, directory / name)
        return whole


def _is_enough(older: OffsetMap, joined: OffsetMap) -> bool:
    """Say whether joining ``older`` too would write too much again; what it covers anyway is joined always."""
    return len(older) > 2 * len(joined) and older.source_end < joined.source_end


def _is_too_much(path: Path | UPath, joined: OffsetMap) -> bool:
    """Say whether a part is too long to be joined with what is joined so far; what it covers anyway is joined always."""
    footer = _footer(path) if _bounds(path.name)[1] < joined.source_end else None
    return footer is not None and footer.num_rows + len(joined) > _LARGEST_PART


def _end_of(directory: Path | UPath, origin: Origin) -> OffsetMap | None:
    """Return the end of a map whose parts are a chain without a gap, an overlap or a doubt; otherwise None."""
    end, log_end, newest = origin.source_start, origin.target_start, None
    for name in _part_names(directory):
        first, last = _bounds(name)
        if first < end and last <= end:
            continue  # covered; a compaction that was cut off leaves such parts behind
        footer = _footer(directory / name) if first == end else None
        kept = {} if footer is None else {k.decode(): v.decode() for k, v in (footer.metadata or {}).items()}
        if footer is None or kept.get("origin") != origin.token:
            return None
        end, log_end = last, max(log_end, int(kept["target_log_end"]))
        newest = name if footer.num_rows else newest
    columns: tuple[array[int], ...] = (array("q"), array("q"), array("q"))
    starts = origin.source_start, origin.target_start
    if newest is not None:
        try:
            columns = _last_rows(directory / newest)
        except Exception:  # as in _read_part; who loads the whole map says what is wrong
            return None
        starts = columns[0][0], columns[1][0]
    return OffsetMap.of_columns(starts, (end, log_end), *columns)


def _extend(older: OffsetMap, newer: OffsetMap, path: Path | UPath) -> bool:
    try:
        older.extend(newer)
    except ValueError as e:
        log.warning("%s is not used: %s", path, e)
        return False
    return True


# --- Parquet ---------------------------------------------------------------------------------------------------------


def _encode(part: OffsetMap, token: str) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    arrays = [pa.Array.from_buffers(pa.int64(), len(part), [None, pa.py_buffer(side)]) for side in part.columns()]
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
        row_group_size=_ROW_GROUP,
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
    columns = [_to_array(table.column(name)) for name in _COLUMNS]
    starts = int(kept["source_start"]), int(kept["target_start"])
    return OffsetMap.of_columns(starts, (int(kept["source_end"]), int(kept["target_log_end"])), *columns)


def _footer(path: Path | UPath) -> Any:
    """Return a part's metadata; None if there is no part, or none that can be read."""
    from pyarrow import parquet

    try:
        with path.open("rb") as file:
            return parquet.read_metadata(file)
    except Exception:  # as in _read_part
        return None


def _last_rows(path: Path | UPath) -> tuple[array[int], ...]:
    from pyarrow import parquet

    with path.open("rb") as file:
        part = parquet.ParquetFile(file, page_checksum_verification=True)
        rows = part.read_row_group(part.num_row_groups - 1)
    return tuple(_to_array(rows.column(name)) for name in _COLUMNS)


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


def _read_part(path: Path | UPath, token: str, must_exist: bool) -> OffsetMap | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        if must_exist:
            raise
        return None
    try:
        return _decode(content, token)
    except Exception as e:  # pyarrow has an error for each way in which a file can be broken
        log.warning("%s is no part of an offset map (%s): it is derived anew", path, e)
        return None
