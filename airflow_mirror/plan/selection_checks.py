"""Preflight checks of what a Mirror selects, and of what stays behind.

Names that nothing has are slips of the pen more often than not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from airflow_mirror.common.nearest import nearest
from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.patterns import is_name, matches, name_of
from airflow_mirror.common.policy import is_reserved
from airflow_mirror.compat.keys import DEFAULTS
from airflow_mirror.kafka.groups import UNSEEN_COORDINATORS
from airflow_mirror.kafka.held import Held
from airflow_mirror.plan.configs import EXCLUDED
from airflow_mirror.plan.findings import Checks, Finding, block, several, warn, well
from airflow_mirror.plan.selection import DELETED, HIDDEN, internal_topics
from airflow_mirror.plan.situation import Situation
from airflow_mirror.wording import count, some

CHECKS = Checks[Situation]()


@CHECKS.check("open_transactions", "no open transaction holds records back")
def _open_transactions(s: Situation) -> Iterator[Finding]:
    for pair in s.pairs:
        state = pair.source
        ends = {TopicPartition(state.info.name, p): (state.stable_ends[p], end) for p, end in state.ends.items()}
        waits = (Held(source=tp, since=since, end=end) for tp, (since, end) in ends.items() if since < end)
        held = [str(replace(one, by=s.source.holders.get(one.source, ""))) for one in waits]
        if held and s.mirror.isolation == "read_committed":
            yield warn(
                some(held),
                "They are copied once it ends. If the number doesn't shrink, find the producer that hangs: until then "
                "the mirror can't reach the end.",
                f"topic {state.info.name!r}",
            )


@CHECKS.check("internal_topics", "no topic is left out for its name alone")
def _internal(s: Situation) -> Iterator[Finding]:
    internal = internal_topics(s.mirror, s.source.names)
    for name in (name for name in internal if name in s.mirror.topics):
        evidence, remedy = "its name looks internal", "internal_topics=True (--internal-topics) copies it."
        if is_reserved(name):
            evidence, remedy = "it is Kafka's own, or a mirror's memory", "It would mean nothing there. Remove it."
        yield block(f"{evidence}, and left out", remedy, f"topics: {name!r}")
    if rest := [name for name in internal if name not in s.mirror.topics]:
        yield warn(
            f"they are left out, because their names look internal: {some(rest, 20)}",
            "internal_topics=True (--internal-topics) copies them; exclude_topics says that they are not wanted.",
            count(len(rest), "topic"),
        )


@CHECKS.check("unmatched", "all that the Mirror names is there")
def _unmatched(s: Situation) -> Iterator[Finding]:
    if not (there := s.source.names):  # a topic that joins a plan is decided alone
        return
    for pattern in s.mirror.topics:
        if any(matches([pattern], name) for name in there) or s.source.absent.get(pattern) == HIDDEN:
            continue
        if not is_name(pattern):
            remedy = "It takes topics that appear later. Correct it if one should be there by now."
            yield warn("no topic of the source matches it", remedy, f"topics: {pattern!r}")
        elif pattern in s.source.gone:
            remedy = "What was copied stays on the target. Take it out of topics."
            yield warn("the source has no such topic any more", remedy, f"topics: {pattern!r}")
        else:
            yield block(
                f"the source has no such topic.{nearest(pattern, there)}".rstrip("."),
                "Correct or remove it; a topic that the principal may not DESCRIBE is not listed. In brackets, as "
                f"'({pattern})', it is a pattern, and waits for the topic.",
                f"topics: {pattern!r}",
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


@CHECKS.check("absent_topics", "every topic of the last plan is there, or not wanted any more")
def _absent(s: Situation) -> Iterator[Finding]:
    hidden = sorted(name for name, became in s.source.absent.items() if became == HIDDEN)
    yield from several(
        warn if s.source.goes_on else block, hidden, "topic",
        "the last plan has them, and the source hides them: the principal may not DESCRIBE them",
        "They would be left out. Grant it (airflow-mirror rights); if they were deleted, with their rules, add them to "
        "exclude_topics: what was copied stays on the target.",
    )  # fmt: skip
    # Of one that the Mirror names the check above says it.
    deleted = sorted(n for n, became in s.source.absent.items() if became == DELETED and n not in s.mirror.topics)
    remedy = "What was copied stays on the target. This plan, and a cutover by it, are not about them."
    yield from several(
        warn, deleted, "topic", "the last plan has them, and the source has no such topics any more", remedy
    )  # fmt: skip


def _slips(field: str, patterns: Collection[str], there: Collection[str], what: str) -> Iterator[Finding]:
    for pattern in patterns:
        meant = name_of(pattern)
        if meant is not None and not any(matches([pattern], name) for name in there):
            evidence = f"it is no {what}.{nearest(meant, there)}".rstrip(".")
            yield warn(evidence, "Correct or remove it.", f"{field}: {pattern!r}")


@CHECKS.check("other_topics", "no topic of the source is left out")
def _other_topics(s: Situation) -> Iterator[Finding]:
    what = "the source has them, and the Mirror does not select them"
    yield from several(well, s.source.other_topics, "topic", what)


@CHECKS.check("groups", "every selected group moves as a whole", of="mirror")
def _groups(s: Situation) -> Iterator[Finding]:
    moves = bool(s.mirror.groups) and s.mirror.partitioning == "preserve" and not s.mirror.shares
    if moves and not s.source.groups:
        yield warn(
            "none of the selected groups was found",
            "Nothing moves then. If there are any, grant DESCRIBE on groups: without it Kafka lists none, and no error.",
            "source cluster",
        )
    elif moves and s.source.hides_groups and not s.mirror.names_its_groups:
        yield warn(
            "some of the selected groups may be hidden: the principal lacks DESCRIBE on group *",
            "What is not listed does not move, and a cutover only warns of that again. Grant it (airflow-mirror rights).",
            "source cluster",
        )
    if moves and not s.source.sees_coordinators:
        what, why = UNSEEN_COORDINATORS
        yield warn(f"{what}: {why}", "Grant it (airflow-mirror rights).", "source cluster")
    for group, positions in sorted(s.source.groups.items()):
        read = {tp.topic for tp in positions}
        outside = sorted(read - set(s.source.topics))
        if not read & set(s.source.topics):
            where = f"has positions only in {some(outside)}" if outside else "has no position"
            yield warn(where, "It has nothing to move with this mirror.", f"group {group!r}")
        elif outside:
            yield warn(
                f"also reads topics that this mirror leaves behind: {some(outside)}",
                "Move them together, or its consumers need both clusters.", f"group {group!r}",
            )  # fmt: skip


@CHECKS.check("other_groups", "no group is left behind", of="mirror")
def _other_groups(s: Situation) -> Iterator[Finding]:
    yield from several(
        warn, s.source.other_groups, "group", "they have positions in these topics and are not selected",
        "They don't move: their consumers begin on the target by auto.offset.reset. Change groups or exclude_groups to "
        "move them.",
    )  # fmt: skip


@CHECKS.check("left_out_configs", "every setting is carried over")
def _left_out(s: Situation) -> Iterator[Finding]:
    lost = {t.source_topic: ", ".join(f"{k}={v}" for k, v in t.left_out.items()) for t in s.topics if t.left_out}
    yield from s.of_topics(
        [f"{name} ({configs})" for name, configs in lost.items()],
        "these settings of the source are not carried over: {}",
        "They belong to a cluster, not to data (MirrorMaker 2's rule), or the target does not know them. Set what you "
        "need on the target yourself.",
    )
