"""How a command line of an older tool becomes a job: its settings stand in files that only this user can read."""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.config import load
from airflow_mirror.errors import AuthenticationFailed, ClusterUnreachable, InputError, MirrorError, NeedsHuman, TryAgain
from airflow_mirror.jobs.driver import arguments as cli
from airflow_mirror.jobs.driver import older, together
from airflow_mirror.jobs.driver.entry import Outcome
from airflow_mirror.jobs.driver.together import FollowOne
from airflow_mirror.jobs.request import TailRequest
from airflow_mirror.jobs.runner.active import ActiveTail
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.plan.owned import Owned
from airflow_mirror.wire.errors import StoppedByQuota
from tests.driven.cluster import DrivenCluster
from tests.driven.ledger import LedgerCluster
from tests.driven.validation import TopicConfig
from tests.waiting import Elapsing

DAY_MS = 86_400_000
KEPT = "--partitioning=preserve"  # so that neither side is asked: most tests here have no cluster


def reach(theirs: list[str], source: DrivenCluster, target: DrivenCluster) -> list[str]:
    """Have the command line lead to these clusters; return it without what keeps partitions."""
    Path(theirs[1]).write_text(f"bootstrap.servers={source.config.bootstrap}\ngroup.id=g\n")
    Path(theirs[3]).write_text(f"bootstrap.servers={target.config.bootstrap}\n")
    return [one for one in theirs if one != KEPT]


@pytest.fixture
def theirs(tmp_path: Path) -> list[str]:
    consumer, producer = tmp_path / "consumer", tmp_path / "producer"
    login = "sasl.mechanism=PLAIN\nsecurity.protocol=SASL_PLAINTEXT\nsasl.jaas.config="
    login += 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hush";\n'
    consumer.write_text(f"bootstrap.servers=old:9092\ngroup.id=g\n{login}")
    producer.write_text(f"bootstrap.servers=new:9092\ndelivery.timeout.ms=90000\n{login}")
    return ["--consumer.config", str(consumer), "--producer.config", str(producer), "--whitelist", "a.*", KEPT]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    return cli.parser("tail", "", TailRequest).parse_args(argv)


def older_run(argv: Sequence[str], work: Any, several: Any) -> int:
    return older.run(argv, parse, partial(cli.request_of, TailRequest), work, several)


def asked(argv: Sequence[str]) -> TailRequest:
    return cli.request_of(TailRequest, parse(argv))


def never(*_: Any) -> Any:
    pytest.fail("nothing may run")


def test_a_job_finds_settings_and_mirror_in_files_of_this_user_alone_which_go(
    theirs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Path] = []

    def work(given: TailRequest, _: StatusFile) -> Outcome:
        assert load(given.source).properties["sasl.password"] == "hush"
        assert load(given.target).bootstrap == "new:9092"
        assert given.mirror.start_group == "g"
        assert (given.tasks, given.turn_s) == (2, 60)
        assert (given.abort_on_send_failure, given.give_up_after_s) == (True, 90.0)
        seen.append(Path(given.source))
        assert seen[0].parents[1].stat().st_mode & 0o077 == 0
        return {"done": 1}, None

    assert older_run([*theirs, "--num.streams=2", "--turn-s", "60"], work, never) == 0
    assert seen and not seen[0].exists()
    said = capsys.readouterr()
    assert "--num.streams: mapped: --tasks, --processes" in said.err and "hush" not in said.err
    assert json.loads(said.out) == {"done": 1}


@pytest.mark.parametrize(
    ("given", "there", "partitioning"),
    [
        ([], None, "preserve"), ([], 3, "preserve"), ([], 2, "by_key"), ([], 5, "by_key"),
        (["--preserve.partitions"], 2, "preserve"), (["--preserve.partitions=false"], 3, "by_key"),
    ],
)  # fmt: skip
def test_keys_choose_the_partition_where_the_counts_differ_as_in_the_old_tool(
    theirs: list[str], given: list[str], there: int | None, partitioning: str
) -> None:
    with DrivenCluster("source") as source, DrivenCluster("target") as target:
        line = reach(theirs, source, target)
        source.create("a1", 3)
        source.create("a2", 1)
        source.create("b", 4)  # no topic of this mirror
        target.create("a2", 1)
        target.create("b", 7)
        if there is not None:
            target.create("a1", there)
        seen: list[str] = []

        def work(given: TailRequest, _: StatusFile) -> Outcome:
            seen.append(given.mirror.partitioning)
            return {}, None

        assert older_run([*line, *given], work, never) == 0
        assert seen == [partitioning]


