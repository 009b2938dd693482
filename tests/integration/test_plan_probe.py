"""What the principal may do on the target is found out by doing it, and nothing of that is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import (
    DECISIONS,
    MAPS,
    STATE,
    WISHES,
    is_internal,
    lease_id,
    marker_id,
    own_ids,
    scratch_topic,
)
from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.offsets.topic import make_ready
from airflow_mirror.errors import BrokerError, MissingRight, RequestRefused
from airflow_mirror.kafka.admin import Acl, ClusterAdmin, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.plan import probe as probing
from airflow_mirror.plan import scratch
from airflow_mirror.plan.model import Capabilities
from airflow_mirror.plan.probe import probe
from airflow_mirror.sync.maps import mapped_range
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from sandbox import Cluster
from tests.builders import rule
from tests.integration.copying import config, wait_until

CREATE = rule("kafka-cluster", "CREATE", "ALLOW", "User:mirror", kind="CLUSTER")
ALTER = rule("kafka-cluster", "ALTER", "ALLOW", "User:mirror", kind="CLUSTER")
WRITE, READ, DELETE = (rule("*", o, "ALLOW", "User:mirror") for o in ("WRITE", "READ", "DELETE"))
MARK = rule("airflow-mirror:", "WRITE", "ALLOW", "User:mirror", kind="TRANSACTIONAL_ID", pattern="PREFIXED")
EVERYTHING = {"create": CREATE, "alter": ALTER, "write": WRITE, "read": READ, "delete": DELETE, "mark": MARK}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan gives up on a broker within seconds; here a slow machine must not pass for one that does not answer."""
    monkeypatch.setattr(scratch, "_GONE_WITHIN_S", 120.0)
    monkeypatch.setattr(scratch, "_IN_USE_S", 120.0)
    monkeypatch.setattr(probing, "WireCluster", lambda *args, **kw: WireCluster(*args, **kw | {"timeout_s": 90.0}))


@pytest.fixture(scope="module")
def guarded() -> Iterator[Cluster]:
    """A target with an authorizer, on which nobody but the super user may do anything by default."""
    closed = {"allow.everyone.if.no.acl.found": "false"}
    with Cluster("guarded", authorizer=True, overrides=closed, ready_timeout_s=180) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def root(guarded: Cluster) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(ClientConfig(guarded.admin_properties(), "target")) as admin:
        yield admin


@pytest.fixture
def mirror(guarded: Cluster) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(ClientConfig(guarded.properties("mirror"), "target")) as admin:
        yield admin


def grant(root: ClusterAdmin, *rules: Acl) -> None:
    root.delete_acls([r for r in root.describe_acls() if r not in rules], unfenced)
    root.create_acls(rules, unfenced)
    wait_until(lambda: root.describe_acls() == sorted(rules), "the broker has heard of the ACLs")


@pytest.mark.parametrize(
    ("without", "markers", "prime", "lacks"),
    [
        (None, "direct", True, ()),
        ("alter", "coordinator", True, ("ALTER on the cluster",)),
        ("mark", "none", True, ("WRITE on transactional ids that begin with 'airflow-mirror:dc1:'",)),
        ("delete", "direct", False, ("DELETE on the target's topics",)),
        ("read", "coordinator", True, ("READ on the target's topics",)),
        ("write", "unknown", True, ("WRITE on the target's topics",)),
        ("create", "unknown", True, ()),
    ],
)
def test_missing_right_is_named_and_decides_how_to_pad(
    root: ClusterAdmin, mirror: ClusterAdmin, without: str | None, markers: str, prime: bool, lacks: tuple[str, ...]
) -> None:
    grant(root, *(rule for name, rule in EVERYTHING.items() if name != without))
    found = probe(mirror, "dc1")
    assert (found.markers, found.prime, found.lacks) == (markers, prime, lacks)
    left = set(root.topics([scratch_topic("dc1")]))
    if without == "delete":
        assert "was left behind: no DELETE on it" in found.note
        root.delete_topics(left, unfenced)
    else:
        assert not left
    assert ("no CREATE on the cluster" in found.note) == (without == "create")


def test_mapped_offsets_are_not_told_of_rights_that_padding_takes(root: ClusterAdmin, mirror: ClusterAdmin) -> None:
    scratch = [rule(scratch_topic("dc1"), operation, "ALLOW", "User:mirror") for operation in ("CREATE", "DELETE")]
    grant(root, WRITE, READ, MARK, *scratch)
    found = probe(mirror, "dc1", keeps_offsets=False)
    assert (found.markers, found.prime, found.lacks, found.note) == ("coordinator", True, (), "")
    assert probe(mirror, "dc1").lacks == ("ALTER on the cluster",)


