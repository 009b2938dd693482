"""Prove reports offline: each is what its link says, who signed it, and the links of all of them are one chain.

Pure: texts in, lines out. What is wrong first is named by its file and link.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_mirror.common.text_files import json_of
from airflow_mirror.cutover.signing import fingerprint, is_signed
from airflow_mirror.errors import LedgerNewer, NeedsHuman
from airflow_mirror.ledger.chain import SEAL, Link, digest

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


class Proven(NamedTuple):
    """A report that is what its own link says.

    :param links: those of its run, its own last. :param key: fingerprint of the key that it says to be signed with.
    """

    file: str
    links: list[Link]
    key: str | None

    @property
    def link(self) -> Link:
        """The report's own link."""
        return self.links[-1]


def prove(
    texts: Mapping[str, str], key: Ed25519PublicKey | None = None, decided: Sequence[Link] | None = None
) -> list[Proven]:
    """Return the reports, all of which are proven.

    :param texts: reports as JSON by their files' names, in the chain's order.
    :param key: that must have signed each; None: signatures are not checked.
    :param decided: links in the ledger of the target, in their order; None: it is not asked.
    :raises NeedsHuman: names the first file and link that is not as it must be.
    """
    reports = [_read(file, text, key) for file, text in texts.items()]
    known: dict[int, tuple[str, Link]] = {}
    for report in reports:
        for link in report.links:
            file, other = known.setdefault(link.number, (report.file, link))
            # Two links of one number: one of the reports was made elsewhere, since the ledger decides one alone.
            if other != link:
                cause = f"{file} has another one of this number, of run {other.run!r} instead of {link.run!r}"
                raise _broken(report.file, link.number, cause)
    for before, report in pairwise(reports):
        if report.link.number <= before.link.number:
            cause = f"it comes before link {before.link.number}, of {before.file}"
            raise _broken(report.file, report.link.number, cause)
        for number in range(before.link.number + 1, report.link.number):
            if number not in known:
                raise _broken(report.file, number, f"it is missing between {before.file} and this file")
    for number, (file, link) in sorted(known.items()):
        if number - 1 in known:
            _require_next(file, known[number - 1][1], link)
        # A link that was never decided: written into a report by hand, or its decision was refused and the report kept.
        if decided is not None and link not in decided:
            raise _broken(file, number, "the target's ledger has no such link")
    _require_whole(decided or ())
    return reports


def _require_whole(decided: Sequence[Link]) -> None:
    ledger = "the target's ledger"
    if decided and (decided[0].number, decided[0].before) != (1, ""):
        raise _broken(ledger, decided[0].number, "what it follows is missing")
    for one, after in pairwise(decided):
        _require_next(ledger, one, after)


def _broken(file: str, link: int | None, cause: str) -> NeedsHuman:
    what = file if link is None else f"{file}: link {link}"
    return NeedsHuman(what, cause, "Compare with what the target has ('airflow-mirror report --json -').")


def _read(file: str, text: str, key: Ed25519PublicKey | None) -> Proven:
    try:
        values = json_of(text)
        if not isinstance(values, dict):
            raise ValueError("it is no object")
    except (ValueError, RecursionError) as e:
        raise _broken(file, None, f"it is no report: {e}") from None
    seal = values.get(SEAL)
    if not isinstance(seal, dict) or not isinstance(seal.get("links"), list) or not seal["links"]:
        raise _broken(file, None, "it carries no link: its run had not ended, or it was changed since")
    try:
        its = [Link.of(value, file) for value in seal["links"]]
    except LedgerNewer:
        raise _broken(file, None, "this version can't read the links that it carries") from None
    own, found = its[-1], digest(values)
    # Also a report that another process has changed since its link, and died before it got a new one: it is named, not
    # excused.
    if own.report != found:
        raise _broken(file, own.number, f"it was changed: its digest is {found}, that of its link {own.report}")
    if any(link.mirror != values.get("mirror") for link in its):
        raise _broken(file, own.number, f"it is of mirror {values.get('mirror')!r}, its link of {own.mirror!r}")
    # The links before its own are covered by no signature. Of another run, one would stand in for a report that was
    # taken out.
    if any(link.run != own.run for link in its):
        raise _broken(file, own.number, "it carries a link of another run")
    if [link.number for link in its] != sorted({link.number for link in its}):
        raise _broken(file, own.number, "the links that it carries are not in order")
    signed_by = seal.get("key")
    if key is not None:
        _require_signed(file, own, seal, key)
    return Proven(file, its, None if signed_by is None else str(signed_by))


def _require_signed(file: str, own: Link, seal: Mapping[str, Any], key: Ed25519PublicKey) -> None:
    if seal.get("signature") is None:
        raise _broken(file, own.number, "it is not signed")
    if seal.get("key") != fingerprint(key):
        cause = f"it is signed with key {seal.get('key')}, and not with the given one, {fingerprint(key)}"
        raise _broken(file, own.number, cause)
    if not is_signed(key, seal, own.signed()):
        raise _broken(file, own.number, "its signature is not one of this link")


def _require_next(file: str, before: Link, link: Link) -> None:
    if link.mirror != before.mirror:
        raise _broken(file, link.number, f"it is of mirror {link.mirror!r}, the one before of {before.mirror!r}")
    if link.before != before.digest:
        cause = f"it follows a link with digest {link.before}; that of link {before.number} is {before.digest}"
        raise _broken(file, link.number, cause)
