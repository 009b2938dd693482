"""Topics as Airflow's assets, ``kafka://host:port/topic``: lineage of a task, and events for DAGs that wait for a topic.

The form is the Kafka provider's, and its converter makes OpenLineage's names of it. A cluster is named by the first of
its ``bootstrap.servers``, as OpenLineage's own integrations (Spark, Flink, Debezium) name it: so lineage may join up with
theirs where a connection lists its brokers as their settings do.

Nothing that is told here ends a task. See ADR 50.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.lineage.hook import get_hook_lineage_collector
from airflow.sdk import Asset, AssetAlias

from airflow_mirror.common.addresses import parse_bootstrap
from airflow_mirror.wording import some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow.sdk import BaseOperator, Context

    from airflow_mirror.hooks.kafka import MirrorKafkaHook
    from airflow_mirror.mirror import Mirror
    from airflow_mirror.plan import Plan
    from airflow_mirror.plan.model import TopicPlan

log = logging.getLogger(__name__)

MOST_EVENTS = 1_000  # of one task and alias: each is a row of Airflow's database, and may be a run of a DAG


def tell_lineage(
    mirror: Mirror, plan: Plan, *, reads: Sequence[str] = ("source",), writes: Sequence[str] = ("target",)
) -> None:
    """Give Airflow's collector of lineage the topics that a task reads and writes. Where nobody collects it does nothing.

    The collector takes ``[lineage] max_assets_per_collector`` of each (100 by default), so those with most offsets come
    first. What it did not take is said once.

    :param reads: roles (``source``, ``target``) of the clusters from which the plan's topics are read.
    :param writes: likewise to which they are written.
    """
    with _beside_the_work():
        collector: Any = get_hook_lineage_collector()  # type: ignore[no-untyped-call]
        hooks = {role: _hook(mirror, role) for role in (*reads, *writes)}
        servers = {role: server_of(hook) for role, hook in hooks.items()}
        given = []
        for add, roles in ((collector.add_input_asset, reads), (collector.add_output_asset, writes)):
            # Topic by topic: of both clusters of a comparison the same topics are taken.
            for topic in _largest_first(plan):
                for role in roles:
                    given.append(_uri(servers[role], topic, role))
                    add(hooks[role], uri=given[-1])
        if not collector.has_collected:
            return
        taken = collector.collected_assets
        known = {one.asset.uri for one in (*taken.inputs, *taken.outputs)}
        if left := [uri for uri in given if uri not in known]:
            log.warning("lineage: %d of %d topics were left out, as %s", len(left), len(given), some(left, 3))


def tell_events(
    task: BaseOperator, context: Context, mirror: Mirror, plan: Plan | Callable[[], Plan], by: str
) -> None:  # fmt: skip
    """Give each AssetAlias among a task's outlets an event of each target topic, for DAGs that are scheduled on one.

    At most :data:`MOST_EVENTS`, those with most offsets first; how many were left out is said.

    :param plan: or what reads it, which is asked only where there is an alias, and fails no task either.
    :param by: what was done with the topics, for whoever is started: ``copy``, ``verify``, ``cutover`` or ``rollback``.
    """
    if not (aliases := [outlet for outlet in task.outlets if isinstance(outlet, AssetAlias)]):
        return
    with _beside_the_work():
        servers = {role: server_of(_hook(mirror, role)) for role in ("source", "target")}
        topics = _largest_first(plan() if callable(plan) else plan)
        for alias in aliases:
            for topic in topics[:MOST_EVENTS]:
                source, target = (_uri(servers[role], topic, role) for role in ("source", "target"))
                extra: dict[str, Any] = {"mirror": mirror.name, "by": by, "source": source}
                context["outlet_events"][alias].add(Asset(target), extra=extra)
        if len(topics) > MOST_EVENTS:
            log.warning("events of %d topics were left out: a task gives %d", len(topics) - MOST_EVENTS, MOST_EVENTS)


def server_of(hook: MirrorKafkaHook) -> str:
    """Return the ``host:port`` by which a connection's cluster is named: the first of its ``bootstrap.servers``.

    Errors as :meth:`.MirrorKafkaHook.config`. :raises InvalidField: it lists what is no address.
    """
    host, port = parse_bootstrap(hook.config().bootstrap)[0]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _hook(mirror: Mirror, role: str) -> MirrorKafkaHook:
    # Operators are imported whenever a DAG file is parsed, which must not need a Kafka client library.
    from airflow_mirror.hooks.kafka import MirrorKafkaHook

    return MirrorKafkaHook(getattr(mirror, role), role)


def _largest_first(plan: Plan) -> list[TopicPlan]:
    return sorted(plan.topics, key=lambda topic: (-topic.offsets, topic.source_topic))


def _uri(server: str, topic: TopicPlan, role: str) -> str:
    # Kafka's names of topics have no character that a URI would need quoted.
    return f"kafka://{server}/{topic.source_topic if role == 'source' else topic.target_topic}"


@contextmanager
def _beside_the_work() -> Iterator[None]:
    try:
        yield
    except Exception as e:  # of Airflow's, its plugins' or a reader's: what was copied and proven stays so
        log.warning("topics were not told as assets: %s: %s", type(e).__name__, e)
