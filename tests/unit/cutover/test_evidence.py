"""Reports are proven without a ledger, or against it: whatever is wrong is named by its file and link."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from airflow_mirror.cutover import signing
from airflow_mirror.cutover.evidence import prove
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.signing import Signer, fingerprint, load_public, load_signer
from airflow_mirror.errors import InputError, NeedsHuman
from airflow_mirror.ledger.chain import add, digest, links
from airflow_mirror.ledger.decisions import Decisions
from tests.unit.ledger.memory import MemoryLedger

KEY, FOREIGN = (ed25519.Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2))
PUBLIC = KEY.public_key()
PEM = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8


class Runs:
    """Runs of a mirror that end, one after the other, and what their files hold."""

    def __init__(self, key: ed25519.Ed25519PrivateKey | None = KEY, ledger: Decisions | None = None) -> None:
        self.ledger, self.files, self.key = ledger or MemoryLedger(), dict[str, str](), key

    def end(self, run: str, mirror: str = "m", error: str = "") -> Runs:
        report = CutoverReport(mirror=mirror, plan_hash="p", started=1.5, error=error)
        its = add(self.ledger, mirror, run, digest(json.loads(report.to_json())))
        signed = {} if self.key is None else Signer(self.key).sign(its[-1].signed())
        report.seal = {"links": [link.value() for link in its], **signed}
        self.files[f"{run}.json"] = report.to_json()
        return self

    def changed(self, file: str, *path: Any, to: Any) -> dict[str, str]:
        """The files, with one value of one of them changed."""
        values = json.loads(self.files[file])
        inner = values
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = to
        return {**self.files, file: json.dumps(values)}


def four() -> Runs:
    return Runs().end("a").end("b").end("c").end("d")


def broken(files: dict[str, str], *args: Any) -> NeedsHuman:
    with pytest.raises(NeedsHuman, match=r"Compare .*\('airflow-mirror report --json -'\)\.$") as caught:
        prove(files, *args)
    return caught.value


def test_reports_of_one_chain_are_proven_in_any_layout() -> None:
    runs = four()
    pretty = {name: json.dumps(json.loads(text), indent=2) for name, text in runs.files.items()}
    for files in (runs.files, pretty):
        found = prove(files, PUBLIC, links(runs.ledger.values(), "m"))
        assert [(one.file, one.link.number, one.link.run) for one in found] == [
            (f"{run}.json", number, run) for number, run in enumerate("abcd", 1)
        ]
    assert prove({"c.json": runs.files["c.json"]})[0].link.number == 3, "a part of a chain is one"


@pytest.mark.parametrize(
    ("path", "value"),
    [(("plan_hash",), "q"), (("started",), 1.25), (("version",), 2), (("checks",), ["all is well"]), (("new",), None)],
)
def test_changed_value_is_named_with_its_link(path: tuple[str], value: Any) -> None:
    error = broken(four().changed("b.json", *path, to=value))
    assert error.what == "b.json: link 2" and "it was changed" in str(error)


def test_no_byte_can_be_changed_unnoticed() -> None:
    runs = four()
    text = runs.files["b.json"]
    for at, byte in enumerate(text):
        other = "7" if byte != "7" else "8"
        error = broken({**runs.files, "b.json": f"{text[:at]}{other}{text[at + 1 :]}"}, PUBLIC)
        assert error.what.startswith(("b.json", "c.json")), at


def test_missing_link_is_named_between_its_neighbours() -> None:
    runs = four()
    del runs.files["b.json"]
    error = broken(runs.files)
    assert error.what == "c.json: link 2" and "missing between a.json and this file" in str(error)


def test_link_of_another_run_does_not_stand_in_for_its_report() -> None:
    """Links are public: that of a report which was taken out was put before the next one's own, which alone is signed."""
    runs = four()
    of = {run: json.loads(runs.files[f"{run}.json"])["seal"]["links"] for run in "bc"}
    files = runs.changed("c.json", "seal", "links", to=of["b"] + of["c"])
    del files["b.json"]
    error = broken(files, PUBLIC, links(runs.ledger.values(), "m"))
    assert error.what == "c.json: link 3" and "it carries a link of another run" in str(error)


def test_swapped_files_are_named() -> None:
    files = four().files
    error = broken({name: files[name] for name in ("a.json", "b.json", "d.json", "c.json")})
    assert error.what == "c.json: link 3" and "before link 4, of d.json" in str(error)
    error = broken({name: files[name] for name in ("b.json", "a.json")})
    assert error.what == "a.json: link 1" and "before link 2, of b.json" in str(error)


def test_report_that_was_made_anew_is_named_by_what_follows_it() -> None:
    """Somebody has written another first report, and signed it with the right key."""
    error = broken({**four().files, "a.json": Runs().end("a", error="nothing happened").files["a.json"]}, PUBLIC)
    assert error.what == "b.json: link 2" and "it follows a link with digest" in str(error)


