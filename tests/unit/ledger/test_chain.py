"""The chain of a mirror's reports: what is decided, once each, and by whom of two at once."""

from __future__ import annotations

import json

import pytest

from airflow_mirror.errors import LedgerNewer
from airflow_mirror.ledger import chain
from airflow_mirror.ledger.chain import Link, add, digest, links
from tests.unit.ledger.memory import MemoryLedger


def test_each_link_names_the_one_before_it_and_no_other_mirrors() -> None:
    ledger = MemoryLedger()
    for mirror, run, report in (("m", "a", "1"), ("m2", "x", "9"), ("m", "b", "2"), ("m", "a", "3")):
        add(ledger, mirror, run, report)
    first, second, third = links(ledger.values(), "m")
    assert [(link.run, link.number) for link in (first, second, third)] == [("a", 1), ("b", 2), ("a", 3)]
    assert (first.before, second.before, third.before) == ("", first.digest, second.digest)
    assert [link.number for link in links(ledger.values(), "m2")] == [1]


def test_same_report_is_linked_once_however_often_it_is_added() -> None:
    ledger = MemoryLedger()
    once = add(ledger, "m", "a", "1")
    decided = len(ledger.records)
    assert add(MemoryLedger(ledger.records), "m", "a", "1") == once and len(ledger.records) == decided
    again = add(ledger, "m", "a", "2")
    assert [link.report for link in again] == ["1", "2"], "it carries those of its run"
    assert add(ledger, "m", "a", "1") == once, "its own is the last one that it carries"


def test_of_two_that_add_at_once_one_follows_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one decides in between: the first one's decision is refused, and made again behind it."""
    mine = MemoryLedger()
    theirs = MemoryLedger(mine.records)
    real, met = links, list[int]()

    def links_and_meanwhile(values: object, mirror: str) -> list[Link]:
        found = real(values, mirror)  # type: ignore[arg-type]
        if not met:
            met.append(1)
            add(theirs, "m", "b", "2")
        return found

    monkeypatch.setattr(chain, "links", links_and_meanwhile)
    add(mine, "m", "a", "1")
    first, second = real(mine.values(), "m")
    assert (first.run, second.run, second.before) == ("b", "a", first.digest)


def test_digest_covers_everything_but_the_seal_in_whatever_order() -> None:
    report = {"b": [1.5, {"2": None, "10": "\u00e9"}], "a": True}
    same = json.loads(json.dumps({**report, "seal": {"links": []}}, indent=3, ensure_ascii=False))
    assert digest(dict(reversed(same.items()))) == digest(report)
    for changed in ({**report, "a": False}, {**report, "c": None}, {"a": True}, {**report, "b": [1.5]}):
        assert digest(changed) != digest(report)


@pytest.mark.parametrize("change", [{"number": True}, {"number": "1"}, {"run": None}, {"before": 7}])
def test_link_with_a_field_of_another_type_is_none(change: dict[str, object]) -> None:
    (link,) = add(MemoryLedger(), "m", "a", "1")
    assert Link.of(link.value(), "it") == link
    with pytest.raises(LedgerNewer):
        Link.of({**link.value(), **change}, "it")