def test_what_a_mirror_has_begun_with_it_goes_on_with(
    ledger_target: LedgerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may add partitions to the target's topic: that must not let a mirror that kept them begin anew by key."""
    begun = ActiveTail(mirror={"name": "g", "partitioning": "preserve"}, plan="", inputs="", directory="")
    target = ledger_target
    with DrivenCluster("source") as source:
        source.create("a1", 3)
        target.create("a1", 5)
        job = asked(["--source", "env:S", "--target", "env:T", "--name", "g", "--include", "a.*"])
        monkeypatch.setenv("S", source.config.dump())
        monkeypatch.setenv("T", target.config.dump())
        assert older.partitioning(job) == "by_key"
        target.ledger.decide(lambda _: {"active/g": begun.value()})
        assert older.partitioning(job) == "preserve"


@pytest.mark.parametrize(
    ("config", "more", "held_ms"),
    [
        ({"retention_ms": DAY_MS}, [], (1 + 7) * DAY_MS * 6 // 5),
        ({"retention_ms": 1000, "segment_ms": 1000}, [], 3_600_000),
        ({"retention_ms": -1}, [], None),
        ({"cleanup_policy": "compact"}, [], None),
        ({"retention_ms": -1}, ["--hold-retention-ms", "7200000"], 7_200_000),
    ],
)
def test_what_no_log_start_can_follow_ends_with_the_sources_retention(
    theirs: list[str], config: dict[str, Any], more: list[str], held_ms: int | None,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """As the older tool's target did: by the topic's own retention."""
    with DrivenCluster("source") as source, DrivenCluster("target") as target:
        line = reach(theirs, source, target)
        source.create("a1", config=TopicConfig(retention_ms=1000, segment_ms=1000))
        source.create("a2", config=TopicConfig(**{"retention_ms": 7 * DAY_MS} | config))
        source.create("b", config=TopicConfig(retention_ms=-1))
        seen: list[int | None] = []

        def work(given: TailRequest, _: StatusFile) -> Outcome:
            seen.append(given.mirror.hold_retention_ms)
            return {}, None

        assert older_run([*line, "--preserve.partitions=false", *more], work, never) == 0
        assert seen == [held_ms]
        assert ("keeps those of a2 for ever" in caplog.text) == (held_ms is None)


def test_a_command_line_of_our_own_is_passed_as_it_is() -> None:
    asked = ["--source", "a", "--target", "b", "--include", "x"]
    assert older_run(asked, lambda given, _: ({"source": given.source}, None), never) == 0


def tries_of(theirs: list[str], monkeypatch: pytest.MonkeyPatch, *more: str) -> tuple[int, int]:
    """Return how often both sides were asked while the source was away for two tries, and the exit status."""
    asked: list[int] = []

    def ask(_: TailRequest) -> str:
        asked.append(1)
        if len(asked) < 3:
            raise ClusterUnreachable("source", "old:9092", "connection refused")
        return "preserve"

    monkeypatch.setattr(older, "partitioning", ask)
    status = older_run([*theirs[:-1], *more], lambda *_: ({}, None), never)
    return len(asked), status


@pytest.mark.usefixtures("again_at_once")
def test_a_source_that_is_away_at_the_start_is_waited_for_and_said_once(
    theirs: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert tries_of(theirs, monkeypatch) == (3, 0)
    said = [one.message for one in caplog.records if "begins again" in one.message]
    assert len(said) == 1 and "no broker at old:9092 could be reached" in said[0]


@pytest.mark.usefixtures("again_at_once")
def test_who_wants_to_fail_fast_does_not_wait(
    theirs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tries_of(theirs, monkeypatch, "--fail-fast") == (1, 1)
    assert "error: source cluster: no broker at old:9092" in capsys.readouterr().err


@pytest.mark.usefixtures("again_at_once")
def test_a_tail_of_its_own_waits_for_a_cluster_that_is_away_and_for_nothing_else() -> None:
    errors = [
        ClusterUnreachable("target", "b:1", "refused"),
        ClusterUnreachable("target", "b:1", "refused"),
        TryAgain("x"),
    ]

    def follow() -> Outcome:
        raise errors.pop(0)

    given = asked(["--source", "s", "--target", "t"])
    summary, error = together.keep_alone("m", follow, threading.Event(), given.fail_fast)
    assert (summary, str(error), errors) == ({}, "x", [])


@pytest.mark.usefixtures("again_at_once")
@pytest.mark.parametrize(
    ("lasts", "tries"),
    [([1.0, 1.0], 1), ([301.0, 1.0, 1.0, 299.0, 1.0], 4), ([301.0, 1.0, 301.0, 1.0, 300.0], 5)],
)
def test_login_that_is_refused_behind_a_tail_that_ran_well_is_tried_again(
    lasts: list[float], tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who changes a password does that on the cluster and in a file: not at one moment."""
    clock = Elapsing()
    monkeypatch.setattr(together, "time", SimpleNamespace(monotonic=clock.clock))
    left = list(lasts)

    def follow() -> Outcome:
        clock.now += left.pop(0)
        raise AuthenticationFailed("target", "b:1", "no such user")

    given = asked(["--source", "s", "--target", "t"])
    _, error = together.keep_alone("m", follow, threading.Event(), given.fail_fast)
    assert isinstance(error, AuthenticationFailed) and len(lasts) - len(left) == tries
    left = list(lasts)
    together.keep_alone("m", follow, threading.Event(), True)
    assert len(lasts) - len(left) == 1


def test_a_tail_that_is_stopped_while_a_quota_holds_it_up_has_begun_nothing() -> None:
    def follow() -> Outcome:
        raise StoppedByQuota("target", "b:1", 4.1)

    summary, error = together.keep("m", follow, threading.Event(), ())
    assert (summary["partitions"], summary["errors"], error) == (0, [], None)


def test_wrong_input_is_said_and_nothing_runs(theirs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert older_run([*theirs, "--message.handler", "X"], never, never) == 2
    assert "  - --message.handler: it is code of Java" in capsys.readouterr().err
    assert older_run([*theirs[:2], *theirs], never, never) == 2
    assert "Give each source once" in capsys.readouterr().err


class Sources:
    """Stands for what follows a source each; its tries end as they are listed."""

    def __init__(self, **tries: list[MirrorError | None]) -> None:
        self._left = {name: list(several) for name, several in tries.items()}
        self._stopping = threading.Event()
        self.tried: dict[str, int] = dict.fromkeys(tries, 0)

    @contextmanager
    def __call__(self, stopping: threading.Event, count: int) -> Iterator[FollowOne]:
        assert count == len(self.tried)
        self._stopping = stopping
        yield self.follow

    def follow(self, given: TailRequest) -> Outcome:
        name = given.mirror.name
        self.tried[name] += 1
        error = self._left[name].pop(0)
        if not self._left[name]:
            if all(not left for left in self._left.values()):
                self._stopping.set()
            self._stopping.wait(30)
        if error is not None:
            raise error
        return {"records": len(name)}, None


@pytest.fixture
def two(theirs: list[str], tmp_path: Path, again_at_once: None) -> list[str]:
    other = tmp_path / "other"
    other.write_text("bootstrap.servers=far:9092\ngroup.id=h\n")
    return ["--consumer.config", str(other), *theirs]


def test_what_one_job_writes_to_is_refused_for_two(two: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert older_run([*two, "--metrics-port=0"], never, never) == 2
    assert "--metrics-port\n  why: it is of one job, and there are 2 sources" in capsys.readouterr().err


def test_a_source_that_fails_for_a_while_is_begun_again_and_the_others_go_on(
    two: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    sources = Sources(g=[None], h=[TryAgain("away"), TryAgain("away"), None])
    assert older_run(two, never, sources) == 0
    assert sources.tried == {"g": 1, "h": 3}
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said == {"mirrors": {"g": {"records": 1}, "h": {"records": 1}}}


def test_a_source_that_only_a_person_can_help_ends_alone(two: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    sources = Sources(g=[TryAgain("away"), None], h=[NeedsHuman("broken")])
    assert older_run(two, never, sources) == 1
    assert sources.tried == {"g": 2, "h": 1}
    assert "error: h: broken" in capsys.readouterr().err


def test_a_source_that_was_never_reached_is_not_forgotten_when_all_are_stopped(
    two: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its mirror copied nothing; the whole does not end as if it had."""
    sources = Sources(g=[None], h=[ClusterUnreachable("source", "far:9092", "refused")])
    assert older_run(two, never, sources) == 1
    assert "error: h: source cluster: no broker at far:9092 could be reached" in capsys.readouterr().err


def test_what_all_sources_share_and_lack_is_said_before_one_begins(
    two: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A Spark application that is refused ended in a stack trace, without a remedy and with any status."""

    @contextmanager
    def of_several(*_: object) -> Iterator[FollowOne]:
        raise InputError("the executors", "lack a package", "Install it there")
        yield

    assert older_run(two, never, of_several) == 2
    assert "lack a package" in capsys.readouterr().err


def test_what_belongs_to_another_mirror_is_found_by_the_targets_ledger(
    ledger_target: LedgerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = ledger_target
    with DrivenCluster("source") as source:
        for name in ("a1", "a2", "a3", "b"):
            source.create(name, 1)
            target.create(name, 1)
        monkeypatch.setenv("S", source.config.dump())
        monkeypatch.setenv("T", target.config.dump())
        ids = {name: one.topic_id for name, one in target.admin.topics(["a1", "a2", "b"]).items()}
        me = source.cluster_id
        owners = {"a1": ("other", "x"), "a2": ("g", me), "b": ("other", "x")}
        values = {
            f"topic/{name}": Owned(topic_id=ids[name], mirror=mirror, source_id=of).value()
            for name, (mirror, of) in owners.items()
        }
        target.ledger.decide(lambda _: values)
        job = asked(["--source", "env:S", "--target", "env:T", "--name", "g", "--include", "a.*"])
        assert older._taken(job) == {"a1": "mirror 'other' of cluster x"}


def test_of_a_topic_that_both_sources_have_only_that_one_is_refused_to_the_second(
    two: list[str], ledger_target: LedgerCluster, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Its other topics are copied, the options that share a topic are named, and the end says what was left out."""
    followed: list[tuple[str, list[str]]] = []

    @contextmanager
    def of_several(stopping: threading.Event, _: int) -> Iterator[FollowOne]:
        def follow(job: TailRequest) -> Outcome:
            mirror = job.mirror
            chosen = [name for name in ("a.own", "a.both", "axboth") if mirror.selects_topic(name)]
            if mirror.name == "g" and "a.both" in chosen:
                raise InputError("a.both: mirror 'h' has it")
            followed.append((mirror.name, chosen))
            if len(followed) == 2:
                stopping.set()
            assert stopping.wait(30)
            return {}, None

        yield follow

    with DrivenCluster("source") as source:
        reach(two[2:], source, ledger_target)
        for name in ("a.own", "a.both", "axboth"):
            source.create(name), ledger_target.create(name)
        ids = {name: one.topic_id for name, one in ledger_target.admin.topics(["a.both"]).items()}
        owned = Owned(topic_id=ids["a.both"], mirror="h", source_id="x").value()
        ledger_target.ledger.decide(lambda _: {"topic/a.both": owned})
        assert older_run(two, never, of_several) == 1
    assert sorted(followed) == [("g", ["a.own", "axboth"]), ("h", ["a.own", "a.both", "axboth"])]
    assert "error: g: a.both: mirror 'h' has it" in capsys.readouterr().err
    assert "--ownership shared --delivery transactional --offsets mapped" in caplog.text


def test_settings_in_a_json_file_may_have_lines_that_properties_can_not(tmp_path: Path) -> None:
    file = tmp_path / "source.json"
    file.write_text(json.dumps({"bootstrap.servers": "a:1", "ssl.ca.pem": "-----BEGIN\nx\n"}))
    assert load(str(file)).properties["ssl.ca.pem"] == "-----BEGIN\nx\n"
    file.write_text('"hush"')
    with pytest.raises(InputError, match="holds no JSON object") as caught:
        load(str(file))
    assert "hush" not in str(caught.value)
