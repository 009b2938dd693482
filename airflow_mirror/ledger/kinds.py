"""What a kind of record is: how its keys look, how a value is written and read, and what is asked of every kind.

The kinds themselves are a table, :mod:`.records`. Whoever writes or reads a record goes through its row there.

Versions of the package work beside each other. A field that this one does not know is left out, and one that is missing
has its default. A record of another version is an error with a name, :class:`LedgerNewer`: whoever must decide about that
very thing stops (:attr:`Newer.STOPS`). What concerns one topic or one group and proves nothing where it can't be read is
left alone by its reader, and never replaced (:attr:`Newer.LEFT`).

Pure: no clock, no socket.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from enum import Enum
from functools import cache, cached_property, partial
from hashlib import sha256
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from airflow_mirror.errors import LedgerNewer

T = TypeVar("T")

# A piece has to fit: brokers refuse a larger batch for good, however often its writer tries.
MOST_BYTES = 700_000  # of a value, and of a batch before compression: brokers take batches of 1 MiB unless told otherwise
_MALFORMED = (ValueError, TypeError, KeyError, AttributeError, IndexError)

spaced = json.dumps
dense = partial(json.dumps, separators=(",", ":"))


class Newer(Enum):
    """What a record means that another version of the package wrote, or nobody."""

    STOPS = "stops"  # who has to go by it, by LedgerNewer
    LEFT = "left alone"  # it is no proof, and never replaced
    WORD = "heard"  # its key is still a sign of life, a request, a mark


class Split(Enum):
    """What becomes of a record when topics pass to another mirror."""

    STAYS = "stays"
    PASSES = "copied with its topic"
    COPIED = "copied"
    IN_PART = "in part"
    STEP = "a step"


class Retire(Enum):
    """What becomes of a record when its mirror is over."""

    REMOVED = "removed"
    FENCED = "removed unless a fence needs it"
    STAYS = "stays"
    STEP = "a step"


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of record.

    :param pattern: of its keys. A name in braces stands for what has no slash, ``{name:path}`` for what may have some.
    :param about: what it is about, for people, with those names. :param writer: who may write it.
    :param split: what becomes of it when topics pass on. :param retire: when its mirror is over.
    :param topic: in which it lies. :param version: that is written and read, as ``v``.
    :param needs: fields that one must have. :param in_pieces: its value may be too large for a record.
    :param packed: it is compressed. :param dumps: its JSON; None: a decision's, by :mod:`.fold`.
    """

    pattern: str
    about: str
    writer: str
    split: Split
    retire: Retire
    topic: str = field(kw_only=True)
    newer: Newer = Newer.STOPS
    version: int = 1
    needs: tuple[str, ...] = ()
    in_pieces: bool = False
    packed: bool = False
    dumps: Callable[[Any], str] | None = None

    @cached_property
    def names(self) -> list[str]:
        """The names in its pattern, in order."""
        return re.findall(r"\{(\w+)", self.pattern)

    @cached_property
    def _form(self) -> str:
        return re.sub(r"\{.*?\}", "{}", self.pattern)

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        found = re.findall(r"\{(\w+)(:path)?\}", self.pattern)
        names = (f"(?P<{name}>{'.+' if path else '[^/]+'})" for name, path in found)
        text = re.escape(self._form).replace(r"\{\}", "{}").format(*names)
        return re.compile(text + r"/\d+/\d+(?:-[0-9a-f]+)?" * self.in_pieces, re.DOTALL)

    def key(self, *names: object) -> str:
        """Return the key of one record; of its pieces, what comes before their numbers."""
        return self._form.format(*names)

    def below(self, *names: object) -> str:
        """Return what the keys of this kind begin with, of the first names."""
        missing = len(self.names) - len(names)
        return self.key(*names, *["\0"] * missing).partition("\0")[0] + "/" * (self.in_pieces and not missing)

    def match(self, key: str) -> dict[str, str] | None:
        """Return the names in a key; None: it is of another kind."""
        found = self._regex.fullmatch(key)
        return None if found is None else found.groupdict()

    def under(self, keys: Iterable[str], *names: object) -> list[str]:
        """Return which names follow these in keys of this kind; each once, in the order of the keys.

        The keys of a :class:`.State` are in the order in which they were written: the newest name is the last.
        """
        start, name = self.below(*names), self.names[len(names)]
        found = (self.match(key) for key in keys if key.startswith(start))
        return list(dict.fromkeys(one[name] for one in found if one is not None))

    def put(self, content: Mapping[str, Any], *names: object) -> dict[str, Any]:
        """Return a record as values by key: as decisions have them, or the bytes of the state."""
        if self.dumps is None:
            return {self.key(*names): {"v": self.version, **content}}
        key, value = self.key(*names), self.encode(content)
        return in_pieces(key, value) if self.in_pieces else {key: value}

    def encode(self, content: Mapping[str, Any]) -> bytes:
        """Return a record's value in the state."""
        assert self.dumps is not None
        text = self.dumps({"v": self.version, **content}).encode()
        return zlib.compress(text) if self.packed else text

    def pieces(self, text: str, *names: object) -> dict[str, bytes]:
        """As :meth:`put`, of JSON that says its version itself."""
        return in_pieces(self.key(*names), text.encode())

    def at(self, values: Mapping[str, Any], *names: object) -> Any:
        """Return a value as it stands there; None: there is none, or not all of its pieces."""
        key = self.key(*names)
        return whole(values, key) if self.in_pieces else values.get(key)

    def text(self, values: Mapping[str, Any], *names: object) -> str | None:
        """Return what :meth:`pieces` wrote; None: it is not there."""
        found = self.at(values, *names)
        return None if found is None else found.decode(errors="replace")

    def get(self, values: Mapping[str, Any], *names: object) -> dict[str, Any] | None:
        """Return a record's fields; None: it is not there. Errors as :meth:`read`."""
        value = self.at(values, *names)
        return None if value is None else self.read(value, *names)

    def load(self, decode: Callable[[dict[str, Any]], T], values: Mapping[str, Any], *names: object) -> T | None:
        """Return what ``decode`` makes of a record's fields; None: it is not there. Otherwise as :meth:`one`."""
        value = self.at(values, *names)
        return None if value is None else self.one(decode, value, *names)

    def one(self, decode: Callable[[dict[str, Any]], T], value: object, *names: object) -> T | None:
        """As :meth:`decoded`; None for what is left alone where it can't be read."""
        try:
            return self.decoded(decode, value, *names)
        except LedgerNewer:
            # It is no proof to us, and stays: a process of that newer version, which may run beside this one, goes by
            # it.
            if self.newer is Newer.LEFT:
                return None
            raise

    def decoded(self, decode: Callable[[dict[str, Any]], T], value: object, *names: object) -> T:
        """Return what ``decode`` makes of a value's fields. :raises LedgerNewer: nothing that this version knows."""
        fields = self.read(value, *names)
        try:
            return decode(fields)
        except _MALFORMED as e:
            raise self.unread(fields, *names) from e

    def read(self, value: object, *names: object) -> dict[str, Any]:
        """Return a value's fields. :raises LedgerNewer: it is none, of another version, or lacks one that it needs."""
        found = value
        if isinstance(value, bytes):
            try:
                found = json.loads(zlib.decompress(value) if self.packed else value)
            except (ValueError, RecursionError, zlib.error):
                pass
        if not isinstance(found, dict) or found.get("v") != self.version or not found.keys() >= {*self.needs}:
            raise self.unread(found, *names)
        return found

    def unread(self, found: object, *names: object) -> LedgerNewer:
        """Return the error for what this version can't read."""
        return LedgerNewer(self.about.format(**dict(zip(self.names, map(str, names), strict=False))), found)