def test_foreign_key_forged_signature_and_none_are_told_apart() -> None:
    foreign = Runs(FOREIGN).end("a")
    error = broken(foreign.files, PUBLIC)
    assert error.what.endswith(": link 1") and "signed with key" in str(error)
    assert fingerprint(FOREIGN.public_key()) in str(error) and fingerprint(PUBLIC) in str(error)
    forged = foreign.changed("a.json", "seal", "key", to=fingerprint(PUBLIC))
    assert "not one of this link" in str(broken(forged, PUBLIC))
    runs = four()
    for signature in ("AAAA", "no base64", 7, json.loads(runs.files["a.json"])["seal"]["signature"]):
        error = broken(runs.changed("b.json", "seal", "signature", to=signature), PUBLIC)
        assert error.what.endswith(": link 2") and "not one of this link" in str(error)
    assert "not signed" in str(broken(Runs(None).end("a").files, PUBLIC))
    assert prove(foreign.files)[0].key == fingerprint(FOREIGN.public_key()), "without a key nothing is said about it"


def test_ledger_must_have_each_link_and_be_a_chain_itself() -> None:
    runs = four()
    decided = links(runs.ledger.values(), "m")
    error = broken(runs.files, None, decided[:2])
    assert error.what == "c.json: link 3" and "ledger has no such link" in str(error)
    error = broken({"a.json": runs.files["a.json"]}, None, [decided[0], decided[2]])
    assert error.what == "the target's ledger: link 3"
    assert "no such link" in str(broken(runs.files, None, []))
    error = broken({"d.json": runs.files["d.json"]}, None, decided[2:])
    assert error.what == "the target's ledger: link 3" and "what it follows is missing" in str(error)


def test_run_that_is_made_again_fills_its_own_gaps() -> None:
    """Its last file carries the links of those that it replaced."""
    runs = Runs().end("a").end("b").end("a", error="again").end("c").end("b", error="again")
    files = {name: runs.files[name] for name in ("a.json", "c.json", "b.json")}
    assert [one.link.number for one in prove(files, PUBLIC)] == [3, 4, 5]
    error = broken({**files, "b.json": runs.changed("b.json", "seal", "links", 0, "report", to="0" * 64)["b.json"]})
    assert error.what == "a.json: link 3", "the next one shows that it was another"


def test_chains_of_two_mirrors_are_not_taken_for_one() -> None:
    other = Runs().end("x", mirror="m2").end("b", mirror="m2")
    error = broken({"a.json": four().files["a.json"], "b.json": other.files["b.json"]})
    assert error.what == "b.json: link 2" and "'m2'" in str(error)
    assert broken(four().changed("b.json", "seal", "links", 0, "mirror", to="m2")).what == "b.json: link 2"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "no report"), ("[]", "no object"), ("{", "no report"), ('{"mirror": "m"}', "no link"),
        ('{"a": 1, "a": 2, "seal": {}}', "the key 'a' stands twice"), ('{"seal": {"links": []}}', "no link"),
        ('{"seal": {"links": [7]}}', "can't read"), ('{"seal": {"links": [{"v": 2}]}}', "can't read"),
    ],
)  # fmt: skip
def test_file_without_a_readable_link_is_named(text: str, cause: str) -> None:
    error = broken({**four().files, "e.json": text})
    assert error.what == "e.json" and cause in str(error)


# --- keys -------------------------------------------------------------------------------------------------------------


def test_key_in_a_file_and_in_the_environment_sign_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pem = KEY.private_bytes(*PEM, serialization.NoEncryption())
    (tmp_path / "key.pem").write_bytes(pem)
    monkeypatch.setenv("REPORT_KEY", pem.decode())
    public = PUBLIC.public_bytes(PEM[0], serialization.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "public.pem").write_bytes(public)
    there = load_public(str(tmp_path / "public.pem"))
    for reference in (str(tmp_path / "key.pem"), "env:REPORT_KEY"):
        signer = load_signer(reference)
        seal = signer.sign(b"data")
        assert signing.is_signed(there, seal, b"data") and not signing.is_signed(there, seal, b"other data")
        assert "PRIVATE" not in repr(signer) + str(vars(signer)) + str(seal)


def test_what_is_no_key_is_named_and_nothing_of_it_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encrypted = KEY.private_bytes(*PEM, serialization.BestAvailableEncryption(b"hunter2"))
    other = ec.generate_private_key(ec.SECP256R1()).private_bytes(*PEM, serialization.NoEncryption())
    for n, pem in enumerate((b"hunter2", b"", encrypted, other, b"-----BEGIN PRIVATE KEY-----\nhunter2\n")):
        (tmp_path / f"{n}.pem").write_bytes(pem)
        for load in (load_signer, load_public):
            with pytest.raises(InputError, match=rf"{n}\.pem.* Ed25519 .*openssl") as caught:
                load(str(tmp_path / f"{n}.pem"))
            assert "hunter2" not in str(caught.value) and caught.value.__context__ is None
    monkeypatch.delenv("REPORT_KEY", raising=False)
    with pytest.raises(InputError, match="variable REPORT_KEY is not set"):
        load_signer("env:REPORT_KEY")
    with pytest.raises(InputError, match="can't be read: No such file"):
        load_signer(str(tmp_path / "none.pem"))
