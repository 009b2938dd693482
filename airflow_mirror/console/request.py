"""What a person asks of a cutover on a command line: the options of ``preview``, ``cutover`` and ``rollback``."""

from __future__ import annotations

import argparse

from airflow_mirror.common.knobs import add_options, options_given
from airflow_mirror.console.clusters import add_fence, add_source, add_target, config_of, open_by_default, target_of
from airflow_mirror.console.command import add_json, add_mirror
from airflow_mirror.console.registries import add_registries
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.platform import Platform, Side
from airflow_mirror.cutover.request import CutoverRequest
from airflow_mirror.cutover.rollback.arm import cutover_of
from airflow_mirror.cutover.rollback.run import WayBack, way_back
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.records import LAST_PLAN
from airflow_mirror.plan.ledger_store import fetch, last_hash, unknown_mirror
from airflow_mirror.plan.model import Plan


def add_request(p: argparse.ArgumentParser) -> None:
    """Add the options of a cutover, and of what it would meet."""
    add_target(p)
    add_mirror(p)
    add_source(p)
    add_fence(p)
    add_options(p, Limits)
    add_options(p, CutoverRequest)
    add_registries(p)
    add_json(p)


def request_of(arguments: argparse.Namespace, plan: Plan) -> CutoverRequest:
    """Return what the options ask for. :raises InvalidField: a value makes no sense."""
    return CutoverRequest(
        plan=plan, fence=arguments.fence, open_by_default=open_by_default(arguments),
        limits=Limits(**options_given(Limits, arguments)), **options_given(CutoverRequest, arguments),
    )  # fmt: skip


def last_plan(arguments: argparse.Namespace) -> Plan:
    """Return the mirror's last plan, as the target keeps it.

    :raises InputError: the target has none of that name.
    """
    with target_of(arguments) as target:
        ledger = Side(target).ledger
        values = ledger.values()
        plan_hash = last_hash(values, arguments.mirror)
        if plan_hash is None:
            raise unknown_mirror(arguments.mirror, LAST_PLAN.under(values))
        return fetch(plan_hash, arguments.mirror, target, ledger)


def way_of(arguments: argparse.Namespace, mirror: str) -> tuple[WayBack, str]:
    """Return the way back of a mirror that was cut over, and what names its source.

    :raises NoWayBack: none was armed.
    """
    with target_of(arguments) as target:
        named = arguments.source or cutover_of(mirror, Side(target))[1].mirror.source
        with ClusterAdmin(config_of(named, "source")) as source:
            return way_back(mirror, Platform.of(source, target)), named
