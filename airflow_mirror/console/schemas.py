"""``airflow-mirror schemas``: whether the schema ids in a mirror's topics mean the same on both sides."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from airflow_mirror.console.clusters import add_source, add_target, planned_source, target_of
from airflow_mirror.console.command import add_json, add_mirror, command
from airflow_mirror.console.registries import add_registries, prover_of
from airflow_mirror.console.request import last_plan
from airflow_mirror.cutover.schema_ids import SchemaProof
from airflow_mirror.errors import InputError
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.plan.requirements import require_planned_clusters
from airflow_mirror.wording import count, some

_TEXT = """\
Read the first and the last records of each partition of a mirror's topics on the source, and compare what each schema id
in them means in both registries, by content: type, text and references. An id that the source's registry does not know is
none: binary data begins with a 0, too. A subject that a move has left in mode IMPORT is named. Run it before a cutover.
Only reads.

The registries are those in the mirror's plan (source_registry, target_registry), or those that are named: an address, an
Airflow connection, or a file of properties: schema.registry.url, basic.auth.user.info, bearer.auth.token,
ssl.ca.location, ssl.certificate.location, ssl.key.location.

Exit status: 0 each is the same; 1 one is missing or another schema, a subject is in mode IMPORT, none was found to
compare, or a registry does not answer; 2 wrong input.

examples:
  airflow-mirror schemas --target dst.properties --mirror dc1-to-dc2 \\
    --source-registry http://registry.dc1:8081 --target-registry dst-registry.properties
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "schemas", _TEXT, _run)
    add_target(p)
    add_mirror(p)
    add_source(p)
    add_registries(p)
    p.add_argument(
        "--records", type=int, default=200, metavar="N", help="to read at each end of a partition (default: %(default)s)"
    )
    add_json(p)


def _run(arguments: argparse.Namespace) -> int:
    plan = last_plan(arguments)
    if (prove := prover_of(arguments, plan.mirror, each=max(1, arguments.records))) is None:
        raise InputError(
            f"--mirror {plan.mirror.name}", "its plan names no registries",
            "Give --source-registry and --target-registry.",
        )  # fmt: skip
    with (
        target_of(arguments) as target,
        ClusterAdmin(planned_source(arguments, plan.mirror)) as source,
    ):
        require_planned_clusters(plan, source, target)
        found = prove(plan, source, None)
    if arguments.json:
        print(json.dumps(found.to_dict(), indent=1))
    else:
        _show(found)
    return int(bool(found.lines or not found.rows))


def _show(found: SchemaProof) -> None:
    console = Console(markup=False, highlight=False)
    table = Table("topic", "of", "id", "subjects", "on the target", box=box.SIMPLE_HEAD)
    for row in found.rows:
        table.add_row(row.topic, row.part, str(row.id), some(row.subjects, 3) or "by its GUID alone", row.verdict)
    console.print(table if found.rows else "no record carries the id of a schema that the source's registry knows")
    ids = f"{count(len(found.rows), 'id')} in {count(found.records, 'record')}"
    wrong = f"{len(found.wrong)} of them missing or different on the target"
    console.print(f"{ids}; {wrong if found.rows else 'nothing is proven'}")
    for line in found.shut:
        console.print(f"{line} ('airflow-mirror move-schemas --yes' ends it)")
    if found.imports:
        console.print("the whole registry of the target is in mode IMPORT: producers could register nothing there")
    if found.without:
        console.print(f"without ids: {some(found.without)}")
