"""Files that others read, or that must outlive a crash: replaced as a whole, by one process at a time."""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_AGAIN_S = 0.2  # between two tries to get a lock


def replace_file(path: Path, content: str | bytes, *, durable: bool = True, mode: int | None = None) -> None:
    """Put ``content`` in the place of ``path`` in one step: a reader sees the old file or the new one, never a part.

    Its directory is made if need be.

    :param durable: it is on disk when this returns, under its name; False for what is only shown.
    :param mode: permissions; default: what the process gives new files.
    :raises OSError: nothing was replaced, and nothing is left beside it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own: two processes that write the same must not write into each other's.
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(beside, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    if durable:
        _sync(path.parent)


def _sync(directory: Path) -> None:
    """Write the names in a directory to disk: without that a crash may bring the old file back."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock(path: Path, wait_s: float | None = None) -> IO[str]:
    """Return the file ``path``, made if need be, with an exclusive lock that is held until the file is closed.

    The kernel closes it when the process ends, however it ends.

    :param wait_s: how long to wait for another holder; default: without end.
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


@contextmanager
def locked(path: Path) -> Iterator[IO[str]]:
    """Hold an exclusive lock on the file ``path``, which is made if need be; waits for its turn.

    Yields the open file. It is closed, never unlocked: a child that inherited it goes on holding the lock until it ends.
    """
    with lock(path) as file:
        yield file


def is_locked(path: Path) -> bool:
    """Say whether somebody holds the lock on ``path``."""
    try:
        with open(path, encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def lock_of(path: Path) -> Path:
    """Return what to lock in order to read ``path`` and replace it: a replaced file can't carry its own lock."""
    return path.with_name(f".{path.name}.lock")
