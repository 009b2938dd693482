"""Which side is read and which one is written when the positions of a mirror's groups are translated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition as TP
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InputError, MissingRight, OffsetOutOfRange, TopicsOwned, TopicsShared
from airflow_mirror.kafka.model import GroupInfo, GroupPosition, TopicInfo
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.direction import Direction, turn
from airflow_mirror.plan.owned import Owned
from airflow_mirror.plan.ownership import mark_cut_over
from airflow_mirror.sync import groups as translation
from airflow_mirror.sync.groups import translate_groups
from tests.builders import CommitsMany, plan_of, topic_plan
from tests.unit.ledger.memory import MemoryLedger

PLAN = plan_of(
    Mirror(name="flow", source="s", target="t", topics=["orders"], policy="prefix", source_alias="dc1"),
    topic_plan("orders", {0: 0, 1: 0}, target_topic="dc1.orders", source_topic_id="id"),
)
SOURCE, TARGET = (ClientConfig({"bootstrap.servers": f"{role}:1"}, role) for role in ("source", "target"))


class Cluster(CommitsMany):
    """A cluster with one topic, [2, 9) in each partition, and one group."""

    def __init__(self, role: str, topic: str, **positions: int) -> None:
        self.role, self.topic, self.committed, self.topic_id = role, topic, dict[str, Any](), "id"
        self.positions = {TP(topic, int(p[1:])): GroupPosition(offset, "") for p, offset in positions.items()}
        self.listed, self.its_id = ["billing"], {"source": PLAN.source_cluster_id, "target": PLAN.target_cluster_id}[role]
        self.described: Callable[[str], bool] = lambda group: True
        self.wire = SimpleNamespace(settings=SimpleNamespace(principal="User:mirror"))

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def cluster_id(self) -> str:
        return self.its_id

    def topics(self, names: list[str]) -> dict[str, TopicInfo]:
        assert set(names) <= {self.topic}  # also of the ledger: it is the target's
        return {name: TopicInfo(name, self.topic_id, 2, 1) for name in names}

    def groups(self) -> list[GroupInfo]:
        return [GroupInfo(group, "Empty", "consumer") for group in self.listed]

    def allowed_on_cluster(self) -> dict[str, frozenset[str]]:
        return {"kafka-cluster": frozenset()}

    def unseen_groups(self, ids: Any) -> list[str]:
        return sorted(group for group in ids if not self.described(group))

    def group_states(self, ids: Any) -> dict[str, str]:
        return dict.fromkeys(ids, "Empty")

    def groups_offsets(self, ids: Any, _only: object = None) -> dict[str, Any]:
        return {group: self.positions for group in ids}

    def offsets(self, partitions: list[TP], spec: str) -> dict[TP, int]:
        assert self.role == "source" or all(tp.partition < 2 for tp in partitions), "UnknownTopic after a minute"
        return dict.fromkeys(partitions, 2 if spec == "earliest" else 9)

    def commit_group_offsets(self, group: str, positions: dict[TP, GroupPosition], permit: Permit) -> None:
        permit()
        self.committed[group] = {tp.partition: p.offset for tp, p in positions.items()}
        self.positions = self.positions | positions


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> MemoryLedger:
    """Of the target, on which the topics are this mirror's."""
    one = MemoryLedger()
    own = Owned(topic_id="id", mirror="flow", source_id=PLAN.source_cluster_id)
    one.decide(lambda _: {"topic/dc1.orders": own.value()})

    def of(cluster: Cluster) -> MemoryLedger:
        assert cluster.role == "target"
        return one

    monkeypatch.setattr(translation, "Ledger", of)
    return one


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch, ledger: MemoryLedger) -> dict[str, Cluster]:
    made = {"source": Cluster("source", "orders", p0=5, p1=9), "target": Cluster("target", "dc1.orders", p0=4)}
    monkeypatch.setattr(translation, "ClusterAdmin", lambda config: made[config.role])
    return made


def test_without_commit_positions_are_shown_and_nothing_is_written(clusters: dict[str, Cluster]) -> None:
    report = translate_groups(PLAN, SOURCE, TARGET)
    assert [(m.source, m.target, m.source_offset, m.target_offset, m.before, m.action) for m in report.moves] == [
        (TP("orders", 0), TP("dc1.orders", 0), 5, 5, 4, "commit"),
        (TP("orders", 1), TP("dc1.orders", 1), 9, 9, None, "commit"),
    ]
    assert not report.committed and clusters["source"].committed == clusters["target"].committed == {}


def test_positions_are_committed_on_the_target_alone(clusters: dict[str, Cluster]) -> None:
    assert translate_groups(PLAN, SOURCE, TARGET, commit=True).committed
    assert (clusters["source"].committed, clusters["target"].committed) == ({}, {"billing": {0: 5, 1: 9}})


