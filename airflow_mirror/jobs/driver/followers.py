"""What follows the data while a tail runs: each in a thread of its own, by the Mirror's fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from airflow_mirror.jobs.driver.acls import acls_follow
from airflow_mirror.jobs.driver.configs import configs_follow
from airflow_mirror.jobs.driver.groups import groups_follow
from airflow_mirror.jobs.driver.prepare import CopyJob, HeldLease
from airflow_mirror.jobs.driver.starts import starts_follow
from airflow_mirror.jobs.driver.topics import topics_follow
from airflow_mirror.jobs.runner.status import StatusFile


class Copying(Protocol):
    """The copy that is followed.

    :ivar gone: source topics that it gave up, and why.
    """

    gone: dict[str, str]

    @property
    def job(self) -> CopyJob:
        """What is carried out at the moment."""

    def take_in(self, job: CopyJob) -> None:
        """Carry out a job with more topics."""


@contextmanager
def followers(copying: Copying, held: HeldLease, status: StatusFile, *, by_hand: bool) -> Iterator[None]:
    """Let everything follow that the Mirror asks for, until the block ends: then nothing of it writes any more.

    :param by_hand: nobody has stored the plan; see :func:`.topics_follow`.
    """
    mirror = copying.job.mirror

    def job() -> CopyJob:
        return copying.job

    def gone() -> Mapping[str, str]:
        return copying.gone

    def take_in(more: CopyJob) -> None:
        copying.take_in(more)
        groups.renew()  # it has the offset maps of the plan's topics; the others read the plan at each pass

    groups = groups_follow(job, held, status)
    wanted = (
        (True, topics_follow(job, held, status, take_in=take_in, gone=gone, by_hand=by_hand)),
        (mirror.sync_groups, groups),
        (mirror.sync_configs, configs_follow(job, held, status)),
        (mirror.sync_acls, acls_follow(job, held, status)),
        (mirror.sync_log_starts, starts_follow(job, held, status)),
    )
    threads = [thread for is_wanted, thread in wanted if is_wanted]
    try:
        for thread in threads:
            thread.start()
        yield
    finally:
        for thread in threads:
            thread.stop()
