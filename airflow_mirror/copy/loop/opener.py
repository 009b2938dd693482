"""Open partitions in a thread. Nothing here touches the loop's copies, and the loop leaves them alone meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.loop.leaders import Broker, check_latest
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.opening import epochs, recheck
from airflow_mirror.copy.opening.answers import Answers, ask
from airflow_mirror.copy.opening.epochs import Consumed
from airflow_mirror.copy.opening.identical import Opening, open_partition
from airflow_mirror.copy.opening.mapped import Terms, open_mapped
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import BrokerError, LeaseLost, MirrorError, MissingRight, SourceTruncated
from airflow_mirror.wire.cluster import Leader, WireCluster
from airflow_mirror.wire.errors import UnknownTopic

log = logging.getLogger(__name__)

_ASKED_TOGETHER = 256  # in partitions; a broker that does not respond delays all partitions of the same round


@dataclass(frozen=True)
class Opened:
    """Where a copy continues, and the leaders on both sides."""

    opening: Opening
    source: Broker
    target: Broker


@dataclass(frozen=True)
class NotOpened:
    """Why a partition is not open. ``left`` is what the copy mapped, unless that is stored by now."""

    error: MirrorError
    left: OffsetMap | None


@dataclass(frozen=True, kw_only=True)
class Order:
    """A partition to open.

    :param transactional: the partition is delivered in transactions.
    :param written_to: position up to which this copy wrote; None if it was not open before.
    :param producer_id: producer id that this copy wrote with.
    :param mapped: what this copy mapped since its map was last stored.
    :param consumed: what this copy consumed of the source last.
    :param if_landed: the same, if the batch with the lost response is on the target.
    :param heard_epoch: the newest epoch of a source leader that this copy has heard of.
    """

    range: CopyRange
    transactional: bool
    written_to: int | None
    producer_id: int
    mapped: OffsetMap | None
    consumed: Consumed | None
    if_landed: Consumed | None = None
    heard_epoch: int = -1

    def consumed_by(self, end: int) -> Consumed | None:
        """Return what was last consumed and is on the target, given the target's log end offset ``end``."""
        landed = self.if_landed is not None and not self.range.is_mapped and end >= self.if_landed.position
        return self.if_landed if landed else self.consumed


