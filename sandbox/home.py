"""Where a cluster keeps its files: the caller's directory, or one below the system's temporary directory.

A temporary one is held by a file lock for as long as its owner lives. The next start removes those whose owner is gone:
a process that got SIGKILL can't clean up behind itself.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TextIO

from airflow_mirror.errors import InputError
from sandbox.errors import DiskFull

_OWNER = ".owner"


class Home:
    """A cluster's directory.

    :param data_dir: kept on :meth:`release` when given; None means a temporary directory, which is deleted.
    :raises InputError: when another cluster uses ``data_dir``.
    """

    def __init__(self, name: str, data_dir: Path | None = None) -> None:
        self.temporary = data_dir is None
        self._lock: TextIO | None = None
        if data_dir is not None:
            self.path = data_dir.absolute()
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _try_lock(self.path)
            if self._lock is None:
                raise InputError(f"data directory {self.path} is in use by another cluster, or can't be written.")
        else:
            base = _base()
            with open(base / ".lock", "w") as one_at_a_time:
                fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
                _sweep(base)
                self.path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))
                self._lock = _try_lock(self.path)

    def require_free(self, needed_mb: int) -> None:
        """Make sure that the file system has ``needed_mb`` megabytes left.

        :raises DiskFull: when it has not.
        """
        free_mb = shutil.disk_usage(self.path).free // 2**20
        if free_mb < needed_mb:
            raise DiskFull(self.path, free_mb, needed_mb)

    def release(self) -> None:
        """Delete a temporary directory; leave the caller's own."""
        if self.temporary:
            shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _base() -> Path:
    base = Path(tempfile.gettempdir()) / f"airflow-mirror-sandbox-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    return base


def _sweep(base: Path) -> None:
    for path in base.iterdir():
        if path.is_dir() and (lock := _try_lock(path)) is not None:
            shutil.rmtree(path, ignore_errors=True)
            lock.close()


def _try_lock(directory: Path) -> TextIO | None:
    try:
        lock = open(directory / _OWNER, "w")  # noqa: SIM115 - held open: closing it gives the lock back
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock
