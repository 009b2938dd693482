"""``airflow-mirror rights``: the ACLs that a mirror's principal needs, as commands or as JSON."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any, NamedTuple

from airflow_mirror.console.acl_script import script
from airflow_mirror.console.clusters import HELP, config_of
from airflow_mirror.console.command import add_json, command
from airflow_mirror.errors import InputError
from airflow_mirror.jobs.driver.arguments import add_flow, mirror_of
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.principal import given_principal
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.ledger_writers import is_open_by_default
from airflow_mirror.plan.rights import COMMANDS, NEWEST, ROLES, SIDES, SOURCE, Rights, Version, rights_of
from airflow_mirror.plan.selection import select_topics
from airflow_mirror.wire.served import release_of
from airflow_mirror.wire.settings import WireSettings

_TEXT = """\
Print the ACLs that a mirror's principal needs on both clusters: no more, and each with its reason. Changes nothing.
The output is a shell script of kafka-acls.sh commands: read it, set the variables at its top, run it. No cluster is
asked, unless --source or --target names one.

It is for clusters that let nobody do what no ACL allows. Where resources without ACLs are open to everybody
(allow.everyone.if.no.acl.found=true), the first one closes a resource to everybody else: run nothing of it there.

examples:
  airflow-mirror rights --name dc1-to-dc2 --include orders --include 'payments[.].*' --principal User:mirror
  airflow-mirror rights --mirror dc1-to-dc2.yaml --principal User:planner --role plan
  airflow-mirror rights --mirror dc1-to-dc2.yaml --source src.properties --target dst.properties --json
"""


class _Known(NamedTuple):
    """What is known of one cluster."""

    principal: str
    bootstrap: str
    version: Version
    open_by_default: bool | None = None


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "rights", _TEXT, _run)
    add_flow(p)
    whose = p.add_argument_group("whose rights, for what")
    whose.add_argument("--principal", metavar="User:NAME", help="default: the user of --source and of --target")
    whose.add_argument(
        "--role", action="append", choices=(*ROLES, *COMMANDS),
        help="a part of the work, or of somebody who only runs this console: 'status' is also for 'ledger', 'pause' for "
        "'resume' and 'rate'; may be repeated (default: all the work). A job without --plan plans as well",
    )  # fmt: skip
    whose.add_argument("--side", choices=SIDES, help="one cluster alone (default: both)")
    where = p.add_argument_group("the clusters")
    for side in SIDES:
        also = " and for the names of its topics" if side == SOURCE else ""
        where.add_argument(f"--{side}", metavar="CLUSTER", help=f"asked for its release{also}: {HELP}")
    for side in SIDES:
        where.add_argument(
            f"--{side}-version", metavar="X.Y", type=_version, help=f"the {side}'s release (default: the newest rules)"
        )
    add_json(p, "by side, the ACLs with their reasons, and the notes")


def _run(arguments: argparse.Namespace) -> None:
    mirror = mirror_of(arguments)
    names = None if arguments.source is None else _names(arguments.source, mirror)
    found = {}
    for side in [arguments.side] if arguments.side else SIDES:
        known = _known(arguments, side)
        rights = rights_of(
            mirror, side, known.principal, roles=arguments.role or ROLES, version=known.version, names=names,
            open_by_default=known.open_by_default,
        )  # fmt: skip
        found[side] = known, rights
    if arguments.json:
        print(json.dumps({side: _json(rights) for side, (_, rights) in found.items()}, indent=1))
    else:
        print("\n\n".join("\n".join(_script(side, known, rights)) for side, (known, rights) in found.items()))


def _names(source: str, mirror: Mirror) -> list[str]:
    with ClusterAdmin(config_of(source, SOURCE)) as admin:
        return select_topics(mirror, admin)


def _known(arguments: argparse.Namespace, side: str) -> _Known:
    """Return what is known of a cluster; it is asked if it is named.

    :raises InputError: nobody says whose rights these are, or what is said is no principal.
    """
    cluster, version = getattr(arguments, side), getattr(arguments, f"{side}_version")
    if arguments.principal is not None:
        given_principal("--principal", arguments.principal)
    if cluster is not None:
        with ClusterAdmin(config_of(cluster, side)) as admin:
            principal = arguments.principal or WireSettings.from_config(admin.config).principal
            release = version or release_of(admin.wire)
            return _Known(principal, admin.config.bootstrap, release, is_open_by_default(admin))
    if arguments.principal is None:
        raise InputError(
            "--principal is missing", "nothing says whose rights these are", f"Name it, or the cluster with --{side}."
        )
    return _Known(arguments.principal, f"{side}:9092", version or NEWEST)


def _json(rights: Rights) -> dict[str, Any]:
    return {"rights": [{**asdict(acl), "why": list(why)} for acl, why in rights.grants], "notes": rights.notes}


def _script(side: str, known: _Known, rights: Rights) -> list[str]:
    rules = "the newest rules" if known.version == NEWEST else f"Kafka {'.'.join(map(str, known.version))}"
    title = f"What {known.principal} needs on the {side} cluster ({rules})."
    return list(script(side, title, known.bootstrap, rights))


def _version(text: str) -> Version:
    try:
        return tuple(int(part) for part in text.split("."))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no release such as 3.8") from None
