"""Where a mirror keeps its files: ``<[mirror] home>/<mirror name>/``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.sdk import conf

from airflow_mirror.errors import InvalidField

if TYPE_CHECKING:
    from airflow_mirror.mirror import Mirror
    from airflow_mirror.plan.store import PlanDirectory


def home() -> Path:
    """Return ``[mirror] home``, by default ``$AIRFLOW_HOME/mirror``.

    :raises InvalidField: it is the URL of an object store; only paths are supported so far.
    """
    configured = conf.get("mirror", "home", fallback="") or ""
    if "://" in configured:
        raise InvalidField("[mirror] home", configured, "not a path", "Use a directory that all workers share.")
    default = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")) / "mirror"
    return (Path(configured) if configured else default).expanduser()


def mirror_home(mirror: Mirror | str) -> Path:
    """Return the directory of one mirror (or of the one with that name); it may not exist yet."""
    return home() / (mirror if isinstance(mirror, str) else mirror.name)


def plans_of(mirror: Mirror | str) -> PlanDirectory:
    """Return the mirror's plans."""
    from airflow_mirror.plan.store import PlanDirectory

    return PlanDirectory(mirror_home(mirror) / "plans")


def metrics_file(mirror: Mirror) -> str:
    """Return the file for the figures of the mirror's copies, in ``[mirror] metrics_dir``; empty if that is not set."""
    configured = conf.get("mirror", "metrics_dir", fallback="") or ""
    return str(Path(configured).expanduser() / f"{mirror.name}.prom") if configured else ""


def report_key() -> str:
    """Return ``[mirror] report_key``: what names the private key that signs reports of cutovers; empty if none does."""
    return str(conf.get("mirror", "report_key", fallback="") or "")


def alarm() -> str:
    """Return ``[mirror] alarm``: the path of the function that calls a person; empty if none does."""
    return str(conf.get("mirror", "alarm", fallback="") or "")


def url_of(path: Path) -> str:
    """Return where a file below ``[mirror] home`` is served; "" if it is not below it.

    By ``[mirror] files_url``, or else by the page in Airflow: relative, as Airflow may lie below a path.
    """
    base = str(conf.get("mirror", "files_url", fallback="") or "").rstrip("/") or "mirrors/files"
    if not path.is_relative_to(home()):
        return ""
    return f"{base}/{quote(path.relative_to(home()).as_posix())}"


def report_dir(mirror: Mirror, run_id: str) -> Path:
    """Return the directory for the reports of one DAG run."""
    from airflow_mirror.jobs.runner.directory import job_name

    return mirror_home(mirror) / "runs" / job_name(run_id)


def poll_interval_s() -> float:
    """Return ``[mirror] poll_interval``: seconds between two polls of a running job."""
    return float(conf.getfloat("mirror", "poll_interval", fallback=5.0))
