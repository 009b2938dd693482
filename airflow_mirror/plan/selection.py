"""Preflight checks of what a Mirror names: names that nothing has are slips of the pen more often than not."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from airflow_mirror.compat.keys import DEFAULTS
from airflow_mirror.nearest import nearest
from airflow_mirror.patterns import is_name, matches
from airflow_mirror.plan.configs import EXCLUDED
from airflow_mirror.plan.inventory import internal_topics
from airflow_mirror.plan.model import Found, block, warn
from airflow_mirror.plan.situation import Situation
from airflow_mirror.policy import is_reserved
from airflow_mirror.wording import count, some


def internal(s: Situation) -> Iterator[Found]:
    """Topics that are left out for their names alone."""
    found = internal_topics(s.mirror, s.source.names)
    for name in (name for name in found if name in s.mirror.topics):
        evidence, remedy = "its name looks internal", "internal_topics=True (--internal-topics) copies it."
        if is_reserved(name):
            evidence, remedy = "it is Kafka's own, or a mirror's memory", "It would mean nothing there. Remove it."
        yield block(f"topics: {name!r}", f"{evidence}, and left out", remedy)
    if rest := [name for name in found if name not in s.mirror.topics]:
        yield warn(
            count(len(rest), "topic"),
            f"they are left out, because their names look internal: {some(rest, 20)}",
            "internal_topics=True (--internal-topics) copies them; exclude_topics says that they are not wanted.",
        )


def unmatched(s: Situation) -> Iterator[Found]:
    """Names and patterns that are for nothing."""
    if not (there := s.source.names):  # a topic that joins a plan is decided alone
        return
    for pattern in s.mirror.topics:
        if any(matches([pattern], name) for name in there):
            continue
        if not is_name(pattern):
            remedy = "It takes topics that appear later. Correct it if one should be there by now."
            yield warn(f"topics: {pattern!r}", "no topic of the source matches it", remedy)
        elif pattern in s.source.gone:
            remedy = "What was copied stays on the target. Take it out of topics."
            yield warn(f"topics: {pattern!r}", "the source has no such topic any more", remedy)
        else:
            yield block(
                f"topics: {pattern!r}",
                f"the source has no such topic.{nearest(pattern, there)}".rstrip("."),
                "Correct or remove it; a topic that the principal may not DESCRIBE is not listed. In brackets, as "
                f"'({pattern})', it is a pattern, and waits for the topic.",
            )
    # MirrorMaker 2's list names settings of every release, and some that no topic ever had.
    keys = {*(s.target.own_configs or ()), *DEFAULTS["config.properties.exclude"].split(","), *EXCLUDED}
    keys |= {key for state in s.source.topics.values() for key in state.configs}
    groups = s.source.group_ids
    yield from _slips("exclude_topics", s.mirror.exclude_topics, there, "topic of the source")
    yield from _slips("groups", s.mirror.groups, groups, "group of the source")
    yield from _slips("exclude_groups", s.mirror.exclude_groups, groups, "group of the source")
    yield from _slips("exclude_configs", s.mirror.exclude_configs, keys, "setting of a topic")
    yield from _slips("keep_configs", s.mirror.keep_configs, keys, "setting of a topic")


def _slips(field: str, patterns: Collection[str], there: Collection[str], what: str) -> Iterator[Found]:
    for one in patterns:
        if is_name(one) and not any(matches([one], name) for name in there):
            evidence = f"it is no {what}.{nearest(one, there)}".rstrip(".")
            yield warn(f"{field}: {one!r}", evidence, "Correct or remove it.")
