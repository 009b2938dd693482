"""The command line that the Spark jobs share (design, section 4)."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_mirror.mirror import Mirror

_SOURCE_ID, _TARGET_ID = "source", "target"  # names for both ends when a job is run by hand, without connections


def parser(prog: str, description: str) -> argparse.ArgumentParser:
    """Return the parser with the arguments that every job takes. Bad arguments end the process with status 2."""
    p = argparse.ArgumentParser(prog=prog, description=description, formatter_class=argparse.RawTextHelpFormatter)
    what = p.add_argument_group("clusters")
    reference = "librdkafka settings: a properties file (key=value a line), or env:NAME holding JSON"
    what.add_argument("--source", required=True, metavar="FILE", help=f"the cluster to read. {reference}")
    what.add_argument("--target", required=True, metavar="FILE", help=f"the cluster to write. {reference}")
    flow = p.add_argument_group("what to mirror")
    flow.add_argument(
        "--mirror", metavar="FILE", help="a Mirror as YAML or JSON; the options of this group then change it"
    )
    flow.add_argument("--name", help="identity of the flow; two jobs of one name never write at once (default: cli)")
    flow.add_argument(
        "--include", action="append", metavar="RE", help="topic name or regex; may be repeated (default: .*)"
    )
    flow.add_argument("--exclude", action="append", metavar="RE", help="topics to leave out; wins over --include")
    flow.add_argument("--groups", action="append", metavar="RE", help="consumer groups, for the plan (default: .*)")
    flow.add_argument("--policy", choices=("identity", "prefix"), help="names on the target (default: identity)")
    flow.add_argument("--source-alias", metavar="A", help="what --policy prefix puts before the name")
    flow.add_argument("--offsets", choices=("auto", "identical", "mapped"), help="how offsets are kept (default: auto)")
    flow.add_argument("--start", metavar="earliest|latest|ISO", help="where a partition new on the target begins")
    flow.add_argument("--isolation", choices=("read_committed", "read_uncommitted"), help="default: read_committed")
    run = p.add_argument_group("this run")
    run.add_argument("--plan", metavar="FILE", help="plan.json; without it the job plans and creates topics by itself")
    run.add_argument("--map-dir", metavar="DIR", help="where offset maps go (mapped offsets only)")
    run.add_argument("--tasks", type=int, metavar="N", help="Spark tasks (default: the cluster's default parallelism)")
    run.add_argument("--job-dir", metavar="DIR", help="where status.json is kept while the job runs")
    return p


def mirror_of(arguments: argparse.Namespace) -> Mirror:
    """Build the Mirror that the arguments describe.

    :raises InputError: naming the field, its value and the remedy.
    """
    values: dict[str, Any] = {"name": "cli", "source": _SOURCE_ID, "target": _TARGET_ID}
    if arguments.mirror:
        values = Mirror.from_file(arguments.mirror).to_dict()
    given: Mapping[str, Sequence[str] | str | None] = {
        "name": arguments.name,
        "topics": arguments.include,
        "exclude_topics": arguments.exclude,
        "groups": arguments.groups,
        "policy": arguments.policy,
        "source_alias": arguments.source_alias,
        "offsets": arguments.offsets,
        "start": arguments.start,
        "isolation": arguments.isolation,
    }
    values.update({k: v for k, v in given.items() if v is not None})
    return Mirror.from_dict(values)
