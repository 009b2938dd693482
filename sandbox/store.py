"""Directories in the user's cache that are there as a whole or not at all.

One is made in a temporary directory beside its place and moved there by one rename, under a file lock. A crash leaves a
temporary directory that the next attempt removes, never half of what was wanted.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


def keep(directory: Path, whole: Callable[[], bool], make: Callable[[Path], Path], progress: TextIO) -> None:
    """Return when ``directory`` is whole, making it if need be; other processes wait for the one that makes it.

    :param whole: says whether the directory is there and right.
    :param make: fills an empty working directory and returns which directory inside it is the result.
    :param progress: where to say that another process is at it.
    :raises OSError: when the cache can't be written; whatever ``make`` raises leaves nothing behind.
    """
    if whole():
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _locked(directory.with_name(f".{directory.name}.lock"), directory, progress):
        if not whole():  # whoever had the lock before us may have made it
            _replace(directory, make)


def _replace(directory: Path, make: Callable[[Path], Path]) -> None:
    for left_over in directory.parent.glob(f".{directory.name}.*.tmp"):
        shutil.rmtree(left_over, ignore_errors=True)  # of a crash: we hold the lock, so nobody is using it
    work = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", suffix=".tmp", dir=directory.parent))
    try:
        made = make(work)
        if directory.exists():
            os.replace(directory, work / "old")
        os.replace(made, directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _locked(path: Path, directory: Path, progress: TextIO) -> Iterator[None]:
    with open(path, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that fetches {directory} ...", file=progress, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
