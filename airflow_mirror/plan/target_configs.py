"""The topic settings that the target knows, and their defaults there.

Versions and vendors differ: a cluster may reject a setting that another one has, and with it the whole topic. A fixed
list would become outdated, so the target is queried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_mirror.errors import BrokerError, MissingRight, RequestRefused
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry, NewTopicSpec
from airflow_mirror.ledger.topic import replicas_on
from airflow_mirror.plan.configs import BY_LAG, DIFFERENCE, HELD_OPEN, LONG_MAX
from airflow_mirror.wire.error_codes import ErrorCode

# Key -> the value that applies on the target without an override; None if that could not be seen.
OwnConfigs = dict[str, "str | None"]

_REFERENCES = 20


def read_own_configs(target: ClusterAdmin) -> OwnConfigs | None:
    """Read the settings of any topic of the target; None if this principal may not describe any topic."""
    own: OwnConfigs = {}
    for name in target.topic_names()[:_REFERENCES]:
        try:
            entries = target.topic_configs([name])[name]
        except (BrokerError, MissingRight):
            continue  # deleted meanwhile, or not ours to describe
        for key, entry in entries.items():
            if own.get(key) is None:
                own[key] = None if entry.is_override else entry.value
        if None not in own.values():
            break
    return own or None


def try_configs(target: ClusterAdmin, topics: Iterable[Mapping[str, ConfigEntry]], name: str) -> OwnConfigs | None:
    """Find out which settings the target knows, those in ``topics`` and the hold's, if it has no topic to describe.

    :param name: of a topic that the principal may create; none is created.
    :return: the keys that it accepts; None if this principal may not create it.
    """
    # An old source does not have all that a newer target has to have on hold.
    values: dict[str, str] = {**HELD_OPEN, **BY_LAG, DIFFERENCE: LONG_MAX}
    values |= {key: e.value for entries in topics for key, e in entries.items() if e.value is not None}
    known: OwnConfigs = {}
    replicas = replicas_on(target)
    for key, value in sorted(values.items()):
        error = target.refused_topics([NewTopicSpec(name, 1, replicas, {key: value})]).get(name)
        if isinstance(error, MissingRight):
            return None
        unknown = isinstance(error, RequestRefused) and error.code == ErrorCode.INVALID_CONFIG
        if not (unknown and "unknown" in str(error).lower()):  # else the error is not about the key
            known[key] = None
    return known