@pytest.mark.parametrize(("role", "back"), [("source", False), ("source", True), ("target", False)])
def test_positions_of_another_cluster_than_the_plans_mean_nothing(
    clusters: dict[str, Cluster], role: str, back: bool
) -> None:
    clusters[role].its_id = "staging"
    with pytest.raises(InputError, match=f"{role} cluster: it is staging"):
        translate_groups(PLAN, SOURCE, TARGET, commit=True, back=back, allow_rewind=True)
    assert clusters["source"].committed == clusters["target"].committed == {}


def test_back_reads_the_target_and_rewinds_the_source_if_told(clusters: dict[str, Cluster]) -> None:
    kept = translate_groups(PLAN, SOURCE, TARGET, back=True)
    assert [(m.source.topic, m.target.topic, m.action) for m in kept.moves] == [("dc1.orders", "orders", "kept")]
    translate_groups(PLAN, SOURCE, TARGET, commit=True, back=True, allow_rewind=True)
    assert (clusters["source"].committed, clusters["target"].committed) == ({"billing": {0: 4}}, {})


def test_a_position_without_a_counterpart_is_a_problem_or_an_error(clusters: dict[str, Cluster]) -> None:
    clusters["source"].positions[TP("orders", 1)] = GroupPosition(12, "")
    assert len(translate_groups(PLAN, SOURCE, TARGET).problems) == 1
    with pytest.raises(OffsetOutOfRange, match="offset 12: the target holds"):
        translate_groups(PLAN, SOURCE, TARGET, commit=True)
    assert clusters["target"].committed == {}


@pytest.mark.parametrize("planned", [True, False], ids=["another is seen", "none is seen"])
def test_groups_that_the_source_hides_are_not_taken_for_none(clusters: dict[str, Cluster], planned: bool) -> None:
    """Kafka lists none without DESCRIBE, and says no error: the run was green, and nothing had moved."""
    plan = replace(PLAN, positions={"payroll": {"orders": {0: 3}}}) if planned else PLAN
    if not planned:
        clusters["source"].listed = []
    assert translate_groups(plan, SOURCE, TARGET).problems == (), "there is none"
    clusters["source"].described = lambda group: False
    (problem,) = translate_groups(plan, SOURCE, TARGET).problems
    assert f"lacks Describe on group {'payroll' if planned else '*'!r}" in problem
    with pytest.raises(MissingRight, match="lacks Describe on group"):
        translate_groups(plan, SOURCE, TARGET, commit=True)
    assert clusters["target"].committed == {}


@pytest.mark.parametrize("lists", [(), ("billing",)], ids=["none is seen", "one is seen"])
def test_groups_that_a_mirror_names_are_asked_for_by_name(clusters: dict[str, Cluster], lists: tuple[str, ...]) -> None:
    """Rules for these are all that it needs: who has them was told that DESCRIBE on all groups is missing."""
    plan = replace(PLAN, mirror=replace(PLAN.mirror, groups=("billing", "payroll")))
    source = clusters["source"]
    source.listed, source.described = [*lists], lambda group: group in plan.mirror.groups
    assert translate_groups(plan, SOURCE, TARGET, commit=True).problems == ()
    source.described = lambda group: group == "billing"
    (problem,) = translate_groups(plan, SOURCE, TARGET).problems
    assert "lacks Describe on group 'payroll'" in problem
    with pytest.raises(MissingRight, match="group 'payroll'"):
        translate_groups(plan, SOURCE, TARGET, commit=True)


def test_on_the_way_back_a_mirror_has_rights_on_its_own_groups_alone(clusters: dict[str, Cluster]) -> None:
    """On the target `airflow-mirror rights` grants no more, so nobody could ever have met what was asked for."""
    target = clusters["target"]
    target.listed, target.described = [], lambda group: group == "billing"
    assert translate_groups(PLAN, SOURCE, TARGET, commit=True, back=True).problems == ()
    plan = replace(PLAN, positions={"billing": {"orders": {0: 3}}, "payroll": {"orders": {0: 3}}})
    with pytest.raises(MissingRight, match="target cluster: list group 'payroll'"):
        translate_groups(plan, SOURCE, TARGET, commit=True, back=True)


@pytest.mark.parametrize("offset", [0, 3])
def test_a_partition_that_the_target_lacks_is_a_problem_and_hides_no_other(
    clusters: dict[str, Cluster], offset: int
) -> None:
    """The source's topic has got one; the target's gets it at the tail's next look. It must not be asked for there.

    A commit of offset 0 was tried, which the broker refused when those of other groups were done.
    """
    clusters["source"].positions[TP("orders", 2)] = GroupPosition(offset, "")
    report = translate_groups(PLAN, SOURCE, TARGET)
    assert [str(m.source) for m in report.moves] == ["orders-0", "orders-1"]
    assert (
        report.problems[0].startswith("group 'billing' at dc1.orders-2")
        and "the target has no such partition" in report.problems[0]
    )
    with pytest.raises(OffsetOutOfRange):
        translate_groups(PLAN, SOURCE, TARGET, commit=True)
    assert clusters["target"].committed == {}


