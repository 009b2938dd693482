"""Create missing topics on the target, with retention off; compare existing ones.

Safe to repeat: an existing topic is compared, never assumed correct. :mod:`airflow_mirror.sync.configs` changes the
settings of existing topics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_mirror.errors import BrokerError, InputError, NotKept
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry, NewTopicSpec, TopicInfo
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.plan.configs import HELD_OPEN, same_value
from airflow_mirror.plan.model import Plan, TopicPlan
from airflow_mirror.wire.error_codes import ErrorCode

# A new topic or setting reaches the brokers' metadata some milliseconds after the controller's response.
_SETTLE_S = 60.0  # a busy broker learns about a hundred new topics late


Going = Callable[[], object]


def still() -> None:
    """Wait on: nobody ends the wait."""


@dataclass(frozen=True)
class TopicsReport:
    """The changes to the target's topics. Names are the target's.

    :param differences: for topics that existed before: one line per setting that differs from the plan.
    """

    created: tuple[str, ...]
    grown: tuple[str, ...]
    existing: tuple[str, ...]
    differences: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self)


def create_target_topics(plan: Plan, target: ClusterAdmin, permit: Permit, going: Going = still) -> TopicsReport:
    """Create the plan's missing topics, add partitions to those of ours that lack them, and read everything back.

    :param permit: asked before each request: that the topics are the mirror's still. :param going: see :func:`settle`.
    :raises InputError: a topic that is not ours has too few partitions; nothing was created, unless somebody else created
        it meanwhile.
    :raises NotKept: a created topic reads back differently.
    """
    wanted = {t.target_topic: t for t in plan.topics}
    before = target.topics(wanted)
    short = _short(plan, before, "nothing was created")
    missing = [t for name, t in wanted.items() if name not in before]
    created = _create(target, missing, permit)
    if others := {t.target_topic for t in missing}.difference(created):
        settle(lambda: _absent(target, others), "topics", going=going)
        short += _short(plan, target.topics(others), "they were created meanwhile")  # with whatever their creator wished
    for topic in short:
        target.grow_partitions(topic.target_topic, topic.target_partitions, permit)
    settle(lambda: _unmade(target, [wanted[name] for name in created], short), "topics", going=going)
    existing = [t for name, t in wanted.items() if name not in created]
    return TopicsReport(
        created=tuple(sorted(created)),
        grown=tuple(sorted(t.target_topic for t in short)),
        existing=tuple(sorted(t.target_topic for t in existing)),
        differences=tuple(_wrong(target, existing, [t.target_topic for t in existing])),
    )


def _short(plan: Plan, there: Mapping[str, TopicInfo], known: str) -> list[TopicPlan]:
    """Return the planned topics that are there with too few partitions.

    :param known: what else is to be said of them.
    :raises InputError: one of them is not ours.
    """
    any_count = plan.mirror.partitioning == "by_key"  # where a plan of before does not say which one
    found = {
        t.target_topic: t for t in plan.topics if t.target_topic in there and not (any_count and t.key_partitions is None)
    }
    short = [t for name, t in found.items() if there[name].partitions < t.target_partitions]
    foreign = [t for t in short if t.target_topic not in plan.known_topics]
    if foreign:
        raise InputError(
            f"topics on the target can't take the source's records; {known}",
            [
                f"{t.target_topic}: {there[t.target_topic].partitions} partitions, {t.target_partitions} needed"
                for t in foreign
            ],
            "Grow or re-create them, or exclude them from the mirror.",
        )
    return short


def _create(target: ClusterAdmin, topics: Iterable[TopicPlan], permit: Permit) -> list[str]:
    """Create topics; return those that did not exist. One call per topic: a rejected one must not hide the others."""
    created = []
    for t in topics:
        try:
            spec = NewTopicSpec(t.target_topic, t.target_partitions, t.replication_factor, t.held_configs)
            target.create_topics([spec], permit)
        except BrokerError as e:
            if e.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # another run was faster, or our own request was sent twice
                raise
        else:
            created.append(t.target_topic)
    return created


def _absent(target: ClusterAdmin, names: set[str]) -> list[str]:
    return [f"{name}: does not exist" for name in sorted(names - target.topics(names).keys())]


def _unmade(target: ClusterAdmin, created: Iterable[TopicPlan], grown: Iterable[TopicPlan]) -> list[str]:
    """Return what does not read back yet: for a created topic everything, for a grown one only its partitions."""
    counts = {t.target_topic: t.target_partitions for t in grown}
    found = target.topics(counts) if counts else {}
    lines = [
        f"{name}: {found[name].partitions if name in found else 0} partitions, planned {count}"
        for name, count in counts.items()
        if name not in found or found[name].partitions < count
    ]
    created = list(created)
    return lines + _wrong(target, created, [t.target_topic for t in created])


def _wrong(target: ClusterAdmin, topics: Iterable[TopicPlan], with_replicas: Iterable[str]) -> list[str]:
    """Compare the target's topics with the plan; return one line per difference."""
    plans = {t.target_topic: t for t in topics}
    if not plans:
        return []
    there = target.topics(plans)
    try:
        configs = target.topic_configs(there)
    except BrokerError as e:
        return [str(e)]  # not every broker knows the topic yet
    lines = [f"{name}: does not exist" for name in plans if name not in there]
    for name, info in there.items():
        lines += differences(plans[name], info, configs[name], replicas=name in with_replicas)
    return lines


def differences(plan: TopicPlan, info: TopicInfo, configs: Mapping[str, ConfigEntry], replicas: bool = True) -> list[str]:
    """Compare one target topic with its plan while the mirror writes; return one line per difference."""
    name, lines = info.name, []
    if info.partitions != plan.target_partitions:
        lines.append(f"{name}: {info.partitions} partitions, planned {plan.target_partitions}")
    if replicas and info.replication_factor != plan.replication_factor:
        lines.append(f"{name}: {info.replication_factor} replicas, planned {plan.replication_factor}")
    for key, value in plan.held_configs.items():
        actual = configs[key].value if key in configs else None
        # A cluster may take a setting, ignore it and show none (Redpanda); what holds records has to be seen.
        if not same_value(actual, value) and (key in configs or key in HELD_OPEN):
            lines.append(f"{name}: {key}={actual}, planned {value}")
    return lines


def settle(wrong: Callable[[], list[str]], what: str, within_s: float = _SETTLE_S, *, going: Going = still) -> None:
    """Read back until there is no difference.

    :param wrong: reads, and returns one line per difference.
    :param going: asked between two readings; raises if nobody is to wait for the next one. It permits no change.
    :raises NotKept: there is still one after ``within_s``.
    """
    deadline = time.monotonic() + within_s
    while lines := wrong():
        if time.monotonic() > deadline:
            raise NotKept(what, lines)
        going()
        time.sleep(0.1)
