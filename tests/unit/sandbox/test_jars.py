"""The jars: recorded sums hold, half a set never appears, one process fetches while others wait."""

from __future__ import annotations

import hashlib
import io
import os
import re
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from sandbox import jars, java, lock
from sandbox.errors import JarsUnavailable
from sandbox.jars import Jar, ensure, locked_jars
from sandbox.versions import APICURIO_VERSION, HADOOP_VERSION, RELEASES, TOOLS_VERSION

CONTENT = {"kafka_2.13": b"broker", "zstd-jni": b"\x00\xff" * 70_000, "empty": b""}
LOCKED = tuple(
    Jar(hashlib.sha256(content).hexdigest(), "4.4.0", "broker", "org.example", name, "4.4.0")
    for name, content in CONTENT.items()
)
Fetch = Callable[[Path], None]


def deliver(work: Path, content: dict[str, bytes] = CONTENT) -> None:
    (work / "jars").mkdir()
    for name, data in content.items():
        (work / "jars" / f"{name}-4.4.0.jar").write_bytes(data)


class Registry:
    """Stands in for Ivy and the network."""

    def __init__(self) -> None:
        self.calls = 0
        self.fetch: Fetch = deliver

    def __call__(self, work: Path, wanted: Iterable[Jar], *_: object, **__: object) -> list[str]:
        self.calls += 1
        self.fetch(work)
        return ["WARN: module not found at https://user:token@repo.example/x"]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    registry = Registry()
    monkeypatch.setattr(jars, "run_ivy", registry)
    monkeypatch.setattr(jars, "locked_jars", lambda: LOCKED)
    return registry


def get(root: Path) -> list[Path]:
    return ensure("broker", io.StringIO(), root)


def left_in(root: Path) -> list[str]:
    return sorted(name for name in os.listdir(root) if not name.endswith(".lock"))


def test_second_start_fetches_nothing(tmp_path: Path, registry: Registry) -> None:
    first, again = get(tmp_path), get(tmp_path)
    assert first == again and [p.read_bytes() for p in first] == list(CONTENT.values())
    assert registry.calls == 1 and left_in(tmp_path) == ["broker"]


@pytest.mark.parametrize("damage", ["missing", "changed", "cut"])
def test_damaged_cache_is_fetched_again(tmp_path: Path, registry: Registry, damage: str) -> None:
    victim = get(tmp_path)[1]
    if damage == "missing":
        victim.unlink()
    else:
        victim.write_bytes(CONTENT["zstd-jni"][:-1] + (b"" if damage == "cut" else b"\x00"))
    assert get(tmp_path)[1].read_bytes() == CONTENT["zstd-jni"]
    assert registry.calls == 2 and left_in(tmp_path) == ["broker"]


def test_wrong_sum_is_refused_and_nothing_is_kept(tmp_path: Path, registry: Registry) -> None:
    registry.fetch = lambda work: deliver(work, CONTENT | {"kafka_2.13": b"evil"})
    with pytest.raises(JarsUnavailable, match=r"kafka_2.13-4.4.0.jar has not the recorded SHA-256 sum"):
        get(tmp_path)
    assert left_in(tmp_path) == []


def test_missing_jar_is_named_and_addresses_are_not_quoted(tmp_path: Path, registry: Registry) -> None:
    registry.fetch = lambda work: deliver(work, {"empty": b"", "kafka_2.13": b"broker"})
    with pytest.raises(JarsUnavailable, match=r"could not fetch zstd-jni-4.4.0.jar") as error:
        get(tmp_path)
    assert "module not found" in str(error.value) and "token" not in str(error.value)


def test_crash_in_the_middle_leaves_no_half_set(tmp_path: Path, registry: Registry) -> None:
    def crash(work: Path) -> None:
        deliver(work, {"kafka_2.13": b"broker"})
        raise KeyboardInterrupt

    registry.fetch = crash
    with pytest.raises(KeyboardInterrupt):
        get(tmp_path)
    assert left_in(tmp_path) == []
    registry.fetch = deliver
    assert len(get(tmp_path)) == 3


def test_left_overs_of_a_killed_fetch_are_removed(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / ".broker.x1y2.tmp" / "jars").mkdir(parents=True)
    get(tmp_path)
    assert left_in(tmp_path) == ["broker"]


