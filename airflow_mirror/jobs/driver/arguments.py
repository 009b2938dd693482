"""The command lines of the jobs (design, section 4): options in, a request out (:mod:`airflow_mirror.jobs.request`)."""

from __future__ import annotations

import argparse
from typing import Any, TypeVar

from airflow_mirror.common.knobs import add_options, knobs_of, options_given
from airflow_mirror.jobs.request import JobRequest, TailRequest
from airflow_mirror.mirror import Mirror

R = TypeVar("R", bound=JobRequest)
_SOURCE_ID, _TARGET_ID = "source", "target"  # names of both clusters if a job is run by hand, without connections


def parser(prog: str, description: str, kind: type[JobRequest]) -> argparse.ArgumentParser:
    """Return the parser of a job that takes such a request. Wrong arguments end the process with status 2."""
    p = argparse.ArgumentParser(prog=prog, description=description, formatter_class=argparse.RawTextHelpFormatter)
    what = p.add_argument_group("clusters")
    reference = "librdkafka settings: a properties file (one key=value per line), or env:NAME holding JSON"
    what.add_argument("--source", required=True, metavar="FILE", help=f"the cluster to read. {reference}")
    what.add_argument("--target", required=True, metavar="FILE", help=f"the cluster to write. {reference}")
    add_flow(p)
    add_options(p, kind)
    return p


def add_flow(p: argparse.ArgumentParser) -> None:
    """Add the options that describe a Mirror, for :func:`mirror_of`."""
    flow = p.add_argument_group("what to mirror")
    flow.add_argument(
        "--mirror", metavar="FILE", help="a Mirror as YAML or JSON; the options of this group then change it"
    )
    flow.add_argument("--name", help="identity of the flow; two jobs of one name never write at once (default: cli)")
    add_options(flow, Mirror)


def add_alarm(p: argparse.ArgumentParser) -> None:
    """Add the option of what guards a fence: how that calls a person."""
    for one, its in knobs_of(TailRequest):
        if one.name == "alarm":
            its.add(p, one.default)


def request_of(
    kind: type[R], arguments: argparse.Namespace, mirror: Mirror | None = None, source: str = "", target: str = ""
) -> R:
    """Return the request of a command line.

    :param mirror: instead of the one that the options describe.
    :param source: the reference, instead of what ``--source`` says. :param target: likewise.
    :raises InputError: names the option or field, its value and the remedy.
    """
    return kind(
        mirror=mirror or mirror_of(arguments), source=source or arguments.source, target=target or arguments.target,
        start=getattr(arguments, "start", None) or "", **options_given(kind, arguments),
    )  # fmt: skip


def mirror_of(arguments: argparse.Namespace, base: Mirror | None = None) -> Mirror:
    """Build the Mirror that the arguments describe.

    :param base: what they change, instead of one that ``--mirror`` names.
    :raises InputError: names the field, its value and the remedy.
    """
    values: dict[str, Any] = {"name": "cli", "source": _SOURCE_ID, "target": _TARGET_ID}
    if base is not None or arguments.mirror:
        values = (base or Mirror.from_file(arguments.mirror)).to_dict()
    if arguments.name is not None:
        values["name"] = arguments.name
    values |= options_given(Mirror, arguments)
    if arguments.ownership == "shared":
        values |= {"sync_groups": False, "sync_configs": False}
    return Mirror.from_dict(values)