def known(kind: type[T]) -> Callable[[Mapping[str, Any]], T]:
    """Return what makes a dataclass of a record's fields, of those that it has; lists become tuples where it has these.

    :raises TypeError: one is missing, or its value is of another type.
    """

    types = _types(cast("Any", kind))

    def make(found: Mapping[str, Any]) -> T:
        fields = {name: found[name] for name in types if name in found}
        if wrong := [name for name, value in fields.items() if not _is_a(value, types[name])]:
            raise TypeError(", ".join(wrong))
        lists = [name for name, value in fields.items() if isinstance(value, list) and _is_tuple(types[name])]
        return kind(**{**fields, **{name: tuple(fields[name]) for name in lists}})

    return make


def _is_tuple(hint: Any) -> bool:
    return tuple in (get_origin(one) or one for one in (hint, *get_args(hint)))


@cache
def _types(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields_of(kind)}


def _is_a(value: object, hint: Any) -> bool:
    """Whether JSON's value is of a type, as far as that is of text, number, list or object; and what these hold."""
    origin, args = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return any(_is_a(value, one) for one in args)
    if hint is None or hint is NoneType:
        return value is None
    if origin in (int, float):
        return not isinstance(value, bool) and isinstance(value, int if origin is int else int | float)
    if origin in (str, bool):
        return isinstance(value, origin)
    if isinstance(origin, type) and issubclass(origin, Mapping):  # of its keys JSON makes text
        return isinstance(value, dict) and all(_is_a(one, args[1]) for one in value.values() if args)
    if origin in (list, tuple):
        return isinstance(value, list | tuple) and all(_is_a(one, args[0]) for one in value if args)
    return True


def in_pieces(key: str, value: bytes) -> dict[str, bytes]:
    """Return a value of any size as values of keys ``<key>/<n>/<of>``, each of which fits into a record.

    More than one say in ``<of>`` of which writing they are, by a digest of the whole.
    """
    # A writer that dies between two batches leaves fewer than it meant to, beside all of the value that it was to
    # replace. Without the digest, as many pieces of the one and of the other would be taken for a value.
    pieces = [value[at : at + MOST_BYTES] for at in range(0, len(value), MOST_BYTES)] or [b""]
    of = str(len(pieces)) if len(pieces) == 1 else f"{len(pieces)}-{sha256(value).hexdigest()[:12]}"
    return {f"{key}/{n}/{of}": piece for n, piece in enumerate(pieces)}


def whole(values: Mapping[str, bytes], key: str) -> bytes | None:
    """Return the value of which :func:`in_pieces` made pieces; None if it is not there, or not all of it.

    Of several that are all there, the one that was written last.

    :param values: in the order in which they were written.
    """
    found = {name.removeprefix(f"{key}/"): piece for name, piece in values.items() if name.startswith(f"{key}/")}
    # Who replaces a value removes the old one behind the new one: before that both may be there, or the new one in part.
    for of in reversed(dict.fromkeys(name.partition("/")[2] for name in found)):
        names = [f"{n}/{of}" for n in range(int(of.partition("-")[0]))]
        if found.keys() >= {*names}:
            return b"".join(found[name] for name in names)
    return None
