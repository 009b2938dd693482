"""What a tail deals to the other processes of its mirror, and what they report, as values in the target's state.

Keys carry the job that wrote them and the one that they are for. So each has one writer, and nobody reads what a tail
wrote that is not the mirror's any more. Numbers grow: a share with another number ends the one before. Whether a share
may be carried out is not decided here: that is its lease, which every task confirms.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.task import turn_of
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.ledger.reading import exactly, known, readable
from airflow_mirror.ledger.state import in_pieces, names_below, whole
from airflow_mirror.wording import count, some

_VERSION = 1
_NAMED = 20

Values = Mapping[str, bytes]
Changes = dict[str, bytes | None]


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one process is to copy in one turn.

    :param lists: the ranges of each task; none: nothing, and what it copies now is to end.
    :param seconds: how long the turn takes. :param ends: without lists: the number of the share that is over.
    """

    number: int
    lease: LeaseToken
    options: CopyOptions
    lists: Sequence[Sequence[CopyRange]] = field(default=())
    seconds: float = 0.0
    ends: int = 0


def keys_of(mirror: str) -> str:
    """Return what the keys of a mirror's shares and reports begin with."""
    return f"share/{mirror}/"


def named(lists: Sequence[Sequence[CopyRange]]) -> str:
    """Return in words which partitions lists of ranges have."""
    found = sorted({one.source for part in lists for one in part})
    return f"{count(len(found), 'partition')}: {some(map(str, found), _NAMED)}"


def given(mirror: str, tail: str, member: str, share: Share, before: Values) -> Changes:
    """Return what gives a share to a process, in place of an earlier one.

    :param tail: job that gives it, ``member`` the one that gets it. :param before: the state's values.
    """
    values = {"v": _VERSION, **turn_of(share.options, share.lists)}
    values |= {"lease": asdict(share.lease), "seconds": share.seconds, "ends": share.ends}
    return _newest(f"{keys_of(mirror)}{tail}/to/{member}/", share.number, values, before)


def share_of(values: Values, mirror: str, tail: str, member: str, after: int = 0) -> Share | None:
    """Return the newest share that a tail gave to a process; None: none with a number above ``after``.

    :raises LedgerNewer: a newer version of the package wrote it.
    """
    about = f"a share of {mirror!r}"
    needed = ("lease", "options", "ranges", "seconds", "ends")
    found = _read(f"{keys_of(mirror)}{tail}/to/{member}/", values, after, about, *needed)
    if found is None:
        return None
    number, content = found
    return Share(
        number=number,
        lease=exactly(LeaseToken, content["lease"], about),
        options=exactly(CopyOptions, content["options"], about),
        lists=[[exactly(CopyRange, one, about) for one in part] for part in content["ranges"]],
        seconds=content["seconds"],
        ends=content["ends"],
    )


def reported(
    mirror: str, member: str, tail: str, number: int, results: Iterable[PartitionResult], before: Values
) -> Changes:
    """Return what reports that a share is over, and how it went."""
    values = {"v": _VERSION, "results": [one.to_dict() for one in results]}
    return _newest(f"{keys_of(mirror)}{member}/did/{tail}/", number, values, before)


def report_of(
    values: Values, mirror: str, member: str, tail: str, after: int = 0
) -> tuple[int, list[PartitionResult]] | None:
    """Return the number of the last share that a process reported on to a tail, and its results.

    None: none with a number above ``after``.

    :raises LedgerNewer: a newer version of the package wrote it.
    """
    about = f"a report on a share of {mirror!r}"
    found = _read(f"{keys_of(mirror)}{member}/did/{tail}/", values, after, about, "results")
    return None if found is None else (found[0], [known(PartitionResult, one, about) for one in found[1]["results"]])


def left_by_others(values: Values, mirror: str, tail: str) -> Changes:
    """Return what removes the shares of other tails and the reports to them."""
    start, others = keys_of(mirror), Changes()
    for key in values:
        if key.startswith(start):
            job, kind, whom = (*key.removeprefix(start).split("/"), "", "")[:3]
            if tail not in (job if kind == "to" else whom,):
                others[key] = None
    return others


def _newest(prefix: str, number: int, content: dict[str, Any], before: Values) -> Changes:
    pieces = in_pieces(f"{prefix}{number}", zlib.compress(json.dumps(content).encode()))
    # The new one first: between the two writes there are two, and the higher number counts.
    return {**pieces, **{key: None for key in before if key.startswith(prefix) and key not in pieces}}


def _read(prefix: str, values: Values, after: int, about: str, *needed: str) -> tuple[int, dict[str, Any]] | None:
    numbers = sorted((int(name) for name in names_below(values, prefix)), reverse=True)
    for number in numbers:
        if number <= after:
            break
        packed = whole(values, f"{prefix}{number}")
        if packed is not None:
            return number, readable(zlib.decompress(packed), _VERSION, about, *needed)
    return None