@pytest.mark.parametrize("back", [False, True])
def test_positions_of_a_topic_that_was_created_again_have_no_counterpart(
    clusters: dict[str, Cluster], monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    """Its offsets lie within the old one's log on the target, and mean other records. Also between two questions."""
    read = translation.read_positions

    def created_again(*given: Any) -> Any:
        found = read(*given)
        clusters["source"].topic_id = "another"
        return found

    monkeypatch.setattr(translation, "read_positions", created_again)
    report = translate_groups(PLAN, SOURCE, TARGET, back=back)
    assert report.moves == () and len(report.problems) == (1 if back else 2) and report.without_positions == ()
    assert "the source's topic was created again" in report.problems[0]
    with pytest.raises(OffsetOutOfRange, match="the source's topic was created again"):
        translate_groups(PLAN, SOURCE, TARGET, commit=True, allow_rewind=True, back=back)
    assert clusters["source"].committed == clusters["target"].committed == {}


@pytest.mark.parametrize("commit", [False, True])
def test_positions_on_shared_topics_are_not_translated(clusters: dict[str, Cluster], commit: bool) -> None:
    """There a position stands for the records of other sources, too."""
    shared = {"ownership": "shared", "delivery": "transactional", "sync_groups": False, "sync_configs": False}
    plan = replace(PLAN, mirror=replace(PLAN.mirror, **shared))
    with pytest.raises(TopicsShared, match="can't translate positions"):
        translate_groups(plan, SOURCE, TARGET, commit=commit)
    assert clusters["target"].committed == {}


# --- a task that is cleared behind the opening --------------------------------------------------------------------------

NOON = "2026-11-28T12:00:00+00:00"
BACK = Direction(generation=1, primary="s", by="rollback", attempt="r", plan="p", at=NOON)


def opened(ledger: MemoryLedger) -> None:
    mark_cut_over(ledger, PLAN, {"dc1.orders": "id"}, NOON)


@pytest.mark.parametrize("back", [False, True])
def test_groups_of_an_open_target_are_set_by_nobody_without_a_persons_word(
    clusters: dict[str, Cluster], ledger: MemoryLedger, back: bool
) -> None:
    """A group without members that was set back on purpose, say; also on the source, by the way back."""
    opened(ledger)
    with pytest.raises(InputError, match=r"'flow' was cut over \(2026.*dc1.orders are in production.*--allow-production"):
        translate_groups(PLAN, SOURCE, TARGET, commit=True, allow_rewind=True, back=back)
    assert clusters["source"].committed == clusters["target"].committed == {}
    translate_groups(PLAN, SOURCE, TARGET, back=back)  # who only looks, asks nobody
    translate_groups(PLAN, SOURCE, TARGET, commit=True, allow_rewind=True, back=back, allow_production=True)
    assert clusters["source" if back else "target"].committed


@pytest.mark.parametrize("word", [False, True])
def test_groups_of_what_another_mirror_owns_are_left_to_it(
    clusters: dict[str, Cluster], ledger: MemoryLedger, word: bool
) -> None:
    other = Owned(topic_id="id", mirror="other", source_id="x")
    ledger.decide(lambda _: {"topic/dc1.orders": other.value()})
    with pytest.raises(TopicsOwned):
        translate_groups(PLAN, SOURCE, TARGET, commit=True, allow_production=word)
    assert clusters["target"].committed == {}


@pytest.mark.parametrize(
    ("decide", "word", "refused"),
    [(opened, False, "in production"), (lambda ledger: ledger.decide(lambda _: turn("flow", BACK)), True, "direction")],
)
def test_ledger_is_asked_right_before_the_positions_are_set(
    clusters: dict[str, Cluster], ledger: MemoryLedger, monkeypatch: pytest.MonkeyPatch, decide: Any, word: bool,
    refused: str,
) -> None:  # fmt: skip
    """Maps are read for a moment, or for a minute, and something is decided meanwhile."""
    between = translation.between

    def frozen(*given: Any, **named: Any) -> Any:
        decide(ledger)
        return between(*given, **named)

    monkeypatch.setattr(translation, "between", frozen)
    with pytest.raises(InputError, match=refused):
        translate_groups(PLAN, SOURCE, TARGET, commit=True, allow_production=word)
    assert clusters["target"].committed == {}
