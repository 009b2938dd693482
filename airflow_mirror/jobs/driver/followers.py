"""What follows the data while a tail runs: each in a thread of its own, by the Mirror's fields."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_mirror.jobs.driver.acls import acls_follow
from airflow_mirror.jobs.driver.configs import configs_follow
from airflow_mirror.jobs.driver.groups import groups_follow
from airflow_mirror.jobs.driver.prepare import CopyJob, HeldLease
from airflow_mirror.jobs.driver.starts import starts_follow
from airflow_mirror.jobs.runner.status import StatusFile


@contextmanager
def followers(job: CopyJob, held: HeldLease, status: StatusFile) -> Iterator[None]:
    """Let everything follow that the Mirror asks for, until the block ends: then nothing of it writes any more."""
    mirror = job.mirror
    wanted = (
        (mirror.sync_groups, groups_follow), (mirror.sync_configs, configs_follow), (mirror.sync_acls, acls_follow),
        (mirror.sync_log_starts, starts_follow),
    )  # fmt: skip
    threads = [follow(job, held, status) for is_wanted, follow in wanted if is_wanted]
    try:
        for thread in threads:
            thread.start()
        yield
    finally:
        for thread in threads:
            thread.stop()
