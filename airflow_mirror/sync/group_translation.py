"""Where committed offsets of groups lie on the other side. No socket, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.map import Translated, Where
from airflow_mirror.errors import InputError, OffsetOutOfRange, first_of
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.plan.model import TopicPlan

Positions = Mapping[str, Mapping[TopicPartition, GroupPosition]]
# (source partition, offset) -> the position on the other side.
Translate = Callable[[TopicPartition, int], Translated]
IDENTICAL, EXPIRED = "identical", "expired"
_FOUND = {Where.RECORD: "exact", Where.HOLE: "hole", Where.END: "end"}


@dataclass(frozen=True, kw_only=True)
class GroupMove:
    """One group's position in one partition, on both sides. Offsets are those of the next record to read.

    :param before: the group's position on the target; None for none.
    :param action: ``commit``, ``same``, ``kept`` (the target's position is further: not rewound) or ``rewind``;
        empty while only translated.
    :param note: a note for operators.
    :param found: how the offset was found: ``identical`` (it is the same), ``exact`` (by the offset map: the record
        itself), ``hole`` (the next record, because there is none at this offset), ``end`` (after the last record), or
        ``expired`` (deleted on both sides: the first record that is left).
    """

    group: str
    source: TopicPartition
    target: TopicPartition
    source_offset: int
    target_offset: int
    metadata: str = ""
    before: int | None = None
    action: str = ""
    note: str = ""
    found: str = ""


@dataclass(frozen=True)
class Translation:
    """Translated positions.

    :param moves: by group and partition.
    :param problems: positions without a counterpart; only a dry run returns them.
    :param without_positions: groups that never committed in any of these topics.
    """

    moves: tuple[GroupMove, ...]
    problems: tuple[OffsetOutOfRange, ...] = ()
    without_positions: tuple[str, ...] = ()


def translate_positions(
    positions: Positions,
    topics: Iterable[TopicPlan],
    source_starts: Mapping[TopicPartition, int],
    target_starts: Mapping[TopicPartition, int],
    target_ends: Mapping[TopicPartition, int],
    translate_offset: Translate | None = None,
    strict: bool = True,
    lost: Mapping[str, str] = MappingProxyType({}),
) -> Translation:
    """Return the offset at which each group continues on the target.

    A topic with identical offsets keeps the offset; one with mapped offsets is translated by its offset map. Nothing is
    clamped, with one exception that makes no difference to the consumer: a position below the log start of *both* sides
    has expired, and continues at the target's log start.

    :param source_starts: current log start offsets, by source partition.
    :param target_starts: current log start offsets, by target partition.
    :param target_ends: current log ends, by target partition; a position there means "caught up". Without those that the
        target lacks.
    :param translate_offset: translates a source partition's offset, for topics in mapped mode.
    :param lost: what became of topics that the mirror's source has no more as planned, by name in ``positions``:
        an offset of another topic means another record.
    :param strict: raise the first problem (with the others in its notes) instead of returning them.
    :raises OffsetOutOfRange: the target does not hold the position, or the map does not reach it: the mirror is behind.
        Or the topic is lost.
    """
    plans = {t.source_topic: t for t in topics}
    moves, problems = [], []
    flat = ((group, tp, position) for group, its in sorted(positions.items()) for tp, position in sorted(its.items()))
    for group, tp, position in flat:
        if tp.topic not in plans:
            continue
        plan = plans[tp.topic]
        there = TopicPartition(plan.target_topic, tp.partition)
        try:
            if tp.topic in lost:
                cause = f"the source's topic was {lost[tp.topic]}, and the target holds the old one's records"
                raise OffsetOutOfRange(group, there.topic, there.partition, position.offset, cause, _AGAIN)
            if there not in target_ends:  # whose empty log a position 0 would fit
                cause = "the target has no such partition"
                raise OffsetOutOfRange(group, there.topic, there.partition, position.offset, cause, _WAIT)
            place = _way(plan.mode, group, tp, source_starts[tp], translate_offset)
            offset, how, note = place(position.offset)
            start, end = target_starts[there], target_ends[there]
            if offset < start and place(source_starts[tp])[0] >= start:
                offset, how, note = start, EXPIRED, f"expired: below the log start on both sides; continues at {start}"
            if not start <= offset <= end:
                cause = f"the target holds [{start}, {end}]. {_JUMPS}"
                raise OffsetOutOfRange(group, there.topic, there.partition, offset, cause, _WAIT)
        except OffsetOutOfRange as e:
            problems.append(e)
        else:
            moves.append(
                GroupMove(
                    group=group,
                    source=tp,
                    target=there,
                    source_offset=position.offset,
                    target_offset=offset,
                    metadata=position.metadata,
                    note=note,
                    found=how,
                )
            )
    if problems and strict:
        raise first_of(problems)
    without = tuple(
        sorted(group for group, of_group in positions.items() if not any(tp.topic in plans for tp in of_group))
    )
    return Translation(tuple(moves), tuple(problems), without)


_JUMPS = "Committing it would make the consumer jump by its auto.offset.reset"
_AGAIN = "Plan again, and copy the new one before its groups move."
_WAIT = "Let the mirror catch up first, or correct the group."
Place = tuple[int, str, str]  # offset on the other side, how it was found, a note


def _way(
    mode: str, group: str, tp: TopicPartition, log_start: int, translate_offset: Translate | None
) -> Callable[[int], Place]:
    """Return the function that translates an offset of ``tp`` to the other side.

    :param log_start: log start offset of the partition.
    """
    if mode == "identical":
        return lambda offset: (offset, IDENTICAL, "")
    if translate_offset is None:
        raise InputError(f"{tp}: its offsets are mapped", "its groups need the offset map", "Pass translate_offset.")
    through = translate_offset
    return lambda offset: _by_map(group, tp, offset, log_start, through)


def _by_map(group: str, tp: TopicPartition, offset: int, log_start: int, through: Translate) -> Place:
    found = through(tp, offset)
    if found.where is Where.BEYOND:
        raise OffsetOutOfRange(
            group, tp.topic, tp.partition, offset, "the offset map does not reach it: it has no counterpart yet",
            _WAIT,
        )  # fmt: skip
    if found.where is not Where.BEFORE:
        return found.offset, _FOUND[found.where], ""
    if through(tp, max(offset, log_start)).where is Where.BEFORE:
        # Continuing at the first mirrored record would skip records that still exist and that the group has not read.
        raise OffsetOutOfRange(
            group, tp.topic, tp.partition, offset,
            f"the mirror copied only records behind it (the log starts at {log_start})",
            "Let the group read up to where the mirror began, or start a mirror with start='earliest'.",
        )  # fmt: skip
    return found.offset, EXPIRED, f"expired: below the first mirrored record; continues at {found.offset}"
