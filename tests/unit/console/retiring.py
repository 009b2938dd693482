"""A target with a mirror to retire, and what listens to the command that does it."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import MAP_PARTITIONS, MAPS, STATE, WISHES
from airflow_mirror.console.main import main
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.ranges import MAPPED, CopyRange
from airflow_mirror.copy.writer.lease import HANDOVER_S
from airflow_mirror.cutover.decision import OPENED, FenceState
from airflow_mirror.cutover.decision_copy import note_copy
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.records import BEGIN, KINDS
from airflow_mirror.plan import ledger_store
from airflow_mirror.plan.model import Plan
from tests.builders import plan_of, rule, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.groups import Committed
from tests.driven.ledger import LedgerCluster
from tests.driven.validation import TopicConfig
from tests.memory.rules import Rules
from tests.unit.console.conftest import Time
from tests.unit.plan.builders import a_mirror


def state_of(mirror: str) -> dict[str, bytes]:
    """Return a record of each kind that lies in the state, and of one that nobody knows."""
    rows = [kind for kind in KINDS if kind.topic in (STATE, WISHES)]
    keys = (kind.key(mirror, *["x"] * (len(kind.names) - 1)) + "/0/1" * kind.in_pieces for kind in rows)
    return {**dict.fromkeys(keys, b"{}"), f"future/{mirror}/x": b"{}"}


PLANNED = replace(
    plan_of(a_mirror(name="m"), topic_plan("t", {0: 0}, source_topic_id="id")), known_topics={"before": "identical"}
)


class Target:
    """A target on which mirrors m and m2 have positions, and m a map.

    :ivar ended: whether the topics of m were given up, each time when the end of its writing was waited for.
    """

    def __init__(self, cluster: LedgerCluster, time: Time) -> None:
        self.cluster, self.time = cluster, time
        self.ledger, self.state = cluster.ledger, cluster.state
        self.ended: list[bool] = []
        self.meanwhile: Callable[[], object] = lambda: None
        time.meanwhile = self._waited
        cluster.create("read", 3)
        for mirror, count in (("m", 3), ("m2", 1)):
            at = {TopicPartition("read", p): Committed(p, "", -1) for p in range(count)}
            cluster.groups.committed[f"airflow-mirror:{mirror}:progress"] = at
        cluster.create(MAPS, MAP_PARTITIONS, TopicConfig(append_time=True, cleanup_policy="compact"))
        self.begin_map()

    def begin_map(self) -> None:
        """Begin an offset map of m, of a topic that is gone by now."""
        self.cluster.create("mapped")
        one = CopyRange(source_topic="mapped", target_topic="mapped", partition=0, start_offset=0, mode=MAPPED)
        MapStore("m").begin(self.cluster.admin.wire, one, 0, 0, unfenced)
        self.cluster.delete("mapped")

    @property
    def maps(self) -> list[str]:
        """The maps of m."""
        return MapStore("m").names(self.cluster.admin.wire)

    @property
    def positions(self) -> dict[str, int]:
        """How many positions there are, by group."""
        return {group: len(its) for group, its in self.cluster.groups.committed.items()}

    @property
    def changed(self) -> bool:
        """Whether anything but decisions and state was changed."""
        return bool(self.ended or self.cluster.asked("OffsetDelete", "DeleteTopics", "IncrementalAlterConfigs"))

    @property
    def said(self) -> tuple[object, ...]:
        """What is decided, and the state."""
        return dict(self.ledger.values()), dict(self.state.read())

    def decided(self) -> dict[str, object]:
        """Return what is decided and holds, but for the ledger's own beginning."""
        return {key: one for key, one in self.ledger.values().items() if one is not None and key != BEGIN.key()}

    def topic(self, name: str, **settings: str) -> str:
        """Create a topic; return its id, as the ledger has it."""
        self.cluster.create(name).set({key.replace("_", "."): value for key, value in settings.items()})
        return self.cluster.admin.topics([name])[name].topic_id

    def settings(self, name: str) -> dict[str, str]:
        """Return what a topic is set to."""
        return self.cluster.topics[name].settings

    def _waited(self, seconds: float) -> None:
        if seconds == HANDOVER_S:
            topics = [one for key, one in self.ledger.values().items() if key.startswith("topic/")]
            self.ended.append(all(one["released"] for one in topics if one.get("mirror") == "m"))
            self.meanwhile()


class Listener(io.StringIO):
    """Hears the command announce a step, and does something before it is done; prints all the same."""

    def __init__(self, step: str, do: Callable[[], object]) -> None:
        super().__init__()
        self._step, self._do = step, do

    def write(self, text: str) -> int:
        if text.startswith(f"{self._step:<10} ") and not self.getvalue().count(f"\n{self._step} "):
            do, self._do = self._do, lambda: None
            do()
        return super().write(text)


def before(step: str, do: Callable[[], object]) -> redirect_stdout[Listener]:
    """Do something right before the command does a step that it has announced."""
    return redirect_stdout(Listener(step, do))


def own(target: Target, mirror: str, *topics: str, opened: str | None = None, topic_id: str = "x") -> None:
    value = {"v": 1, "topic_id": topic_id, "mirror": mirror, "source_id": "A", "opened_by": opened, "opened_at": opened}
    target.ledger.decide(lambda _: {f"topic/{topic}": value for topic in topics})


def run(target: Target, home: Path, *options: str) -> int:
    words = ["retire", "--target", "dst", "--mirror", "m", "--home", str(home), *options]
    return main(words, target.time)


def fenced(target: Target, phase: str, kind: str = "acl", plan: Plan = PLANNED, **more: object) -> None:
    state = FenceState(
        run="monday", attempt=1, id="i", plan=plan.hash, revision=plan.hash, owner="o", max_fence_s=60.0, phase=phase,
        process={"host": "w-3", "where": "w-3", "pid": 1, "started": 1, "job": "j"}, kind=kind, **more,
    )  # type: ignore[arg-type]  # fmt: skip
    note_copy(target.ledger, "m", state)
    ReportStore(target.state, "m", "monday", None).save(CutoverReport(mirror="m", plan_hash=plan.hash))


def kept_fence(target: Target, source: DrivenCluster) -> None:
    """Raise a fence on topic t, which a finished cutover of m has kept, and keep the plan by which it is lifted."""
    with ClusterAdmin(source.config) as admin:
        fence = AclFence(admin)
        intent = fence.intent(["t"])
        fence.raise_(intent, name_of("m", "monday", "i"), unfenced)
    ledger_store.keep(PLANNED, target.state, target.ledger)
    fenced(target, OPENED, intent=intent.value())


def is_fenced(source: DrivenCluster) -> bool:
    """Return whether everybody is kept out of topic t."""
    return rule("t", "WRITE", "DENY") in (source.rules or Rules()).now
