"""Preflight checks: pure functions from the inventories to findings, those of the mirror as a whole first.

To add one, write its function below the line that names it, here or in the module of its subject, and a test in which it
fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import hole_checks, room_checks, selection_checks, topic_checks
from airflow_mirror.plan.decide import Pair
from airflow_mirror.plan.findings import Checks, Finding, block, several, warn, well, worst_first
from airflow_mirror.plan.model import TopicPlan
from airflow_mirror.plan.owned import begun_otherwise
from airflow_mirror.plan.situation import Situation, each_topic
from airflow_mirror.plan.targets import KINDS, contradicts
from airflow_mirror.wording import count, some

# The longest transaction timeout that the writer lease requests for its transactional id
# (`copy.writer.lease.LONGEST_MARK_MS`, which plans may not import; a test keeps the two equal).
_LEASE_MS = 159_303
_FORGETS_MS = 600_000  # a coordinator that is away for some minutes, or a driver that is frozen, must not lose the lease

CHECKS = Checks[Situation](lambda s: count(len(s.topics), "topic"))


def run_checks(situation: Situation) -> list[Finding]:
    """Run every check; blocks come first, passes last."""
    return worst_first(CHECKS.run({}, situation))


@CHECKS.check("same_cluster", "source and target are two clusters", first=True)
def _same_cluster(s: Situation) -> Iterator[Finding]:
    if s.source.cluster_id == s.target.cluster_id:
        yield one_cluster(s.mirror, s.source.cluster_id)


def one_cluster(mirror: Mirror, cluster_id: str) -> Finding:
    """Return what there is to say where both connections lead to one cluster."""
    return replace(
        block(
            f"both are cluster {cluster_id}",
            "Correct one of them: a mirror onto its own source would overwrite or multiply its records.",
            f"connections {mirror.source!r} and {mirror.target!r}",
        ),
        check="same_cluster",
    )


@CHECKS.check(
    "target_kind", "it is of no kind of managed cluster that is known", about="target cluster", of="mirror", first=True
)
def _target_kind(s: Situation) -> Iterator[Finding]:
    kind, told, by_address = s.target.managed, s.mirror.target_kind, s.target.kind_by_address
    if contradicts(told, by_address):
        yield block(
            f"target_kind says {KINDS[told].title}, and its addresses are those of {KINDS[by_address or ''].title}",
            "What one fixes another doesn't, and nothing was asked or written. Correct the target's connection, or set "
            f"target_kind of the Mirror to {by_address!r} or 'auto'; 'kafka' if its addresses mislead.",
        )
        return
    if kind is None:
        if by_address is not None:
            yield warn(
                "target_kind says that it is no managed cluster, and its addresses are those of "
                f"{KINDS[by_address].title}: what that fixes or forbids is not looked at",
                f"If it is one, set target_kind of the Mirror to {by_address!r} or 'auto'.",
            )
        return
    by = "by its addresses" if told == "auto" else "as target_kind says"
    for why in kind.forbids:
        yield block(
            f"it is {kind.title}, {by}, and {why}",
            "What a mirror decides is kept there, and nothing was asked or written. Migrate to another kind of cluster "
            f"(docs/managed.md says which); if it is none of {kind.title}, set target_kind of the Mirror.",
        )
    if unlike := s.target.unlike:
        says = f"it is {kind.title}, {by}, and it answers as none of these does: {'; '.join(unlike)}"
        if told == "auto":  # the addresses are right, so that the table is not: nobody is kept from migrating by that
            yield warn(
                f"{says}: what is known of the kind is older than this cluster",
                "Nothing to do, if the rest of the plan is right. target_kind='kafka' has the Mirror go by the "
                "cluster's own answers alone.",
            )
        elif not kind.forbids:
            yield block(
                says,
                "Nothing was tried or written. Correct target_kind of the Mirror, or the target's connection; 'kafka' "
                "goes by the cluster's own answers alone.",
            )
    elif not kind.forbids:
        known = "; ".join(fact.says for fact in kind.facts) or "nothing is known that it forbids"
        yield well(f"it is {kind.title}, {by}: {known}")


@CHECKS.check("names", "every topic has a name of its own")
def _names(s: Situation) -> Iterator[Finding]:
    sources: dict[str, list[str]] = {}
    for pair in s.pairs:
        sources.setdefault(pair.target_topic, []).append(pair.source.info.name)
    for target, named in sources.items():
        if len(named) > 1:
            yield block(
                f"policy {s.mirror.policy!r} gives this name to {some(named)}",
                "A policy must give each topic a name of its own. Correct it, or exclude all but one of them.",
                f"target topic {target!r}",
            )


@CHECKS.check("loops", "no topic comes from the target")
def _loops(s: Situation) -> Iterator[Finding]:
    if s.source.upstream.unreadable:
        yield block(
            f"its ledger can't be read: {s.source.upstream.unreadable}",
            "It says which topics come from other clusters, perhaps from this target. Make it readable for the source's "
            "principal.",
            "source cluster",
        )
    names = (topic.source_topic for topic in s.topics)
    for topic, owner in s.source.upstream.returning(names, s.target.cluster_id).items():
        yield block(
            f"its records come from the target, cluster {s.target.cluster_id}: on the source it belongs to {owner}",
            "They would return there. Exclude it from one of the mirrors (exclude_topics), or let them write under a "
            "prefix (policy='prefix'). If that mirror is over, give up its topics on the source: 'airflow-mirror ledger "
            "release'.",
            f"topic {topic!r}",
        )
    yield from several(
        warn, s.source.returning, "topic", f"they come from the target, cluster {s.target.cluster_id}, and are left out",
        "Nothing to do. To be rid of this warning, add them to exclude_topics.",
    )  # fmt: skip


@CHECKS.check("way_back", "no topic is written by the way back of a cutover", of="mirror")
def _way_back(s: Situation) -> Iterator[Finding]:
    up = s.source.upstream
    for name, at in sorted(up.ways_back.items()):
        its = [t.source_topic for t in s.topics if (one := up.owners.get(t.source_topic)) and one.mirror == name]
        yield from several(
            warn, its, "topic", f"mirror {name!r}, the way back of a cutover, armed at {at}, writes to them",
            "Applications write to the other cluster: copy from there. The way back is a tail with a JVM of its own; "
            "kafka_failback or, once that tail is stopped, 'airflow-mirror retire' ends it.",
        )  # fmt: skip


@CHECKS.check("traces", "topics of traces are as they must be")
def _traces(s: Situation) -> Iterator[Finding]:
    for topic, cause in sorted(s.target.unfit_traces.items()):
        yield block(
            f"it can't hold traces for Java clients: {cause}",
            "A trace's topic has one partition and cleanup.policy=compact, and the mirror may write and read it. Correct "
            "that, delete the topic, or leave the trace out of the Mirror's traces.",
            f"target topic {topic!r}",
        )
    for topic in s.source.displaced:
        yield warn(
            "it is not copied: with traces='heartbeats' the mirror writes its own heartbeats in its place",
            "If it is MirrorMaker 2's, there is nothing to do. If it is an application's, leave heartbeats out of the "
            "Mirror's traces.",
            f"topic {topic!r}",
        )
    what = "they hold traces of mirrors into the source, and are left out"
    yield from several(well, s.source.traces, "topic", what)


@CHECKS.check("brokers", "the source's brokers tell all that a mirror asks", about="source cluster", of="mirror")
def _brokers(s: Situation) -> Iterator[Finding]:
    for lost in s.source.lost:
        yield warn(
            f"its brokers don't report {lost.what} (Kafka {lost.since} and later do): {lost.effect}",
            "Nothing needs to be done; keep it in mind during the migration.",
        )


@CHECKS.check(
    "client_versions", "the target serves every client that the source serves", about="target cluster", of="mirror"
)
def _client_versions(s: Situation) -> Iterator[Finding]:
    if s.source.drops_old_clients:
        yield warn(
            "Kafka 4 serves no client of before Kafka 2.1 (KIP-896), and the source's brokers do; which ones there are, "
            "no broker lists",
            "Before the cutover, ask the brokers' metrics, or their request log: airflow-mirror clients --broker-file.",
        )


# A cutover would otherwise notice it while the source is fenced.
@CHECKS.check("lease", "the target's brokers take the writer lease", about="target brokers", of="mirror")
def _lease(s: Situation) -> Iterator[Finding]:
    key = "transaction.max.timeout.ms"
    short, _ = s.target.of_brokers(key, lambda ms: int(ms) < _LEASE_MS)
    if short:
        shown = some(f"{int(ms):,} on broker {broker}" for broker, ms in short.items())
        yield block(
            f"{key} is {shown}; the writer lease asks for up to {_LEASE_MS:,}",
            f"Set it to {_LEASE_MS} or more in these brokers' settings and restart them; Kafka's default is 900000.",
        )
    elif unread := s.target.unread(key):
        yield warn(
            unread,
            f"Make sure that it is {_LEASE_MS} or more on every broker of the target; Kafka's default is 900000.",
        )
    forgetting, where = s.target.of_brokers("transactional.id.expiration.ms", lambda ms: int(ms) < _FORGETS_MS)
    if forgetting:
        yield warn(
            f"transactional.id.expiration.ms is {min(map(int, forgetting.values())):,}{where}: so soon coordinators "
            "forget the writer lease",
            "Set it to an hour or more; Kafka's default is a week. A copy renews its lease three times within it, and "
            "pauses for seconds where that fails.",
        )


@CHECKS.check("ledger_topics", "the target takes the ledger's topics")
def _ledger_topics(s: Situation) -> Iterator[Finding]:
    for topic, refused in s.target.refused_ledger.items():
        about = f"ledger topic {topic!r}"
        if refused.code is None:
            yield warn(f"not known: {refused.words}", "Plan again once the target answers.", about)
        else:
            yield block(
                f"the target would not create it ({refused.words})",
                "Have topics airflow-mirror.* exempted from that rule: what was decided is kept for ever, and nothing is "
                "copied without it.",
                about,
            )


@CHECKS.check("ledger_writers", "nobody else may write to the ledger's topics", about="target cluster", of="mirror")
def _ledger_writers(s: Situation) -> Iterator[Finding]:
    if s.target.ledger_writers:
        commands = "; ".join(dict.fromkeys(writer.command for writer in s.target.ledger_writers))
        yield warn(
            f"others may write to the ledger's topics: {some(map(str, s.target.ledger_writers))}",
            "Mirrors go by what stands there. A cutover wants that right taken away, or these principals named in "
            f"accept_ledger_writers. To take it away: {commands}.",
        )


@CHECKS.check("partitioning", "records keep their partition", of="mirror")
def _partitioning(s: Situation) -> Iterator[Finding]:
    if s.mirror.partitioning == "by_key":
        yield warn(
            "partitioning='by_key': an offset of the source has no counterpart on the target",
            "Consumer groups don't move, nothing is compared, and there is no cutover: start consumers of the target at "
            "the earliest offset or by time. Order holds for each key of a source partition.",
            f"mirror {s.mirror.name!r}",
        )


@CHECKS.check("ownership", "each target topic has one mirror", of="mirror")
def _ownership(s: Situation) -> Iterator[Finding]:
    if s.mirror.shares:
        yield warn(
            "ownership='shared': other mirrors may write to the same target topics",
            "Order holds within a partition for each source, not between sources. Groups and ACLs don't follow, and "
            "there is no cutover: start consumers at the earliest offset or by time. A topic has the settings that were "
            "set last: hold=False only once every mirror of it is done.",
            f"mirror {s.mirror.name!r}",
        )


@CHECKS.check("offsets", "topics continue in the mode in which their copy began")
@each_topic
def _offsets(s: Situation, pair: Pair, topic: TopicPlan) -> Iterator[Finding]:
    if pair.begun and pair.begun != topic.mode:
        yield block(
            f"its copy began with {pair.begun} offsets; offsets={s.mirror.offsets!r} asks for {topic.mode} ones",
            f"Ask for offsets={pair.begun!r}, or delete the target topic and begin again.",
        )
    elif begun := pair.owned and begun_otherwise(pair.owned, s.mirror, topic):
        asked = ", ".join(f"{name}={getattr(s.mirror, name)!r}" for name in begun)
        was = ", ".join(f"{name}={value!r}" for name, value in begun.items())
        yield block(
            f"its copy began with {was}; the mirror asks for {asked}: records would be copied a second time",
            f"Ask for {was}, or delete the target topic and begin again, or mirror under other names.",
        )
    elif topic.mode == "mapped" and s.mirror.partitioning == "preserve":
        yield warn(
            f"its offsets are mapped ({topic.reason})",
            "Groups are translated exactly, by the offset map. Offsets outside Kafka (databases, checkpoints) must be "
            "translated by their owners: python -m airflow_mirror.jobs.translate.",
            f"topic {topic.source_topic!r}",
        )


for of_a_subject in (topic_checks, room_checks, hole_checks, selection_checks):
    CHECKS.rows |= of_a_subject.CHECKS.rows
TOLD_ONCE = CHECKS.of("mirror")  # with the plan, and not again of topics that join it
