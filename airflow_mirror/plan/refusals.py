"""What the target would refuse of a plan: topics to create, and changes to the settings of those that it has.

Its rules are code of its own (``create.topic.policy.class.name``, ``alter.config.policy.class.name``), so the target is
asked. It judges what will be sent, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeGuard

from airflow_mirror.common.policy import DECISIONS, MAP_PARTITIONS, MAPS, STATE, WISHES
from airflow_mirror.errors import BrokerError, MirrorError, MissingRight, RequestRefused
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import NewConfigs, NewTopicSpec
from airflow_mirror.ledger import decisions, state
from airflow_mirror.ledger.topic import replicas_on, spec
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.config_diff import diff
from airflow_mirror.plan.configs import Rules
from airflow_mirror.plan.inventory import Inventory, Refusal, TopicState
from airflow_mirror.plan.model import TopicPlan
from airflow_mirror.wire.error_codes import ErrorCode

# A policy that raises something else than Kafka's own exception for it is told with this code, and so is a broker's bug.
BROKEN = ErrorCode.UNKNOWN_SERVER_ERROR
_Refused = RequestRefused | BrokerError


def refusals(
    target: ClusterAdmin, mirror: Mirror, topics: Iterable[TopicPlan], here: Mapping[str, TopicState], there: Inventory
) -> dict[str, Refusal]:
    """Have the target validate each topic, on hold and as it is afterwards; return what it refuses.

    What it would say each time, what a policy may mean that fails (:data:`BROKEN`), and where it did not answer. Nothing
    is said of one that this principal may not create or alter, or that somebody else has just created: the copy does.

    :param here: the source's topics. :param there: the target as it is.
    """
    planned = {t.target_topic: t for t in topics}
    missing = [t for t in planned.values() if not t.target_exists]
    rules, own = Rules.of(mirror), there.own_configs

    def changes(hold: bool) -> dict[str, NewConfigs]:
        return {
            name: diff(here[t.source_topic].configs, there.topics[name].configs, hold, own, rules, t.configs)
            for name, t in planned.items()
            if t.target_exists
        }

    on_hold = changes(hold=True)
    on_hold_said = {
        **target.refused_topics([_spec(t, t.held_configs) for t in missing]), **target.refused_configs(on_hold)
    }  # fmt: skip
    later_said = {
        **target.refused_topics([_spec(t, t.configs) for t in missing]), **target.refused_configs(changes(hold=False))
    }  # fmt: skip
    held, later, silent = _refused(on_hold_said), _refused(later_said), _silent(later_said) | _silent(on_hold_said)
    found = {name: Refusal(None, why) for name, why in silent.items()}  # but for what is refused in the other form
    for name in sorted(held.keys() | later.keys()):
        t, both = planned[name], [some[name] for some in (later, held) if name in some]
        e = next(filter(judged, both), both[0])
        asked = on_hold[name].set if t.target_exists else t.held_configs
        changed = {key: asked[key] for key in rules.held_keys if asked.get(key) not in (None, t.configs.get(key))}
        hold = {} if name in later or name in silent else changed
        said = [words(one) for one in (e, held.get(name, e))]
        found[name] = Refusal(e.code, "; on hold ".join(dict.fromkeys(said)), hold, name in held)
    return found


def refused_ledger(target: ClusterAdmin, topics: Iterable[TopicPlan]) -> dict[str, Refusal]:
    """Return the topics of the ledger that the target lacks and would not take, or does not answer of.

    Nothing is said of one that this principal may not create: who keeps the plan learns it.

    :param topics: as planned: offset maps have a topic of their own.
    """
    wanted = {DECISIONS: (decisions.SETTINGS, 1), STATE: (state.SETTINGS, 1), WISHES: (state.SETTINGS, 1)}
    if any(t.mode == "mapped" for t in topics):
        wanted[MAPS] = (state.SETTINGS, MAP_PARTITIONS)
    missing = wanted.keys() - target.topics(wanted).keys()
    if not missing:
        return {}
    replicas = replicas_on(target)
    specs = [spec(target, name, *wanted[name], replicas) for name in sorted(missing)]
    said = target.refused_topics(specs)
    silent = {name: Refusal(None, why) for name, why in _silent(said).items()}
    return silent | {name: Refusal(e.code, words(e)) for name, e in said.items() if judged(e)}


def words(e: _Refused) -> str:
    """Return what a target said."""
    return f"{e.name}: {e.detail}" if e.detail else e.name


def judged(e: MirrorError | None) -> TypeGuard[RequestRefused]:
    """Return whether a target has something against what was asked, and would say so each time."""
    return isinstance(e, RequestRefused)


def _refused(said: Mapping[str, MirrorError]) -> dict[str, _Refused]:
    return {
        name: e
        for name, e in said.items()
        if isinstance(e, RequestRefused) or (isinstance(e, BrokerError) and e.code == BROKEN)
    }


def _silent(said: Mapping[str, MirrorError]) -> dict[str, str]:
    """Return of what the target did not say whether it would take it, and why: its controller is away, say."""
    return {
        name: str(e)
        for name, e in said.items()
        if not isinstance(e, RequestRefused | MissingRight)
        and not (isinstance(e, BrokerError) and e.code == ErrorCode.TOPIC_ALREADY_EXISTS)
    }


def _spec(t: TopicPlan, configs: Mapping[str, str]) -> NewTopicSpec:
    return NewTopicSpec(t.target_topic, t.partitions, t.replication_factor, configs)