class Opener:
    """Opens partitions of one task.

    :param isolation: of the fetches that follow (0 read_uncommitted, 1 read_committed).
    :param wanted: raises TryAgain if nobody waits for the result any more.
    :param check: called before every step that has an effect; raises if the step must no longer be taken.
    """

    def __init__(
        self, options: CopyOptions, isolation: int, store: MapStore | None, wanted: Callable[[], None],
        check: Callable[[], None],
    ) -> None:  # fmt: skip
        self._options, self._isolation, self._store = options, isolation, store
        self._wanted, self._check = wanted, check

    def open_all(
        self, source: WireCluster, target: WireCluster, orders: Sequence[Order],
        tell: Callable[[int, Opened | NotOpened], None],
    ) -> None:  # fmt: skip
        """Open partitions. Call ``tell`` for each as soon as it is open or has failed, with its index in ``orders``."""
        # Once, not for each round: a topic's metadata grow with its number of partitions.
        failure: MirrorError | None = None
        try:
            learn(source, {order.range.source_topic for order in orders})
            learn(target, {order.range.target_topic for order in orders})
        except MirrorError as e:
            failure = e
        for first in range(0, len(orders), _ASKED_TOGETHER):
            part = orders[first : first + _ASKED_TOGETHER]
            told = self._ask(source, target, part) if failure is None else failure
            for place, order in enumerate(part, first):
                answers = told if isinstance(told, MirrorError) else told[order.range]
                tell(place, self._opened(source, target, order, answers))

    def _ask(
        self, source: WireCluster, target: WireCluster, orders: Sequence[Order]
    ) -> dict[CopyRange, Answers | MirrorError] | MirrorError:
        try:
            # Before each round: a silent broker holds one up for seconds, and a copy that ends does not wait for those
            # that follow.
            self._wanted()
            consumed: dict[TopicPartition, set[int]] = {}
            for order in orders:
                last_epochs = [one.epoch for one in (order.consumed, order.if_landed) if one is not None]
                consumed.setdefault(order.range.source, set()).update(last_epochs)
            return ask(source, target, [order.range for order in orders], consumed)
        except MirrorError as e:
            return e

    def _opened(
        self, source: WireCluster, target: WireCluster, order: Order, told: Answers | MirrorError
    ) -> Opened | NotOpened:
        left = order.mapped
        if isinstance(told, MirrorError):
            return NotOpened(told, left)
        if left is not None and _is_lost(order, left, told):
            # For good, also where this opening fails: whoever else writes there hides it from the next one.
            log.warning(
                "%s: the target ends at %d, and had records up to %d: those are copied again", order.range.source,
                told.target.end, left.target_end,
            )  # fmt: skip
            left = None
        try:
            # A leader that was replaced, and is cut off, lacks what was copied from its successor: it would look as if
            # the source had lost that. By its name alone a topic may be another one, whose epochs begin anew.
            if order.range.source_topic_id and told.topic_id == order.range.source_topic_id:
                check_latest(order.range.source, told.leader, order.heard_epoch)
            self._check_source(source, order, told)
            # Before `open_mapped` reads the stored map: what this copy still had in hand is then part of it, and need
            # not be walked.
            if self._store is not None and store_map(self._store, target, order.range, left, self._check):
                left = None
            # With the leaders of before the questions: a change of leader behind them refuses the first fetch, and a
            # batch goes to a broker that says NOT_LEADER. Either leads here again.
            opening = self._opening(source, target, order, told)
            return Opened(opening, _broker(source, told.leader), _broker(target, told.target.leader))
        except MirrorError as e:
            return NotOpened(e, left)

    def _check_source(self, source: WireCluster, order: Order, told: Answers) -> None:
        # Did the batch with the lost answer land? The target's end says so; with it the epoch that the source is asked
        # about changes.
        consumed = order.consumed_by(told.target.end)
        if consumed is not None and consumed.epoch in told.epoch_ends:
            # Before anything is written, priming included: a source that has lost what we copied must not be gone on
            # with.
            epochs.check_same_log(source, order.range, consumed, told)

    def _opening(self, source: WireCluster, target: WireCluster, order: Order, told: Answers) -> Opening:
        one, mirror, isolation, check = order.range, self._options.mirror, self._isolation, self._check
        if self._store is None or not one.is_mapped:
            try:
                opening = open_partition(source, target, one, told, mirror, isolation, check)
            except SourceTruncated as e:
                # A foreign record makes the target longer.
                self._check_not_foreign(source, target, order, told, e.end_offset)
                raise
            # Behind the opening, which appends nothing itself but fillers: what else is new since our last acknowledged
            # write is compared, also if its last batch is the source's.
            self._check_not_foreign(source, target, order, told, opening.position)
            return opening
        return open_mapped(
            source, target, one, told, self._store, Terms(mirror, isolation, check, order.transactional)
        )  # fmt: skip

    def _check_not_foreign(
        self, source: WireCluster, target: WireCluster, order: Order, told: Answers, end: int
    ) -> None:  # fmt: skip
        """Compare what was appended to the target since this copy last wrote to it, as far as the source has it still."""
        if order.written_to is None:
            return
        # What landed while its answer was lost may be gone there by now, by retention, and can't be read again.
        start = max(order.written_to, told.log_start)
        if end > start:
            recheck.not_foreign(source, target, order.range, order.producer_id, start, end, self._isolation)


def _is_lost(order: Order, part: OffsetMap, told: Answers) -> bool:
    """Return whether the target has lost records of a part that is not stored. Without it the map is derived from there.

    Stored, it would give away offsets that the next records get. What a copy committed in transactions is not sent again:
    its progress is kept apart from the log, so there the stored part has to stop it.
    """
    return told.target.end < part.target_end and not order.transactional


def store_map(
    store: MapStore, target: WireCluster, copy_range: CopyRange, part: OffsetMap | None, check: Callable[[], None]
) -> bool:
    """Store a part of an offset map and return whether that succeeded. If not, and it gets lost, it can be derived.

    :raises LeaseLost: this process must not write any more.
    """
    if part is None or part.source_end == part.source_start:
        return True
    try:
        store.append(target, copy_range, part, check)
    except LeaseLost:
        raise
    except MirrorError as e:
        # Never an error of the copy: the two logs have it, the store saves the way.
        log.warning("offset map of %s not stored, it is derived at the next start: %s", copy_range.source, e)
        return False
    return True


def learn(cluster: WireCluster, topics: Iterable[str]) -> None:
    """Fetch the metadata of topics. Opening their partitions reports topics that are gone, hidden or failed at."""
    try:
        cluster.refresh(topics)
    except (UnknownTopic, MissingRight, BrokerError) as e:
        log.warning("%s", e)


def _broker(cluster: WireCluster, leader: Leader) -> Broker:
    return Broker(leader.node_id, leader.epoch, cluster.connector(leader.node_id))