def test_probe_without_any_right_notes_it_and_goes_on(root: ClusterAdmin, mirror: ClusterAdmin) -> None:
    grant(root)
    assert "no CREATE on the cluster" in probe(mirror, "dc1").note


def test_guard_ids_of_probe_and_copy_share_a_prefix() -> None:
    """One rule covers both."""
    wanted = marker_id("dc1", TopicPartition(scratch_topic("dc1"), 0))
    assert wanted.startswith(own_ids("dc1")) and lease_id("dc1").startswith(own_ids("dc1"))
    assert is_internal(scratch_topic("dc1"))


def test_two_plans_of_a_mirror_at_once_both_try_everything(target_cluster: Cluster) -> None:
    """As two hosts make them that have found its tail lost."""

    def one(_: int) -> Capabilities:
        with ClusterAdmin(config(target_cluster)) as admin:
            return probe(admin, "twins")

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(one, range(6)))
    assert {(each.markers, each.prime, each.lacks, each.note) for each in found} == {("direct", True, (), "")}


def test_a_plan_goes_on_whose_scratch_topic_another_one_takes(
    target_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has waited in vain for it to be deleted. Its own topic stays."""
    topic = scratch_topic("slow")
    with ClusterAdmin(config(target_cluster)) as admin:

        def taken(*_: object) -> None:
            admin.delete_topics([topic], unfenced)
            wait_until(lambda: not admin.topics([topic]), "the topic is gone")
            admin.create_topics([NewTopicSpec(topic, 1, 1)], unfenced)
            wait_until(lambda: bool(admin.topics([topic])), "the other one's topic is known")
            raise RequestRefused("EndTxn", -1, "UNKNOWN_SERVER_ERROR")

        really, asked = scratch.id_of, [0]

        def unknown_at_first(*given: Any) -> str | None:
            asked[0] += 1
            return None if asked[0] == 1 else really(*given)

        monkeypatch.setattr(scratch, "id_of", unknown_at_first)
        monkeypatch.setattr(probing, "_coordinator_marker", taken)
        found = probe(admin, "slow")
        assert found.markers == "unknown" and "not everything could be tried out" in found.note
        assert admin.topics([topic])
        admin.delete_topics([topic], unfenced)


def test_scratch_topic_of_a_killed_plan_is_reused_and_deleted(
    target_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "_IN_USE_S", 0.0)
    with ClusterAdmin(config(target_cluster)) as admin:
        admin.create_topics([NewTopicSpec(scratch_topic("killed"), 3, 1)], unfenced)
        found = probe(admin, "killed")
        assert (found.markers, found.note) == ("direct", "")  # a note says why it could not be deleted
        wait_until(lambda: not admin.topics([scratch_topic("killed")]), "the scratch topic is gone")


@pytest.mark.parametrize("step", ["_write", "_read", "_coordinator_marker", "_direct_markers", "_delete_records"])
def test_a_leader_that_was_elected_just_now_is_asked_again(
    target_cluster: Cluster, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The scratch topic is new: for a moment its leader does not know it, which says nothing about rights."""
    tried: list[object] = []
    really = getattr(probing, step)

    def first_refused(*args: Any) -> Any:
        tried.append(args)
        if len(tried) < 3:
            raise BrokerError("ask", ErrorCode.NOT_LEADER_OR_FOLLOWER, "NOT_LEADER_OR_FOLLOWER")
        return really(*args)

    monkeypatch.setattr(probing, step, first_refused)
    with ClusterAdmin(config(target_cluster)) as admin:
        found = probe(admin, "new")
    assert (found.markers, found.prime, found.lacks, found.note) == ("direct", True, (), "")


@pytest.mark.parametrize("error", [MissingRight("fetch", "X", "me"), KeyboardInterrupt(), RuntimeError("a bug")])
def test_the_scratch_topic_is_deleted_however_the_probe_ends(
    target_cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(probing, "_read", fail)
    with ClusterAdmin(config(target_cluster)) as admin:
        with pytest.raises(type(error)):
            probe(admin, "unlucky")
        wait_until(lambda: not admin.topics([scratch_topic("unlucky")]), "the scratch topic is gone")


def test_topic_that_no_broker_knew_yet_hides_no_error(target_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after it was created; it was then taken for somebody else's."""
    asked, really = [0], scratch.id_of

    def unknown_at_first(*given: Any) -> str | None:
        asked[0] += 1
        return None if asked[0] == 1 else really(*given)

    def fail(*_: object) -> None:
        raise MissingRight("fetch", "X", "me")

    monkeypatch.setattr(scratch, "id_of", unknown_at_first)
    monkeypatch.setattr(probing, "_read", fail)
    with ClusterAdmin(config(target_cluster)) as admin:
        with pytest.raises(MissingRight):
            probe(admin, "young")
        wait_until(lambda: not admin.topics([scratch_topic("young")]), "the scratch topic is gone")


# --- the ledger's rights ----------------------------------------------------------------------------------------------

OF_THE_STATE = ("CREATE", "READ", "WRITE")
OF_THE_LEDGER = ("CREATE", "READ", "WRITE", "DESCRIBE_CONFIGS")


@pytest.mark.parametrize("without", [None, *OF_THE_LEDGER])
def test_four_rights_on_its_topic_are_enough_for_the_ledger(
    root: ClusterAdmin, mirror: ClusterAdmin, without: str | None
) -> None:
    """Each that is missing is named before anything is decided."""
    if DECISIONS in root.topic_names():
        root.delete_topics([DECISIONS], unfenced)
        wait_until(lambda: DECISIONS not in root.topic_names(), "the topic is gone")
    rights = [rule(DECISIONS, operation, "ALLOW", "User:mirror") for operation in OF_THE_LEDGER if operation != without]
    grant(root, *rights)
    ledger = Ledger(mirror)
    if without is None:
        ledger.create()
        assert ledger.decide(lambda _: {"n": 1}) == {"n": 1} and ledger.values()["n"] == 1
        return
    with pytest.raises(MissingRight, match=DECISIONS):
        ledger.create()
    grant(root, *(rule(DECISIONS, operation, "ALLOW", "User:mirror") for operation in OF_THE_LEDGER))
    Ledger(mirror).create()
    assert set(Ledger(mirror).values()) == {"ledger"}


@pytest.mark.parametrize("without", [None, *OF_THE_STATE])
def test_three_rights_on_its_topic_are_enough_for_the_state(
    root: ClusterAdmin, mirror: ClusterAdmin, without: str | None
) -> None:
    if STATE in root.topic_names():
        root.delete_topics([STATE], unfenced)
        wait_until(lambda: STATE not in root.topic_names(), "the topic is gone")
    rules = [rule(WISHES, operation, "ALLOW", "User:mirror") for operation in ("CREATE", "READ")]  # begun with the state
    rules += [rule(STATE, operation, "ALLOW", "User:mirror") for operation in OF_THE_STATE if operation != without]
    grant(root, *rules)
    state = state_of(mirror, "plan/")
    if without is None:
        state.write({"plan/x": b"1", "other": b"2"})
        assert state.read() == {"plan/x": b"1"}
        return
    with pytest.raises(MissingRight, match=STATE):
        state.write({"plan/x": b"1"})
        state.read()


@pytest.mark.parametrize("without", [None, *OF_THE_LEDGER])
def test_four_rights_on_their_topic_are_enough_for_offset_maps(
    root: ClusterAdmin, mirror: ClusterAdmin, without: str | None
) -> None:
    """Each that is missing is named by the job's driver, before a task copies anything."""
    if MAPS in root.topic_names():
        root.delete_topics([MAPS], unfenced)
        wait_until(lambda: MAPS not in root.topic_names(), "the topic is gone")
    grant(root, *(rule(MAPS, operation, "ALLOW", "User:mirror") for operation in OF_THE_LEDGER if operation != without))
    if without is not None:
        with pytest.raises(MissingRight, match=MAPS):
            make_ready(mirror)
        return
    make_ready(mirror)
    root.create_topics([NewTopicSpec("mapped", 1, 1, {})], unfenced)
    grant(root, rule("mapped", "DESCRIBE", "ALLOW", "User:mirror"), *root.describe_acls())
    one, store = mapped_range("mapped", "mapped", 0), MapStore("m")
    store.begin(mirror.wire, one, 3, 4, lambda: None)
    assert MapStore("m").load(mirror.wire, one) == OffsetMap(3, 4)
