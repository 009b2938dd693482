"""A file that is replaced is the old one or the new one, whatever happens."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import time
from pathlib import Path
from typing import IO

import pytest

from airflow_mirror.common import files
from airflow_mirror.common.files import is_locked, lock, replace_file


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("content", ["text é", b"\x00bytes\xff"])
def test_a_file_is_written_whole_and_leaves_nothing_beside_it(
    tmp_path: Path, durable: bool, content: str | bytes
) -> None:
    path = tmp_path / "new" / "file"
    for _ in range(2):
        replace_file(path, content, durable=durable)
        assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_what_could_not_be_written_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    path = tmp_path / "file"
    replace_file(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, fails, full)  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_not_replaced(tmp_path: Path, linked: bool) -> None:
    """As root, ``ledger export /dev/stdout | gzip`` made a file of /dev/stdout."""
    pipe = path = tmp_path / "pipe"
    os.mkfifo(pipe)
    if linked:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    there = set(tmp_path.iterdir())
    with pytest.raises(OSError, match="no ordinary file") as caught:
        replace_file(path, "new")
    assert caught.value.filename == str(path)
    assert set(tmp_path.iterdir()) == there and pipe.is_fifo() and path.is_symlink() == linked


def test_a_devices_link_is_not_replaced_wherever_it_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/dev/stdout leads to a file where it is redirected."""
    monkeypatch.setattr(files, "_DEVICES", (tmp_path / "dev").resolve())
    link, redirected = tmp_path / "dev" / "stdout", tmp_path / "file"
    link.parent.mkdir()
    link.symlink_to(redirected)
    redirected.write_text("old")
    with pytest.raises(OSError, match="no ordinary file"):
        replace_file(link, "new")
    assert link.is_symlink() and redirected.read_text() == "old"


def test_a_link_to_a_file_is_replaced_and_the_file_left(tmp_path: Path) -> None:
    link, other = tmp_path / "link", tmp_path / "other"
    other.write_text("old")
    link.symlink_to(other)
    replace_file(link, "new")
    assert not link.is_symlink() and link.read_text() == "new" and other.read_text() == "old"


def test_a_directory_has_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(tmp_path / "directory", "new")
    assert list(tmp_path.iterdir()) == [tmp_path / "directory"]


def test_durable_file_is_synced_before_and_after_its_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is only shown is renamed without a sync."""
    done = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(files.os, name, lambda *a, real=real, name=name: (done.append(name), real(*a)))  # type: ignore[attr-defined]
    replace_file(tmp_path / "file", "decided")
    assert done == ["fsync", "replace", "fsync"]
    done.clear()
    replace_file(tmp_path / "file", "shown", durable=False)
    assert done == ["replace"]


def test_concurrent_writers_do_not_share_a_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = tmp_path / "file", os.replace

    def slow(here: Path, there: Path) -> None:
        monkeypatch.setattr(files.os, "replace", real)  # type: ignore[attr-defined]
        replace_file(path, "the other's, which is longer")  # in the same process, too
        assert here.read_text() == "ours"
        real(here, there)

    monkeypatch.setattr(files.os, "replace", slow)  # type: ignore[attr-defined]
    replace_file(path, "ours")
    assert path.read_text() == "ours" and list(tmp_path.iterdir()) == [path]


def test_permissions_are_as_asked_for(tmp_path: Path) -> None:
    replace_file(tmp_path / "script", "exit 0", mode=0o755)
    assert stat.S_IMODE((tmp_path / "script").stat().st_mode) == 0o755


def test_a_file_of_its_owner_alone_is_never_wider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor while it is written: what is longer than a buffer is on disk before it is whole."""
    seen, real = [], os.fchmod

    def look(file: int, mode: int) -> None:
        found = os.fstat(file)
        seen.append((stat.S_IMODE(found.st_mode), found.st_size))
        real(file, mode)

    monkeypatch.setattr(files.os, "fchmod", look)  # type: ignore[attr-defined]
    before = os.umask(0o022)
    try:
        replace_file(tmp_path / "secrets", "x" * 100_000, mode=0o600)
    finally:
        os.umask(before)
    assert seen == [(0o600, 0)]


def test_lock_is_held_until_its_last_inheritor_ends(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    with lock(path) as held:
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(held.fileno(),))
    assert is_locked(path), "its first holder has gone, its child has not"
    child.communicate()
    assert not is_locked(path)


def test_locks_are_asked_for_as_nfs_wants_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It makes them of locks of ranges: EBADF, where a file is open only to be read."""
    real = fcntl.flock

    def flock(file: IO[str], operation: int) -> None:
        if operation & fcntl.LOCK_EX and not file.writable():
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(file, operation)

    monkeypatch.setattr(files.fcntl, "flock", flock)  # type: ignore[attr-defined]
    with lock(tmp_path / "lock", wait_s=0.0):
        assert is_locked(tmp_path / "lock")
    assert not is_locked(tmp_path / "lock")


def test_lock_of_another_is_refused_after_the_wait(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock(path, wait_s=0.0), pytest.raises(BlockingIOError):
        lock(path, wait_s=0.01)
    lock(path, wait_s=0.0).close()


def test_lock_that_becomes_free_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = lock(path)
    monkeypatch.setattr(time, "sleep", lambda seconds: held.close())
    with lock(path, wait_s=60.0):
        assert is_locked(path)
