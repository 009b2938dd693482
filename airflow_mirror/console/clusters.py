"""Which cluster a command is about: a file of client properties, or an Airflow connection."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_mirror.config import ClientConfig, Handover, load
from airflow_mirror.console.home import hooks_of
from airflow_mirror.errors import InputError, UnknownConnection
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror

_OF_FILES = (".properties", ".json", ".conf", ".config", ".cfg", ".txt")  # no connection is called so
HELP = "a file of librdkafka settings (one key=value per line), env:NAME that holds JSON, or an Airflow connection id"


def add_target(parser: argparse._ActionsContainer, *, required: bool = True) -> None:
    """Add ``--target``."""
    parser.add_argument("--target", required=required, metavar="CLUSTER", help=f"the target cluster: {HELP}")


def add_source(parser: argparse._ActionsContainer, plan: str = "the mirror's plan") -> None:
    """Add ``--source``, of a command whose mirror was planned. :param plan: whose source it is if nothing is given."""
    parser.add_argument("--source", metavar="CLUSTER", help=f"{HELP} (default: the source in {plan})")


def planned_source(arguments: argparse.Namespace, mirror: Mirror) -> ClientConfig:
    """Return the settings of ``--source``, or of the source that a planned mirror names.

    :raises InputError: it names nothing that is there.
    """
    return config_of(arguments.source or mirror.source, "source")


def add_both(parser: argparse.ArgumentParser) -> None:
    """Add ``--source`` and ``--target``, of a command that takes a Mirror."""
    group = parser.add_argument_group("clusters")
    for role in ("source", "target"):
        default = f"default: the Mirror's {role}, an Airflow connection"
        group.add_argument(f"--{role}", metavar="CLUSTER", help=f"{HELP} ({default})")


def both_of(arguments: argparse.Namespace, mirror: Mirror) -> tuple[ClientConfig, ClientConfig]:
    """Return the settings of ``--source`` and ``--target``; where one is missing, of the connection that a Mirror names.

    :raises InputError: a cluster is named nowhere, or what names it is not there.
    """
    source, target = _named(arguments, mirror)
    return config_of(source, "source"), config_of(target, "target")


def references_of(arguments: argparse.Namespace, mirror: Mirror) -> tuple[str, str]:
    """Return what names ``--source`` and ``--target`` (`config.load`), as :func:`both_of` finds them.

    A connection's settings are kept in this process, under its id.
    """
    source, target = _named(arguments, mirror)
    return reference(source, "source"), reference(target, "target")


def reference(name: str, role: str) -> str:
    """Return what names a cluster for `config.load`. A connection's settings are kept in this process, under its id."""
    config = config_of(name, role)
    if not _is_reference(name):
        Handover({name: config.properties}).accept()
    return name


def _named(arguments: argparse.Namespace, mirror: Mirror) -> tuple[str, str]:
    found = []
    for role in ("source", "target"):
        given = getattr(arguments, role)
        if given is None and arguments.mirror is None:
            raise InputError(
                f"--{role} is missing",
                "no Mirror is given that names its connection",
                "Name the cluster, or a Mirror (--mirror).",
            )
        found.append(given or getattr(mirror, role))
    return found[0], found[1]


@contextmanager
def target_of(arguments: argparse.Namespace) -> Iterator[ClusterAdmin]:
    """Yield an admin facade of ``--target``.

    :raises InputError: it names nothing that is there.
    """
    with ClusterAdmin(config_of(arguments.target, "target")) as target:
        yield target


def config_of(name: str, role: str) -> ClientConfig:
    """Return the settings of a cluster. What looks like a path, or is one, is a file; Airflow is asked for the rest.

    :raises InputError: it is neither; errors of `config.load` and of the connection.
    """
    if _is_reference(name):
        return load(name, role)
    if re.search(r":[0-9]", name):
        remedy = "Write bootstrap.servers=broker1:9092 into a file and give that, or JSON in a variable: env:NAME."
        raise InputError(_neither(name, role), "it looks like an address", remedy)
    # As Airflow's own command line: outside of a task its SDK asks the database for connections only then.
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    if (hooks := hooks_of("kafka")) is None:
        raise InputError(_neither(name, role), "Airflow is not installed", "Correct the path.")
    try:
        config: ClientConfig = hooks.MirrorKafkaHook(name, role).config()
        return config
    except UnknownConnection:
        raise InputError(
            _neither(name, role),
            "Airflow was asked as it is set up on this host: its environment, its secrets backends, and its database",
            f"Correct the path, or create a connection of type 'Kafka cluster' with this id. Hosts of workers have no "
            f"database: run this where the API server or the scheduler runs, set AIRFLOW_CONN_{name.upper()}, or give a "
            "file.",
        ) from None


def _neither(name: str, role: str) -> str:
    return f"{role} cluster: {name!r} is neither a file here nor the id of an Airflow connection"


def _is_reference(name: str) -> bool:
    return name.startswith("env:") or "/" in name or Path(name).suffix in _OF_FILES or Path(name).exists()


def add_fence(parser: argparse.ArgumentParser, *, default: str | None = "acl", more: str = "") -> None:
    """Add ``--fence`` and ``--open-by-default``. :param more: what ``--fence`` does."""
    parser.add_argument(
        "--fence", default=default, metavar="acl|FUNCTION",
        help=f"by ACL, or the dotted path of a function, as for CutoverOperator{more} (default: {default})",
    )  # fmt: skip
    parser.add_argument(
        "--open-by-default", choices=("true", "false"),
        help="for a fence by ACL: are topics without any ACL open to everybody (default: asks the brokers)",
    )  # fmt: skip


def open_by_default(arguments: argparse.Namespace) -> bool | None:
    """Return what ``--open-by-default`` says; None: nothing."""
    return {"true": True, "false": False}.get(arguments.open_by_default)
