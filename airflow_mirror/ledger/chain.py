"""A mirror's reports as a chain: whoever changes one of them, or takes one out, has to change what the ledger decided.

When a run of a cutover ends, one decision adds a link: the digest of its report, and that of the link before it. The key
of a link has its number, so that of two that are added at once one wins, and the other one follows it. A report that
changes later, because its run is made again, gets another link; the same one never gets two.

The report is on the target before its link is decided, and carries the link afterwards. A process that dies in between
leaves a report without one, and the next process of the run adds what is missing: :func:`add` finds a link that is there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_mirror.ledger.decisions import Decisions, Values
from airflow_mirror.ledger.kinds import known
from airflow_mirror.ledger.records import LINK

SEAL = "seal"  # the key of a report under which it carries its links; its digest does not cover it


@dataclass(frozen=True, kw_only=True)
class Link:
    """One link.

    :param number: from 1, without gaps. :param report: digest of the report.
    :param before: digest of the link before it; "" of the first one.
    """

    mirror: str
    run: str
    number: int
    report: str
    before: str

    def value(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"v": LINK.version, **asdict(self)}

    @classmethod
    def of(cls, value: object, mirror: str) -> Link:
        """Return what :meth:`value` made. :raises LedgerNewer: it is something else."""
        return LINK.decoded(_link, value, mirror)

    @property
    def digest(self) -> str:
        """What the next link names it by."""
        return hashlib.sha256(self.signed()).hexdigest()

    def signed(self) -> bytes:
        """Return what a signature covers. It begins with what nothing else begins with that the same key may sign."""
        return b"airflow-mirror link\n" + canonical(self.value())


def canonical(value: object) -> bytes:
    """Return JSON that is the same for equal values: keys in order, no spaces, ASCII."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def digest(report: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a report, as JSON has it, in canonical form and without what it carries of the chain."""
    return hashlib.sha256(canonical({key: value for key, value in report.items() if key != SEAL})).hexdigest()


def links(values: Values, mirror: str) -> list[Link]:
    """Return a mirror's links in order.

    :raises LedgerNewer: a newer version of the package wrote one.
    """
    found = (Link.of(values[LINK.key(mirror, number)], mirror) for number in LINK.under(values, mirror))
    return sorted(found, key=lambda link: link.number)


def add(ledger: Decisions, mirror: str, run: str, report: str) -> list[Link]:
    """Decide the link of a report, unless it has one; return the links of its run, the report's own last.

    :param report: its digest.
    :raises Undecided: nobody knows whether it was added.
    """

    def change(values: Values) -> Values | None:
        # The run's next process comes here as well, and its predecessor may have died behind the record: the link that it
        # left is found, and no second one is made.
        there = links(values, mirror)
        if any((link.run, link.report) == (run, report) for link in there):
            return None
        # Two runs that end at once want the same number. The key bears it, so one of them is refused at its version of
        # that key, is called again with the other one's link there, and follows that.
        number, before = (there[-1].number + 1, there[-1].digest) if there else (1, "")
        one = Link(mirror=mirror, run=run, number=number, report=report, before=before)
        return LINK.put(asdict(one), mirror, f"{number:06d}")

    # Dies before it: the report is on the target, and bears no link; the next process of the run adds it, and
    # `evidence` names such a report as unsealed. Dies behind it: as above, and the report is written once more with the
    # link.
    ledger.decide(change)
    mine = [link for link in links(ledger.values(), mirror) if link.run == run]
    # What comes behind is of a later process of the run, whose report was another one: not in this one's seal.
    return mine[: 1 + max(n for n, link in enumerate(mine) if link.report == report)]


def _link(fields: dict[str, Any]) -> Link:
    one = known(Link)(fields)
    if type(one.number) is not int or not all(isinstance(f, str) for n, f in vars(one).items() if n != "number"):
        raise TypeError("not the fields of a link")
    return one
