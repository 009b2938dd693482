"""Replace files atomically and lock them, for files that other processes read or that must survive a crash."""

from __future__ import annotations

import errno
import fcntl
import os
import time
import uuid
from functools import partial
from pathlib import Path
from typing import IO

_DEVICES = Path("/dev")
_AGAIN_S = 0.2  # between two tries to get a lock


def replace_file(path: Path, content: str | bytes, *, durable: bool = True, mode: int | None = None) -> None:
    """Replace ``path`` with ``content`` atomically: a reader sees the old file or the new one, never a part.

    Creates the directory if it does not exist. A link is replaced, and not what it leads to.

    :param durable: the file is on disk under its name when this returns; False for files that are only displayed.
    :param mode: permission bits; default: those that the process gives new files.
    :raises OSError: nothing was replaced, and no temporary file is left.
    """
    _require_ordinary(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A unique name: two processes that replace the same file must not share a temporary file.
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        # Never wider than it is meant to be: who opens it while it is empty can read what is written later.
        created = partial(os.open, mode=0o666 if mode is None else mode)
        with open(beside, "wb", opener=created) as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)  # as the process gives new files fewer bits
            file.write(content.encode() if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def _require_ordinary(path: Path) -> None:
    """Return if ``path`` may be replaced. :raises OSError: it is a device or a pipe, such as ``/dev/stdout``."""
    # Root may rename a file over them, and every program of the host would write to that from then on. Redirected,
    # /dev/stdout leads to an ordinary file. A directory has an error of its own.
    special = path.exists() and not path.is_file() and not path.is_dir()
    if special or path.parent.resolve() == _DEVICES:
        raise OSError(errno.EINVAL, "no ordinary file, and it would be replaced by one", str(path))


def sync(directory: Path) -> None:
    """Sync a directory entry to disk: otherwise a crash may bring the old file back."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock(path: Path, wait_s: float | None = None) -> IO[str]:
    """Return the open file ``path``, created if needed, with an exclusive lock that is held until the file is closed.

    The file is closed, never unlocked: a child process that inherited it holds the lock until it ends. The kernel closes
    it when a process ends, however it ends.

    :param wait_s: how long to wait for another holder; seconds; default: no limit.
    :raises BlockingIOError: somebody else still holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a")
    try:
        if wait_s is None:
            fcntl.flock(file, fcntl.LOCK_EX)
            return file
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return file
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_AGAIN_S)
    except BaseException:
        file.close()
        raise


def is_locked(path: Path) -> bool:
    """Return whether any process holds the lock on ``path``."""
    try:
        with open(path, "r+", encoding="utf-8") as file:  # NFS locks for writing only what is open for that
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
