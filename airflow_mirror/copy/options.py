"""How to copy: the options of a task, the same for all its partitions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

DEFAULT_MAX_BATCH_BYTES = 1_048_588  # default message.max.bytes of a broker


@dataclass(frozen=True, kw_only=True)
class CopyOptions:
    """How to copy.

    :param mirror: name of the Mirror, from which producer ids and transactional ids are derived.
    :param committed_only: read_committed; aborted records become holes.
    :param max_batch_bytes: target topic -> its ``max.message.bytes``; missing topics use the broker's default.
    :param direct_markers: pad with WriteTxnMarkers if the principal may; False uses only the coordinator.
    :param delivery: ``idempotent``, or ``transactional``: in transactions that also commit the progress (mapped
        offsets).
    :param transaction_bytes: approximate size at which a backlog's transaction is committed, unless it grows old before
        (`transactional`): read_committed consumers wait for it, and the target's broker keeps its state.
    :param max_bytes_per_second: average write rate of this task; None for no limit.
    :param merge_below: see :class:`.Mirror`.
    :param give_up_after_s: how long a partition may make no progress, and the whole task may pause because the lease
        can't be confirmed, before it is given up; ``inf``: never. None: two minutes, and ten for the lease.
    :param abort_on_send_failure: end the task with the first partition that stops for good, instead of copying the
        others; also with the first that is given up, if ``give_up_after_s`` says after how long.
    :param tombstone_topics: target topics whose holes are filled with tombstones of a reserved key, not with markers.
    """

    mirror: str
    committed_only: bool = True
    max_batch_bytes: dict[str, int] = field(default_factory=dict)
    direct_markers: bool = True
    delivery: str = "idempotent"
    max_bytes_per_second: float | None = None
    merge_below: int = 65536
    transaction_bytes: int = 32 << 20
    give_up_after_s: float | None = None
    abort_on_send_failure: bool = False
    tombstone_topics: Collection[str] = ()

    @property
    def aborts_when_given_up(self) -> bool:
        """True if one partition that is given up ends everything."""
        return self.abort_on_send_failure and self.give_up_after_s is not None

    @property
    def transactional(self) -> bool:
        """True if records are delivered in transactions."""
        return self.delivery == "transactional"
