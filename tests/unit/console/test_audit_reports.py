"""``airflow-mirror audit-reports``: what it prints, and with which status it ends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from airflow_mirror.console.main import main
from airflow_mirror.cutover.signing import fingerprint
from airflow_mirror.ledger.records import LINK
from tests.driven.ledger import LedgerCluster
from tests.unit.cutover.test_evidence import FOREIGN, PUBLIC, Runs

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


@pytest.fixture
def runs(dst: LedgerCluster) -> Runs:
    """Three runs whose files lie in the directory that the command is called in, and two keys."""
    one = Runs(ledger=dst.ledger).end("monday").end("tuesday").end("friday")
    for name, text in one.files.items():
        Path(name).write_text(text)
    write("public.pem", PUBLIC)
    write("foreign.pem", FOREIGN.public_key())
    return one


def write(file: str, key: Ed25519PublicKey) -> None:
    Path(file).write_bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def verify(*words: str) -> int:
    return main(["audit-reports", *words])


def test_proven_reports_are_listed_with_what_was_not_checked(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify("monday.json", "tuesday.json") == 0
    key = fingerprint(PUBLIC)[:16]
    assert capsys.readouterr().out.splitlines() == [
        f"monday.json: link 1 of m, run monday, signed with key {key}, which nobody checked (--key does)",
        f"tuesday.json: link 2 of m, run tuesday, signed with key {key}, which nobody checked (--key does)",
        "proven",
    ]
    assert verify("monday.json", "tuesday.json", "--key", "public.pem", "--target", "dst") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"monday.json: link 1 of m, run monday, signed with key {key}",
        f"tuesday.json: link 2 of m, run tuesday, signed with key {key}",
        "not given: link 3, run friday",
        "proven, and so is the ledger's chain of 3 links",
    ]


def test_each_link_of_the_ledger_that_no_file_has_is_listed(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever keeps the first reports back must not have the rest taken for all."""
    for given, missing in (("friday", [(1, "monday"), (2, "tuesday")]), ("tuesday", [(1, "monday"), (3, "friday")])):
        assert verify(f"{given}.json", "--target", "dst") == 0
        said = capsys.readouterr().out.splitlines()[1:-1]
        assert said == [f"not given: link {number}, run {run}" for number, run in missing]


def test_first_broken_link_is_named_with_status_one(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify("monday.json", "friday.json") == 1
    assert "error: friday.json: link 2\n  why: it is missing between monday.json" in capsys.readouterr().err
    assert verify("monday.json", "--key", "foreign.pem") == 1
    assert "error: monday.json: link 1\n  why: it is signed with key" in capsys.readouterr().err
    runs.ledger.decide(lambda values: {LINK.key("m", number): None for number in sorted(LINK.under(values, "m"))[1:]})
    assert verify("monday.json", "tuesday.json", "--target", "dst") == 1
    assert "error: tuesday.json: link 2\n  why: the target's ledger has no such link" in capsys.readouterr().err


def test_what_can_not_be_read_is_wrong_input(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["none.json"], ["monday.json", "monday.json"], ["monday.json", "--key", "none.pem"]):
        assert verify(*words) == 2
    assert "none.json can't be read" in capsys.readouterr().err
