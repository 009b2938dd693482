"""The comparison of two clusters in plain processes of this host; see :mod:`airflow_mirror.jobs.driver.verify`."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager

from airflow_mirror.config import Handover, load
from airflow_mirror.errors import InputError, MirrorError, NeedsHuman, TryAgain
from airflow_mirror.jobs.driver.verify import Comparing
from airflow_mirror.sync.maps import MapSource
from airflow_mirror.verify.partition import compare_partitions
from airflow_mirror.verify.result import PartitionComparison, PartitionPair, check_level
from airflow_mirror.wording import count

log = logging.getLogger(__name__)
_LISTS = 4  # for each process: some partitions take longer than others, and whoever waits wants to see it go on


@contextmanager
def comparing(source: str, target: str, level: str, processes: int) -> Iterator[Comparing]:
    """Yield what compares with so many processes, which live as long as the block.

    :param source: reference to the source's settings, as for :func:`airflow_mirror.config.load`. :param target: likewise.
    :raises TryAgain: one of them has died; raised by what is yielded.
    """
    handed = Handover.of(source, target)  # by a pipe: no settings stand in a command line
    # Not forked: this process has threads and connections.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=handed.accept) as pool:

        def compare(
            dealt: Sequence[Sequence[PartitionPair]], maps: MapSource | None, isolation: str
        ) -> list[PartitionComparison]:
            check_level(level)
            total, verdicts = sum(map(len, dealt)), list[PartitionComparison]()
            try:
                running = [pool.submit(_compare, list(p), source, target, level, maps, isolation) for p in dealt if p]
                for each in as_completed(running):
                    verdicts += each.result()
                    log.info("compared %s of %s", f"{len(verdicts):,}", count(total, "partition"))
            except BrokenExecutor as e:
                what, cause = "a process that compares has died", "the system may have run out of memory"
                raise TryAgain(what, cause, "Give fewer --processes, or run it again.") from e
            finally:  # what has failed need not be compared for hours first
                pool.shutdown(wait=False, cancel_futures=True)
            return verdicts

        yield Comparing(processes * _LISTS, compare)


def _compare(
    pairs: list[PartitionPair], source: str, target: str, level: str, maps: MapSource | None, isolation: str
) -> list[PartitionComparison]:
    """Compare some partitions. An error comes back as its branch, with its text: not every class can travel."""
    try:
        sides = load(source, "source"), load(target, "target")
        return compare_partitions(pairs, *sides, level, maps=maps, isolation=isolation)
    except MirrorError as e:
        branch = next((kind for kind in (InputError, NeedsHuman) if isinstance(e, kind)), TryAgain)
        raise branch(str(e)) from None
