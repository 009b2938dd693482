"""``airflow-mirror audit-reports``: are reports of cutovers what they were, and are they all there?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from airflow_mirror.common.text_files import read_text
from airflow_mirror.console.clusters import HELP, target_of
from airflow_mirror.console.command import command
from airflow_mirror.cutover.evidence import prove
from airflow_mirror.cutover.signing import load_public
from airflow_mirror.errors import InputError
from airflow_mirror.ledger.chain import links
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.wording import count, some

_TEXT = """\
Prove reports of a mirror's cutovers (report.json), offline: each matches the digest in its link, and the links of
all files are one chain, in the order of the files. With --key: each is signed with that key. With --target: the ledger's
own chain is whole, and has these links.

Exit status: 0 proven; 1 not: the first broken link is named; 2 wrong input.

examples:
  airflow-mirror audit-reports report.json
  airflow-mirror audit-reports monday.json tuesday.json --key public.pem --target dst.properties
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "audit-reports", _TEXT, _run)
    p.add_argument("files", nargs="+", metavar="FILE", help="reports as JSON, in the order in which they were made")
    p.add_argument("--key", metavar="PUBLIC", help="the public Ed25519 key in a PEM file, from somebody whom you trust")
    p.add_argument("--target", metavar="CLUSTER", help=f"ask its ledger as well: {HELP}")


def _run(arguments: argparse.Namespace) -> None:
    key = None if arguments.key is None else load_public(arguments.key)
    texts = {file: read_text(Path(file), file) for file in arguments.files}
    if twice := sorted({file for file in arguments.files if arguments.files.count(file) > 1}):
        raise InputError("files are named twice", some(twice), "Name each file once.")
    decided, reports = None, prove(texts, key)
    if arguments.target is not None:
        with target_of(arguments) as target:
            decided = links(Ledger(target).peek(), reports[0].link.mirror)
        prove(texts, key, decided)
    for one in reports:
        signed = "not signed" if one.key is None else f"signed with key {one.key[:16]}"
        unchecked = ", which nobody checked (--key does)" if one.key is not None and key is None else ""
        print(f"{one.file}: link {one.link.number} of {one.link.mirror}, run {one.link.run}, {signed}{unchecked}")
    given = {link.number for one in reports for link in one.links}  # a run's earlier links are in its last report
    for link in (one for one in decided or () if one.number not in given):
        print(f"not given: link {link.number}, run {link.run}")
    print("proven" if decided is None else f"proven, and so is the ledger's chain of {count(len(decided), 'link')}")
