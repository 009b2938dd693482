"""Decide each topic's name, replication, configs, mode, range and priming, from the inventories alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import budget, configs
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.inventory import Inventory, TopicState
from airflow_mirror.plan.model import Capabilities, HoleEstimate, TopicPlan
from airflow_mirror.plan.owned import Owned

NOTHING: Mapping[str, Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A source topic, its name on the target, and the topic there if it exists.

    :param ours: an earlier plan of this mirror created or filled the target topic.
    :param begun: the mode in which it did; "" if nothing was written yet, or if the mode was not recorded.
    :param earlier: the overrides that the target topic gets in the end, by that plan; None without one.
    :param owned: the topic as this mirror has it, by the target's ledger; None if it has not, or nothing was written yet.
    """

    source: TopicState
    target_topic: str
    target: TopicState | None
    ours: bool
    begun: str = ""
    earlier: Mapping[str, str] | None = None
    owned: Owned | None = None

    @property
    def written(self) -> dict[int, int]:
        """Log end offsets of the target's partitions that have been written to."""
        return {} if self.target is None else {p: end for p, end in self.target.ends.items() if end > 0}


def pairs(
    mirror: Mirror, source: Inventory, target: Inventory, known_topics: Collection[str],
    earlier: Mapping[str, Mapping[str, str]] = NOTHING,
) -> list[Pair]:  # fmt: skip
    """Pair the topics of both sides, by source topic.

    :param earlier: see :class:`Pair`, by target topic.
    """
    modes: Mapping[str, str] = known_topics if isinstance(known_topics, Mapping) else {}
    found = []
    for name, state in sorted(source.topics.items()):
        there = mirror.naming.target_topic(name)
        pair = Pair(
            source=state, target_topic=there, target=target.topics.get(there), ours=there in known_topics,
            earlier=earlier.get(there),
        )  # fmt: skip
        if pair.written:
            pair = replace(pair, begun=modes.get(there, "") if pair.ours else "", owned=target.owned.get(there))
        found.append(pair)
    return found


def plan_topic(
    mirror: Mirror,
    pair: Pair,
    target_brokers: int,
    holes: HoleEstimate | None = None,
    capabilities: Capabilities | None = None,
    own_configs: Mapping[str, str | None] | None = None,
    fixed_replicas: int | None = None,
) -> TopicPlan:
    """Decide everything about one topic.

    :param holes: the source's estimated holes; None: not sampled.
    :param capabilities: what the principal may do on the target; None: not tested.
    :param own_configs: the topic configs that the target knows, and their values there; None: it could not be queried.
    :param fixed_replicas: see :func:`wanted_replicas`.
    """
    info, source = pair.source.info, pair.source
    prime = _prime(pair)
    compacted = source.compacts
    filler = mirror.compacted_filler if compacted else "markers"
    excess = budget.excess(mirror, prime, holes, filler, info.partitions, capabilities or Capabilities())
    taken_over = mirror.start_group is not None and not pair.ours and bool(pair.written)
    mode, reason = offset_mode(mirror, pair.begun, excess, taken_over=taken_over)
    rules = configs.Rules.of(mirror)
    final, held = (configs.overrides(source.configs, hold, own_configs, rules) for hold in (False, True))
    if pair.target is not None:
        on_hold = {key: value for key, value in held.items() if key in rules.held_keys}
        final = configs.kept(final, pair.target.configs, rules, pair.earlier)
        held = {**configs.kept(held, pair.target.configs, rules), **on_hold}
    return TopicPlan(
        source_topic=info.name,
        target_topic=pair.target_topic,
        source_topic_id=info.topic_id,
        target_exists=pair.target is not None,
        partitions=info.partitions,
        replication_factor=min(wanted_replicas(mirror, pair, fixed_replicas), target_brokers),
        configs=final,
        held_configs=held,
        left_out=configs.left_out(source.configs, own_configs, rules),
        compacted=compacted,
        mode=mode,
        reason=reason,
        starts=source.begins,
        ends=source.stable_ends if mirror.isolation == "read_committed" else source.ends,
        prime=prime if mode == "identical" else {},
        holes=holes,
        filler=filler,
        key_partitions=_key_partitions(pair) if mirror.partitioning == "by_key" else None,
    )


def wanted_replicas(mirror: Mirror, pair: Pair, fixed: int | None) -> int:
    """Return the replication factor that a target topic would have if there were brokers enough.

    :param fixed: that every topic of the target has (:attr:`.targets.Managed.replicas`). Who asks for another is refused.
    """
    return mirror.replication_factor or fixed or pair.source.info.replication_factor


def offset_mode(
    mirror: Mirror, begun: str = "", excess: Sequence[Finding] = (), *, taken_over: bool = False
) -> tuple[str, str]:
    """Return mode and reason. If a topic can't be copied in that mode, a check blocks it with the reason.

    :param begun: the mode in which the copy began; it wins over ``auto``, because modes can't be mixed.
    :param excess: what prevents identical offsets.
    :param taken_over: the target's topic holds records of the tool from which the mirror takes over.
    """
    if mirror.delivery == "transactional":
        return "mapped", "delivery='transactional': the marker of each transaction takes an offset"
    if mirror.partitioning == "by_key":
        return "mapped", "partitioning='by_key': records change their partition; offsets are not translated"
    if mirror.offsets != "auto":
        return mirror.offsets, f"asked for: offsets={mirror.offsets!r}"
    if begun:
        return begun, "auto: the copy began in this mode"
    if taken_over:
        return "mapped", f"auto: it holds the records of {mirror.start_group!r}, and goes on behind them"
    if excess:
        return "mapped", f"auto: {'; '.join(e.evidence for e in excess)}"
    return "identical", "auto: same offsets, nothing to translate"


def _key_partitions(pair: Pair) -> int:
    """Return among how many partitions keys are dealt out: as when the copy began, else as the target has them by now.

    Among another number a key would have another place, and each place is a copy with a map of its own.
    """
    if pair.owned is not None and pair.owned.key_partitions is not None:
        return pair.owned.key_partitions
    return (pair.target or pair.source).info.partitions


def _prime(pair: Pair) -> dict[int, int]:
    """Return the offsets to fill, by partition. A partition that was written to is already primed."""
    begins = pair.source.begins
    return {p: begin for p, begin in begins.items() if begin > 0 and p not in pair.written}
