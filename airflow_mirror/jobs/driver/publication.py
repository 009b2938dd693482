"""A copy's figures for Prometheus, as its request asks for them."""

from __future__ import annotations

from pathlib import Path

from airflow_mirror.copy.delays import DelayMeter, Delays
from airflow_mirror.jobs.driver.held_lease import HeldLease
from airflow_mirror.jobs.driver.prepare import CopyJob
from airflow_mirror.jobs.metrics.collector import CopyCollector, Watched
from airflow_mirror.jobs.metrics.publish import Publication
from airflow_mirror.jobs.progress.keeper import Progress
from airflow_mirror.jobs.request import CopyRequest
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.sync.hold import HoldWatch


def open_publication(request: CopyRequest, status: StatusFile) -> Publication:
    """Open what the request names, and put the port's address into its status.

    :raises InvalidField: it can't be opened.
    """
    publication = Publication(Path(request.metrics_file) if request.metrics_file else None, request.metrics_port)
    if publication.address is not None:
        status.update(metrics=publication.address)
    return publication


def publish(
    publication: Publication, request: CopyRequest, kind: str, job: CopyJob, progress: Progress, held: HeldLease,
    hold: HoldWatch | None = None, groups: DelayMeter | None = None,
) -> None:  # fmt: skip
    """Publish a copy's figures until ``publication`` is closed; do nothing if it shows them nowhere.

    :param kind: of the job, as in its spec.
    :param hold: None: nobody watches the settings of the target's topics.
    :param groups: how long groups took to follow; None: they don't.
    """
    if not publication.is_open:
        return
    retained = progress.retained
    watched = Watched(
        kind=kind, mirror=job.mirror.name, source=job.mirror.source, target=job.mirror.target, table=progress.table,
        epoch=lambda: held.token.epoch, retained=lambda: retained.last, held=lambda: hold.intact if hold else {},
        restored=lambda: hold.restored if hold else {}, groups=groups.read if groups else Delays,
    )  # fmt: skip
    publication.show(CopyCollector(watched, request.metrics_partitions))
