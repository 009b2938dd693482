"""Which checkpoints and offset-syncs are news; and that readers in Java are never led beyond the right place."""

from __future__ import annotations

import bisect
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.map import Translated, Where
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.sync.following.deciding import Standing
from airflow_mirror.sync.mm2_topics.deciding import MOST_SYNCS, Log, checkpoint_of, is_news, syncs_of
from airflow_mirror.sync.mm2_topics.formats import Checkpoint, OffsetSync

TP = TopicPartition("orders", 0)


def standing(source: int, target: int, where: Where = Where.RECORD, *, end: int = 100, metadata: str = "") -> Standing:
    found = Translated(target, where)
    return Standing(position=GroupPosition(source, metadata), found=found, rest=found, there=None, start=0, end=end)


def checkpoint(upstream: int, downstream: int, metadata: str = "") -> Checkpoint:
    return Checkpoint("g", TP, upstream, downstream, metadata)


def test_checkpoint_is_the_position_that_the_group_is_given() -> None:
    assert checkpoint_of("g", TP, standing(50, 40, metadata="m")) == (checkpoint(50, 40, "m"), "")
    assert checkpoint_of("g", TP, standing(500, 500))[0] == checkpoint(500, 100)  # held at the target's end


def test_position_without_a_place_has_no_checkpoint_and_a_cause() -> None:
    unknown = Standing(position=GroupPosition(5), found=None, rest=None, there=None, cause="no map")
    assert checkpoint_of("g", TP, unknown) == (None, "no map")
    one, why = checkpoint_of("g", TP, standing(5, 5, metadata="x" * 2**15))
    assert one is None and "longer than a checkpoint" in why


@pytest.mark.parametrize(
    ("now", "before", "held", "log_end", "expected"),
    [
        (checkpoint(50, 40), None, False, None, True),
        (checkpoint(50, 40), checkpoint(50, 40), False, None, False),
        (checkpoint(50, 40, "new"), checkpoint(50, 40), False, None, True),
        (checkpoint(60, 45), checkpoint(50, 40), False, None, True),
        (checkpoint(30, 25), checkpoint(50, 40), False, None, True),  # the group was set back
        (checkpoint(60, 35), checkpoint(50, 40), False, None, True),  # the map knows better now
        (checkpoint(60, 40), checkpoint(60, 45), True, 45, False),  # a new leader tells its end too low
        (checkpoint(60, 40), checkpoint(60, 45), True, None, False),  # nobody knows
        (checkpoint(60, 40), checkpoint(60, 45), True, 40, True),  # the log was cut
    ],
)
def test_checkpoints_move_back_only_with_the_group_or_the_log(
    now: Checkpoint, before: Checkpoint | None, held: bool, log_end: int | None, expected: bool
) -> None:
    its = standing(now.upstream, 1000 if held else now.downstream, end=now.downstream if held else 100)
    assert is_news(now, before, its, log_end) is expected


LOG = Log(first=(10, 0), last=(90, 60))


def test_first_record_groups_and_last_record_are_told() -> None:
    groups = [standing(50, 30), standing(20, 8), standing(50, 30)]
    assert syncs_of(TP, LOG, groups, None, 91) == [
        OffsetSync(TP, 10, 0), OffsetSync(TP, 20, 8), OffsetSync(TP, 50, 30), OffsetSync(TP, 90, 60),
    ]  # fmt: skip


def test_only_rising_syncs_are_told_and_none_twice() -> None:
    before = OffsetSync(TP, 50, 30)
    assert syncs_of(TP, LOG, [standing(20, 8), standing(70, 44)], before, 91) == [
        OffsetSync(TP, 70, 44), OffsetSync(TP, 90, 60),
    ]  # fmt: skip
    assert syncs_of(TP, LOG, [standing(20, 8)], OffsetSync(TP, 90, 60), 91) == []
    again = syncs_of(TP, LOG, [], OffsetSync(TP, 5000, 4000), 91)  # the topic was created again
    assert again == [OffsetSync(TP, 10, 0), OffsetSync(TP, 90, 60)]


def test_places_that_are_no_record_are_not_told() -> None:
    """The next offset may be a marker's neighbour; and beyond the target's log nothing is known."""
    its = [standing(50, 30, Where.END), standing(60, 35, Where.BEYOND), standing(5, 0), standing(95, 70)]
    assert [one.upstream for one in syncs_of(TP, LOG, its, None, 91)] == [10, 90]


def test_no_more_syncs_in_a_pass_than_readers_keep() -> None:
    log = Log(first=(0, 0), last=(10_000, 10_000))
    syncs = syncs_of(TP, log, [standing(n, n) for n in range(1, 5000)], None, 10_001)
    assert len(syncs) == MOST_SYNCS and syncs[0].upstream == 0 and syncs[-2].upstream == 4999


def in_java(syncs: Iterable[OffsetSync], upstream: int) -> int | None:
    """As OffsetSyncStore translates: from the newest sync at or below a position."""
    rows = sorted((one.upstream, one.downstream) for one in syncs)
    at = bisect.bisect_right(rows, (upstream, 1 << 62)) - 1
    if at < 0:
        return None
    found, downstream = rows[at]
    return downstream if found == upstream else downstream + 1


@given(st.data())
def test_a_translation_in_java_never_skips_a_record(data: st.DataObject) -> None:
    """The source has holes of markers, the target has others; both grow between passes, and groups go on."""
    sources = sorted(data.draw(st.sets(st.integers(0, 200), min_size=1, max_size=40)))
    targets = sorted(data.draw(st.sets(st.integers(0, 200), min_size=len(sources), max_size=len(sources))))
    pairs = list(zip(sources, targets, strict=True))
    told: list[OffsetSync] = []
    copied = 0
    while copied < len(pairs):
        copied = data.draw(st.integers(copied + 1, len(pairs)))
        log = Log(pairs[0], pairs[copied - 1])
        groups = [standing(*data.draw(st.sampled_from(pairs[:copied]))) for _ in range(3)]
        new = syncs_of(TP, log, groups, told[-1] if told else None, sources[copied - 1] + 1)
        assert [one.upstream for one in [*told, *new]] == sorted({one.upstream for one in [*told, *new]})
        told += new
    for position in range(sources[0], 202):
        found = in_java(told, position)
        unread = [target for source, target in pairs if source >= position]
        assert found is not None and (not unread or found <= unread[0])
    # Who has read everything goes on exactly.
    assert in_java(told, sources[-1] + 1) == targets[-1] + 1
