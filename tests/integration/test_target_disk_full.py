"""The target's disk is really full: a broker ends with its only directory, or leaves the lead of what lies in one of two.

A file takes the last room of a small tmpfs, which needs root.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sandbox import Cluster
from tests.integration import plain
from tests.integration.copying import assert_equal, create, ends, flow_of, wait_until, write

pytestmark = pytest.mark.faults

PARTITIONS = 3
ONLY, ONE_OF_TWO = "its only directory", "one of two directories"
SAID = {ONLY: "Connection refused", ONE_OF_TWO: "a disk of theirs is full or broken"}


class SmallDisk:
    """A file system of its own: :meth:`fill` it, then :meth:`make_room`."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path, self._ballast = path, path / "ballast"
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", str(path)], check=True)

    def fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(1 << 16)):
                pass

    def make_room(self) -> None:
        self._ballast.unlink()

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    one = SmallDisk(tmp_path / "disk")
    yield one
    one.close()


@pytest.fixture(params=[ONLY, ONE_OF_TWO])
def target(request: pytest.FixtureRequest, disk: SmallDisk, tmp_path: Path) -> Iterator[Cluster]:
    """A broker that has topics on the small disk; with two directories it keeps the cluster's metadata in the other."""
    large, small = str(tmp_path / "large"), str(disk.path / "logs")
    settings = {ONLY: {"log.dirs": small}, ONE_OF_TWO: {"log.dirs": f"{large},{small}", "metadata.log.dir": large}}
    with Cluster("full-disk", data_dir=tmp_path / "home", overrides=settings[request.param]) as cluster:
        yield cluster


def there(target: Cluster, topic: str) -> int:
    try:
        return sum(end for _, _, end in ends(target, topic, PARTITIONS).values())
    except Exception:  # the job creates the topic
        return 0


def test_full_disk_is_named_and_with_room_again_a_copy_and_a_tail_go_on_exactly(
    source_cluster: Cluster, target: Cluster, disk: SmallDisk, topic_name: str, tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    said = SAID[request.node.callspec.params["target"]]
    create(source_cluster, topic_name, PARTITIONS)
    for partition in range(PARTITIONS):
        write(source_cluster, topic_name, 1500, partition, partition=partition)
    flow = flow_of(tmp_path, source_cluster, target, topic_name)
    flow += ["--no-probe", "--give-up-after-s", "10"]

    log = tmp_path / "copy.log"
    job = plain.start(*flow, "--max-bytes-per-second", "100000", log=log)
    try:
        wait_until(lambda: there(target, topic_name) > 0 or job.poll() is not None, "it copies")
        disk.fill()
        assert job.wait(300) == 1, log.read_text()[-3000:]
    finally:
        job.kill()
        job.wait()
    assert said in log.read_text().rpartition("\nerror:")[2], log.read_text()
    assert there(target, topic_name) < 1500 * PARTITIONS
    disk.make_room()
    target.restart(1)
    assert plain.copy(*flow, log=log) == 0, log.read_text()[-3000:]
    assert_equal(source_cluster, target, topic_name, PARTITIONS)

    with plain.Follow(*flow, log=tmp_path / "follow.log") as follow:
        write(source_cluster, topic_name, 100, 7)
        wait_until(lambda: there(target, topic_name) == 1500 * PARTITIONS + 100, "it follows")
        disk.fill()
        for partition in range(PARTITIONS):
            write(source_cluster, topic_name, 500, partition + 10, partition=partition)
        follow.says(said)
        disk.make_room()
        target.restart(1)
        total = sum(end for _, _, end in ends(source_cluster, topic_name, PARTITIONS).values())
        wait_until(lambda: there(target, topic_name) == total, "it goes on")
        assert follow.stop()["errors"] == []
    assert_equal(source_cluster, target, topic_name, PARTITIONS)
