"""One record that names a decision that nobody made: who may write to the log can stop everybody, and decides nothing."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.errors import InputError, LedgerLost
from airflow_mirror.ledger import export
from airflow_mirror.ledger.export import restore
from airflow_mirror.ledger.fold import Decision, Fold, Position
from tests.unit.ledger.memory import MemoryLedger

MADE_UP = Decision(expects={"topic/orders": 1}, sets={"topic/orders": None}, read=Position(0, "nobody's")).encode()


@pytest.fixture
def ledger() -> MemoryLedger:
    """What is decided, and what somebody has appended behind that."""
    one = MemoryLedger()
    one.decide(lambda _: {"topic/orders": {"mirror": "m"}})
    one.records.append(MADE_UP)
    return one


def exported(ledger: MemoryLedger) -> dict[str, Any]:
    return {"v": 1, "records": [base64.b64encode(one).decode() for one in ledger.records]}


def test_every_reader_stops_there_and_nobody_decides(ledger: MemoryLedger) -> None:
    """Of all mirrors, whatever the record is about; also who has read what is before it, and who asks again."""
    for reader in (ledger, ledger, MemoryLedger(ledger.records)):
        with pytest.raises(LedgerLost, match="was made by somebody who had read decision nobody's"):
            reader.values()
        with pytest.raises(LedgerLost, match="who had read"):
            reader.decide(lambda _: {"topic/another": {"mirror": "other"}})
    assert len(ledger.records) == 2
    fold = Fold()
    fold.apply(0, ledger.records[0])
    with pytest.raises(LedgerLost):
        fold.apply(1, MADE_UP)
    assert fold.values == {"topic/orders": {"mirror": "m"}}  # what it wanted is not so


def test_no_restore_brings_such_a_record_back_or_goes_on_behind_it(
    ledger: MemoryLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person deletes the topic and restores an export of before."""
    nowhere: Any = None
    with pytest.raises(InputError, match="no complete export.*Nothing was touched"):
        restore(nowhere, exported(ledger))
    before = exported(MemoryLedger(ledger.records[:1]))
    adopted: list[int] = []
    stub = SimpleNamespace(
        create_topic=lambda: None, topic=lambda: None, adopt=lambda: adopted.append(1), wire=None
    )  # fmt: skip
    monkeypatch.setattr(export, "Ledger", lambda _: stub)
    monkeypatch.setattr(export, "DecisionLog", lambda _: ledger)
    monkeypatch.setattr(export, "_records", lambda _: ledger.records)
    with pytest.raises(InputError, match="holds records that are not in the export.*delete the topic and restore again"):
        restore(stub, before)  # type: ignore[arg-type]
    assert adopted == []
    whole = ledger.records[0]
    ledger.records.clear()  # the topic is deleted
    assert restore(stub, before) == 1 and adopted == [1]  # type: ignore[arg-type]
    assert ledger.records == [whole] and MemoryLedger(ledger.records).values() == {"topic/orders": {"mirror": "m"}}
