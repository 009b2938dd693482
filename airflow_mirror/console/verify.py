"""``airflow-mirror verify``: compare both sides in plain processes, and note what is proven for a cutover."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import load
from airflow_mirror.console.clusters import add_source, add_target, reference
from airflow_mirror.console.command import add_mirror, command, name_of
from airflow_mirror.console.request import last_plan, way_of
from airflow_mirror.jobs.driver.arguments import request_of
from airflow_mirror.jobs.driver.entry import Outcome, Told, carry_out
from airflow_mirror.jobs.driver.verify import verify
from airflow_mirror.jobs.plain.options import add_options
from airflow_mirror.jobs.plain.verify import comparing
from airflow_mirror.jobs.plain.workers import cores
from airflow_mirror.jobs.request import VerifyRequest
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.plan.model import Plan
from airflow_mirror.verify.proof import Proofs

_TEXT = """\
Compare every partition of the mirror's last plan up to where the target ends now, in plain processes of this host; a
tail may run meanwhile; at level offsets up to where the source ends now, which the target has to reach within ten
seconds. It is spark_jobs/verify.py without Spark. What is found equal is noted in the target's ledger: a cutover compares
only the rest while producers wait. Nothing else is changed.

Exit status: 0 equal; 1 a difference, by partition and offset on stderr, nothing to compare, or a cluster that could not
be read; 2 wrong input. The last line on stdout is one JSON object.

examples:
  airflow-mirror verify --target dst.properties --source src.properties --mirror dc1-to-dc2
  airflow-mirror verify --target kafka_dc2 --mirror dc1-to-dc2 --only-new --level records
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "verify", _TEXT, _run)
    add_target(p)
    which = p.add_mutually_exclusive_group(required=True)
    add_mirror(which, required=False)
    which.add_argument(
        "--reverse-of", type=name_of, metavar="MIRROR",
        help="what is copied back to this mirror's source, before a rollback. --source and --target are the mirror's own",
    )  # fmt: skip
    add_source(p)
    add_options(p, VerifyRequest, "plan", "no_probe", "report", "job_dir")


def _run(arguments: argparse.Namespace) -> int:
    found: list[Plan] = []

    def asked() -> VerifyRequest:
        plan, request = asked_for(arguments)
        found.append(plan)
        return request

    return carry_out(asked, lambda request, status: _work(request, status, found[0]), Told())


def asked_for(arguments: argparse.Namespace) -> tuple[Plan, VerifyRequest]:
    """Return the plan that is compared, and what the job is asked to do."""
    plan, *sides = _sides_of(arguments)
    # No file: the ledger has it, and with it the windows that were resolved before.
    return plan, replace(request_of(VerifyRequest, arguments, plan.mirror, *sides), plan=f"{plan.hash}.json")


def _sides_of(arguments: argparse.Namespace) -> tuple[Plan, str, str]:
    """Return the plan that is compared, and what names its source and its target."""
    if arguments.reverse_of is None:
        plan = last_plan(arguments)
        named = arguments.source or plan.mirror.source, arguments.target
    else:
        way, source = way_of(arguments, arguments.reverse_of)
        plan, named = way.plan, (arguments.target, source)
    return plan, reference(named[0], "source"), reference(named[1], "target")


def _work(request: VerifyRequest, status: StatusFile, plan: Plan) -> Outcome:
    with_processes = partial(comparing, request.source, request.target, request.level, request.tasks or cores())
    found, error = verify(request, status, with_processes)
    if error is None:
        proven = {TopicPartition(topic, int(p)): (int(a), int(b)) for topic, p, a, b in found["proven"]}
        with ClusterAdmin(load(request.target, "target")) as target:
            Proofs.on(target, plan.mirror.name).add(plan, found["target_topic_ids"], request.level, proven)
    return found, error
