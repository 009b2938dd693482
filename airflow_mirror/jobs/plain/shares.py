"""What a tail deals to the other processes of its mirror, and what they report, as values in the target's state.

Keys carry the job that wrote them and the one that they are for. So each has one writer, and nobody reads what a tail
wrote that is not the mirror's any more. Numbers grow: a share with another number ends the one before. Whether a share
may be carried out is not decided here: that is its lease, which every task confirms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.task import turn_of
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.ledger.kinds import Kind, known
from airflow_mirror.ledger.records import SHARE, SHARE_REPORT
from airflow_mirror.wording import count, some

_NAMED = 20

T = TypeVar("T")
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


def named(lists: Sequence[Sequence[CopyRange]]) -> str:
    """Return in words which partitions lists of ranges have."""
    found = sorted({one.source for part in lists for one in part})
    return f"{count(len(found), 'partition')}: {some(map(str, found), _NAMED)}"


def given(mirror: str, tail: str, member: str, share: Share, before: Values) -> Changes:
    """Return what gives a share to a process, in place of an earlier one.

    :param tail: job that gives it, ``member`` the one that gets it. :param before: the state's values.
    """
    values = turn_of(share.options, share.lists)
    values |= {"lease": asdict(share.lease), "seconds": share.seconds, "ends": share.ends}
    return _newest(SHARE, (mirror, tail, member), share.number, values, before)


def share_of(values: Values, mirror: str, tail: str, member: str, after: int = 0) -> Share | None:
    """Return the newest share that a tail gave to a process; None: none with a number above ``after``.

    :raises LedgerNewer: a newer version of the package wrote it.
    """
    return _read(SHARE, _share, (mirror, tail, member), values, after)


def _share(number: int, content: Mapping[str, Any]) -> Share:
    """Return a share. A field that is not known is one too many: what is half read may allow more."""
    return Share(
        number=number,
        lease=LeaseToken(**content["lease"]),
        options=CopyOptions(**content["options"]),
        lists=[[CopyRange(**one) for one in part] for part in content["ranges"]],
        seconds=content["seconds"],
        ends=content["ends"],
    )


def reported(
    mirror: str, member: str, tail: str, number: int, results: Iterable[PartitionResult], before: Values
) -> Changes:
    """Return what reports that a share is over, and how it went."""
    values = {"results": [one.to_dict() for one in results]}
    return _newest(SHARE_REPORT, (mirror, member, tail), number, values, before)


def report_of(
    values: Values, mirror: str, member: str, tail: str, after: int = 0
) -> tuple[int, list[PartitionResult]] | None:
    """Return the number of the last share that a process reported on to a tail, and its results.

    None: none with a number above ``after``.

    :raises LedgerNewer: a newer version of the package wrote it.
    """
    return _read(SHARE_REPORT, _report, (mirror, member, tail), values, after)


def _report(number: int, content: Mapping[str, Any]) -> tuple[int, list[PartitionResult]]:
    return number, [known(PartitionResult)(one) for one in content["results"]]


def left_by_others(values: Values, mirror: str, tail: str) -> Changes:
    """Return what removes the shares of other tails and the reports to them."""
    found = ((key, SHARE.match(key) or SHARE_REPORT.match(key)) for key in values)
    return {key: None for key, names in found if names and names["mirror"] == mirror and names["tail"] != tail}


def _newest(kind: Kind, names: tuple[str, ...], number: int, content: dict[str, Any], before: Values) -> Changes:
    pieces = kind.put(content, *names, number)
    # The new one first: between the two writes there are two, and the higher number counts.
    return {**pieces, **{key: None for key in before if key.startswith(kind.below(*names)) and key not in pieces}}


def _read(
    kind: Kind, decode: Callable[[int, Mapping[str, Any]], T], names: tuple[str, ...], values: Values, after: int
) -> T | None:  # fmt: skip
    for number in sorted(map(int, kind.under(values, *names)), reverse=True):
        if number <= after:
            break
        if (found := kind.load(partial(decode, number), values, *names, number)) is not None:
            return found
    return None
