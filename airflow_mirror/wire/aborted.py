"""Skip aborted transactions, as a read_committed consumer does (KIP-98). Bytes in, batches out; nothing here blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airflow_mirror.wire.batch import RawBatch

Aborted = list[tuple[int, int]]  # (producer id, first offset) of each aborted transaction that overlaps a fetch response


class AbortedFilter:
    """Identifies the transactional batches of one fetch response that were aborted.

    A response lists every aborted transaction that overlaps it, so each response starts with fresh state.
    """

    def __init__(self, aborted: Aborted) -> None:
        self._pending = sorted(aborted, key=lambda pair: pair[1], reverse=True)
        self._active: set[int] = set()

    def is_aborted(self, raw: RawBatch) -> bool:
        """Return whether ``raw`` is aborted data. Must be called for every batch in log order, markers included."""
        header = raw.header
        if header is None:
            return False
        # In log order, each as soon as its first batch is reached: a producer may have committed before, in the same
        # response. So does the Java client (CompletedFetch.consumeAbortedTransactionsUpTo).
        while self._pending and self._pending[-1][1] < header.next_offset:
            self._active.add(self._pending.pop()[0])
        if header.is_control:
            # The broker lists a transaction as aborted because of the first marker after its first offset. That marker
            # therefore ends the transaction even unread, and may be emptied by the log cleaner, or corrupt.
            self._active.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._active


def data_batches(fetched: Iterable[tuple[RawBatch, Aborted]], *, committed: bool) -> Iterator[RawBatch]:
    """Yield the fetched batches that hold records, in order: no markers, and none that the log cleaner emptied.

    :param fetched: batches, each with the aborted list of its response (the same object for all batches of a response).
    :param committed: skip aborted batches.
    """
    return (raw for raw, is_aborted in told_apart(fetched) if not (committed and is_aborted))


def told_apart(fetched: Iterable[tuple[RawBatch, Aborted]]) -> Iterator[tuple[RawBatch, bool]]:
    """Yield the batches as :func:`data_batches` does, each with whether it was aborted: as far as responses tell.

    A fetch that reads uncommitted is told of none.
    """
    seen: Aborted | None = None
    aborted_filter = AbortedFilter([])
    for raw, aborted in fetched:
        if aborted is not seen:
            seen, aborted_filter = aborted, AbortedFilter(aborted)
        is_aborted = aborted_filter.is_aborted(raw)
        if raw.header is None or (not raw.header.is_control and raw.header.record_count > 0):
            yield raw, is_aborted