def test_concurrent_starts_fetch_once(tmp_path: Path, registry: Registry) -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow(work: Path) -> None:
        started.set()
        assert go_on.wait(240)
        deliver(work)

    registry.fetch = slow
    said = io.StringIO()
    threads = [threading.Thread(target=ensure, args=("broker", said, tmp_path)) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert started.wait(240)
    go_on.set()
    for thread in threads:
        thread.join(240)
    assert registry.calls == 1 and len(get(tmp_path)) == 3


def test_cache_that_can_not_be_written_is_said(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JarsUnavailable, match="can't be kept in"):
        get(tmp_path / "file" / "below")


@pytest.mark.parametrize("version", RELEASES)
def test_recorded_list_of_every_release_is_complete(version: str) -> None:
    locked = [jar for jar in locked_jars() if jar.kafka == version]
    names = {jar.file_name for jar in locked}
    assert len(names) == len(locked), "a set holds each file once, and tools adds to broker"
    broker = {jar.file_name for jar in locked if jar.jar_set == "broker"}
    assert {f"kafka_{RELEASES[version].scala}-{version}.jar", f"kafka-clients-{version}.jar"} <= broker
    assert any(re.match(r"(slf4j-(reload4j|log4j12)|log4j-slf4j-impl)-", name) for name in broker), (
        "its log says why it failed"
    )
    assert any(name.startswith("zookeeper-") for name in broker) == RELEASES[version].knows_zookeeper
    assert not any(name.startswith(("jetty", "jersey", "connect-")) for name in broker), "a broker needs none of Connect"


def test_recorded_sums_are_whole_and_name_no_registry() -> None:
    locked = locked_jars()
    assert {jar.kafka for jar in locked if jar.jar_set not in ("yarn", "registry")} == set(RELEASES)
    assert {jar.kafka for jar in locked if jar.jar_set == "registry"} == {APICURIO_VERSION}
    assert {jar.kafka for jar in locked if jar.jar_set == "yarn"} == {HADOOP_VERSION}
    assert {jar.jar_set for jar in locked if jar.kafka == TOOLS_VERSION} == {"broker", "tiered", "tools"}
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in locked)
    assert "://" not in jars.LOCK_FILE.read_text() + jars.SETTINGS + java.REQUIREMENT.read_text()


def test_progress_counts_up_to_the_end_without_a_terminal() -> None:
    said = io.StringIO()
    shown = jars._Progress(said, "Kafka", 3)
    for line in (
        "\tfound a",
        "\tfound b",
        "noise",
        "\tfound c",
        "\t[SUCCESSFUL ] a",
        "\t[SUCCESSFUL ] b",
        "\t[SUCCESSFUL ] c",
    ):
        shown.see(line)
    shown.end()
    assert said.getvalue().splitlines()[-1] == "Kafka: 3/3 fetched " and "noise" not in said.getvalue()


# --- the list made anew -------------------------------------------------------------------------------------------------


def resolving(monkeypatch: pytest.MonkeyPatch, come: dict[str, str]) -> None:
    """Let Ivy find these jars, coordinates -> the version that wins."""

    def run(work: Path, *_: object, **__: object) -> list[str]:
        (work / "jars").mkdir()
        for coordinates, winner in come.items():
            group, artifact, version = coordinates.split(":")
            place = work / "cache" / group / artifact / "jars" / f"{artifact}-{version}.jar"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(coordinates.encode())
            (work / "jars" / f"{artifact}-{winner}.jar").touch()
        return []

    monkeypatch.setattr(lock, "run_ivy", run)


def test_recorded_are_the_versions_that_won(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [Jar("", "2.1.1", "broker", "org.example", "root", "1")]
    resolving(
        monkeypatch, {"org.example:root:1": "1", "org.example:log:1.2.19": "1.2.26", "org.example:log:1.2.26": "1.2.26"}
    )
    found = {(jar.kafka, jar.jar_set, jar.file_name): jar.sha256 for jar in lock.resolve(wanted)}
    sums = [hashlib.sha256(name.encode()).hexdigest() for name in ("org.example:root:1", "org.example:log:1.2.26")]
    places = [("2.1.1", "broker", "root-1.jar"), ("2.1.1", "broker", "log-1.2.26.jar")]
    assert found == dict(zip(places, sums, strict=True))


def test_file_of_another_kind_is_recorded_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(work: Path, *_: object, **__: object) -> list[str]:
        (work / "jars").mkdir()
        (work / "jars" / "app-1-all.tar.gz").write_bytes(b"all of it")
        return []

    monkeypatch.setattr(lock, "run_ivy", run)
    wanted = Jar("", "1", "registry", "org.example", "app", "1", "all", "tar.gz")
    (found,) = lock.resolve([wanted], transitive=False)
    assert found.sha256 == hashlib.sha256(b"all of it").hexdigest()
    assert found.coordinates == "org.example:app:1:all:tar.gz"
    assert 'name="app" type="tar.gz" ext="tar.gz" m:classifier="all"' in jars._ivy_module([found], False)


def test_list_without_a_jar_that_was_asked_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [Jar("", "2.1.1", "broker", "org.example", name, "1") for name in ("root", "log")]
    resolving(monkeypatch, {"org.example:root:1": "1"})
    with pytest.raises(JarsUnavailable, match="could not resolve log-1.jar of Kafka 2.1.1"):
        lock.resolve(wanted)
