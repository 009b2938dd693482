"""Reading past aborted transactions, as a consumer does (KIP-98). Bytes in, batches out; nothing here can block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airflow_mirror.wire.batch import RawBatch

Aborted = list[tuple[int, int]]  # (producer id, first offset) of each aborted transaction that overlaps a fetch response


class AbortedFilter:
    """Tells which transactional batches of one fetch response were aborted.

    A response lists every aborted transaction that overlaps it, so the state starts anew with each response.
    """

    def __init__(self, aborted: Aborted) -> None:
        self._pending = sorted(aborted, key=lambda pair: pair[1], reverse=True)
        self._active: set[int] = set()

    def is_aborted(self, raw: RawBatch) -> bool:
        """Say whether ``raw`` is aborted data; batches must be shown in log order, markers too."""
        header = raw.header
        if header is None:
            return False
        while self._pending and self._pending[-1][1] < header.next_offset:
            self._active.add(self._pending.pop()[0])
        if header.is_control:
            # The broker lists a transaction as aborted because of the first marker behind its first offset. So that one
            # need not be read to be known for its end, and may be emptied by the cleaner, or damaged.
            self._active.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._active


def data_batches(fetched: Iterable[tuple[RawBatch, Aborted]], *, committed: bool) -> Iterator[RawBatch]:
    """Yield the batches of records in what was fetched, in order: no markers, and none that the cleaner emptied.

    :param fetched: batches, each with the list of its response (the same object for all of a response).
    :param committed: leave out what was aborted.
    """
    seen: Aborted | None = None
    aborted_filter = AbortedFilter([])
    for raw, aborted in fetched:
        if aborted is not seen:
            seen, aborted_filter = aborted, AbortedFilter(aborted)
        is_aborted = committed and aborted_filter.is_aborted(raw)
        if not is_aborted and (raw.header is None or (not raw.header.is_control and raw.header.record_count > 0)):
            yield raw
