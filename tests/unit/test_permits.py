"""No effect on a cluster without a permit: effects are found by their requests, permits by the types of parameters."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

import airflow_mirror
from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin, GroupPosition
from airflow_mirror.kafka.model import NewTopicSpec
from airflow_mirror.kafka.quotas import QuotaEntity
from airflow_mirror.kafka.users import ScramCredential
from airflow_mirror.wire.cluster import WireCluster
from tests.builders import rule
from tests.unit.kafka.world import (
    DESCRIBE_CONFIGS,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    METADATA,
    OFFSET_COMMIT,
    world,
)

PACKAGE = Path(airflow_mirror.__file__).parent
PERMITS = ("Permit", "Check")
API_VERSIONS, DELETE_RECORDS = 18, 21

# The one module that makes a request which changes something; by the schema classes of kafka-python.
EFFECTS = {
    "AlterClientQuotasRequest": "kafka/quotas.py",
    "AlterConfigsRequest": "kafka/configs.py",
    "AlterUserScramCredentialsRequest": "kafka/users.py",
    "CreateAclsRequest": "kafka/acls.py",
    "CreatePartitionsRequest": "kafka/topics.py",
    "CreateTopicsRequest": "kafka/topics.py",
    "DeleteAclsRequest": "kafka/acls.py",
    "DeleteRecordsRequest": "wire/requests.py",
    "DeleteTopicsRequest": "kafka/topics.py",
    "IncrementalAlterConfigsRequest": "kafka/configs.py",
    "OffsetCommitRequest": "kafka/group_offsets.py",
    "OffsetDeleteRequest": "kafka/group_offsets.py",
    "ProduceRequest": "wire/requests.py",
    # A transaction: its client is given the check, and the coordinator refuses whoever was taken over.
    "AddOffsetsToTxnRequest": "wire/transactions.py",
    "AddPartitionsToTxnRequest": "wire/transactions.py",
    "EndTxnRequest": "wire/transactions.py",
    "InitProducerIdRequest": "wire/transactions.py",
    "TxnOffsetCommitRequest": "wire/transactions.py",
    "WriteTxnMarkersRequest": "wire/markers.py",
}
# What only asks, or logs in.
QUESTIONS = {
    "ApiVersionsRequest", "DescribeAclsRequest", "DescribeClientQuotasRequest", "DescribeConfigsRequest",
    "DescribeGroupsRequest", "DescribeLogDirsRequest", "DescribeProducersRequest", "DescribeTransactionsRequest",
    "DescribeUserScramCredentialsRequest", "FindCoordinatorRequest", "ListGroupsRequest", "ListOffsetsRequest",
    "ListTransactionsRequest", "MetadataRequest", "OffsetFetchRequest", "OffsetForLeaderEpochRequest",
    "SaslAuthenticateRequest", "SaslHandshakeRequest",
}  # fmt: skip
# What makes such a request and takes no permit. Whoever calls it needs none, either.
WITHOUT = {
    "kafka/topics.py: refused_topics": "only validates",
    "kafka/configs.py: refused_configs": "only validates",
    "wire/requests.py: write_refusals": "a batch with a wrong checksum, which no broker appends",
    "wire/transactions.py: TransactionClient.init": "it is the fence; its client has the check",
    "wire/transactions.py: TransactionClient.begin": "its client has the check",
    "wire/transactions.py: TransactionClient.commit": "its client has the check",
    "wire/transactions.py: TransactionClient._add_partition": "its client has the check",
    "wire/transactions.py: TransactionClient._end": "the coordinator ends an open transaction anyway",
    "wire/transactions.py: new_producer": "a number that nobody had before",
    "wire/transactions.py: write_txn_markers": "copies give a check; what a probe writes is its own",
}
# What makes the message of such a request; who sends it has the permit.
MESSAGES = {"kafka/configs.py: _alteration", "kafka/group_offsets.py: _to_commit", "wire/markers.py: markers_body"}
# What changes something by another client than ours.
OTHER_CLIENTS = {
    "extras/drill/clean_up.py": {"delete_consumer_groups"},  # the drill's own group
    "extras/clients/inventory.py": set[str](),  # only describes
}
CONFLUENTS = {
    "alter_configs", "alter_consumer_group_offsets", "alter_user_scram_credentials", "create_partitions",
    "delete_consumer_groups", "delete_consumer_group_offsets", "incremental_alter_configs",
}  # fmt: skip
# File, function that gives a permit which never asks: why nobody else could have a say.
UNFENCED = {
    ("copy/offsets/derive.py", "writers"): "only reads: the check is for what is sent",
    ("cutover/fence.py", "_prove_right"): "deletes what nobody has: it asks for the right alone",
    ("cutover/alone.py", "alone"): "a fence by a callable has no name at the source: who has the callable lifts it",
    ("cutover/raised.py", "take_back"): "the name of an attempt that is over, which is never raised again",
    ("extras/drill/clean_up.py", "_delete_topic"): "the drill's own topic, by its prefix and its id",
    ("extras/drill/failback.py", "create_again"): "the drill's own topic, by its id",
    ("extras/drill/failback.py", "fail_back"): "the drill's own group",
    ("extras/drill/failover.py", "fail_over"): "the drill's own group",
    ("kafka/topics.py", "refused_topics"): "only validates",
    ("ledger/topic.py", "_create"): "the mirrors' own topic, which nobody takes away; one that exists is compared",
    ("operators/drill.py", "run"): "the drill's own topic, noted before it is there",
    ("jobs/start_memory.py", "remember"): "the mirror's own group, which no consumer is in; twice the same",
    ("ledger/state.py", "write"): "a key has one writer; who is not the one of what it writes gives a permit",
    ("plan/probe.py", "_delete_records"): "the scratch topic of this probe",
    ("plan/scratch.py", "create"): "the scratch topic of this probe",
    ("plan/scratch.py", "delete"): "the scratch topic of this probe",
}


@dataclass(frozen=True)
class Function:
    """A function or method of the package, with all that is in it."""

    file: str
    name: str
    node: ast.FunctionDef

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"

    @property
    def makes(self) -> set[str]:
        """The requests whose classes it imports."""
        return {name for name, _ in requests(self.node)}

    @cached_property
    def called(self) -> set[tuple[str, str]]:
        """What is called: (the name before the dot, or "", and the name)."""
        called = [node.func for node in ast.walk(self.node) if isinstance(node, ast.Call)]
        named = [
            (one.value.id, one.attr)
            for one in called
            if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)
        ]
        return {*named, *(("", one.id) for one in called if isinstance(one, ast.Name))}

    def calls(self, other: Function) -> bool:
        """Whether it calls another one: by its bare name, as a method of its own class, or of a module or a cluster."""
        kind, _, name = other.name.rpartition(".")
        same, same_class = other.file == self.file, kind and kind == self.name.rpartition(".")[0]
        return (
            (("", name) in self.called and (same or name[0] != "_"))
            or (Path(other.file).stem, name) in self.called
            or (("self", name) in self.called and same and bool(same_class))
        )

    @property
    def has_permit(self) -> bool:
        """Whether a parameter is a permit, which nobody may leave out, and which it hands on."""
        given = self.node.args
        positional = [*given.posonlyargs, *given.args]
        required = positional[: len(positional) - len(given.defaults)]
        required += [one for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None]
        permits = {one.arg for one in required if one.annotation is not None and ast.unparse(one.annotation) in PERMITS}
        used = {node.id for node in ast.walk(self.node) if isinstance(node, ast.Name)}
        return bool(permits & used)


def requests(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield kafka-python's requests that are imported, each with its line."""
    for one in ast.walk(node):
        if isinstance(one, ast.ImportFrom) and (one.module or "").startswith("kafka.protocol"):
            yield from ((name.name, one.lineno) for name in one.names if name.name.endswith("Request"))


def files() -> dict[str, ast.Module]:
    return {str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}


def functions(file: str, tree: ast.Module) -> Iterator[Function]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield Function(file, node.name, node)
        elif isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, ast.FunctionDef):
                    yield Function(file, f"{node.name}.{one.name}", one)


FILES = files()
SENDING = [one for file, tree in FILES.items() if file.startswith(("kafka/", "wire/")) for one in functions(file, tree)]


def effects(among: list[Function]) -> list[Function]:
    """Return what makes a request with an effect, and what calls that in turn."""
    found = [one for one in among if one.makes & EFFECTS.keys()]
    for one in found:  # which grows
        if str(one) not in WITHOUT:
            found += [caller for caller in among if caller not in found and caller.calls(one)]
    return found


def naked(among: list[Function]) -> list[str]:
    found = {str(one) for one in effects(among) if not one.has_permit}
    return sorted(found - WITHOUT.keys() - MESSAGES)


def test_each_request_with_an_effect_is_made_in_one_module() -> None:
    made = {(name, file) for file, tree in FILES.items() for name, _ in requests(tree)}
    unknown = {name for name, _ in made} - EFFECTS.keys() - QUESTIONS
    assert unknown == set(), "say whether it changes something"
    assert {(name, file) for name, file in made if EFFECTS.get(name, file) != file} == set()
    assert EFFECTS.keys() <= {name for name, _ in made}


def test_what_has_an_effect_takes_a_permit_that_nobody_may_leave_out() -> None:
    assert naked(SENDING) == []
    assert WITHOUT.keys() | MESSAGES <= {str(one) for one in effects(SENDING)}, "an exception that is none any more"


@pytest.mark.parametrize("kind", [ClusterAdmin, WireCluster])
def test_no_method_has_a_permit_that_may_be_left_out(kind: type) -> None:
    given = [
        (name, one)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        for one in inspect.signature(method).parameters.values()
        if one.annotation in PERMITS
    ]
    assert given and [name for name, one in given if one.default is not inspect.Parameter.empty] == []


class Frozen(TryAgain):
    """Somebody has decided otherwise meanwhile."""


def thawed() -> None:
    raise Frozen("something else is decided")


TP, RULE = TopicPartition("t", 0), rule("t", "WRITE", "ALLOW")
CREDENTIAL = ScramCredential(mechanism="SCRAM-SHA-256", iterations=4096, password="p")
CALLS: dict[str, Callable[[ClusterAdmin], object]] = {
    "alter_quotas": lambda a: a.alter_quotas({QuotaEntity.of(user="a"): {"x": 1.0}}, thawed),
    "alter_topic_configs": lambda a: a.alter_topic_configs("t", thawed, {"retention.ms": "1"}),
    "commit_group_offsets": lambda a: a.commit_group_offsets("g", {TP: GroupPosition(1)}, thawed),
    "create_acls": lambda a: a.create_acls([RULE], thawed),
    "create_topics": lambda a: a.create_topics([NewTopicSpec("new", 1, 1)], thawed),
    "create_scram_users": lambda a: a.create_scram_users({"u": [CREDENTIAL]}, thawed),
    "delete_acls": lambda a: a.delete_acls([RULE], thawed),
    "delete_records": lambda a: a.delete_records({TP: 1}, thawed),
    "delete_topic": lambda a: a.delete_topic("t", "AAAAAAAAAAAAAAAAAAAAAQ", thawed),
    "delete_topics": lambda a: a.delete_topics(["t"], thawed),
    "forget_group_offsets": lambda a: a.forget_group_offsets("g", [TP], thawed),
    "grow_partitions": lambda a: a.grow_partitions("t", 2, thawed),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("incremental", [True, False])
def test_nothing_is_sent_behind_another_decision(name: str, incremental: bool) -> None:
    with world({DELETE_RECORDS: (0, 2)}) as w:
        if not incremental:
            del w.broker.served[INCREMENTAL_ALTER_CONFIGS]
        w.topics["t"] = (1, {})
        with pytest.raises(Frozen):
            CALLS[name](w.admin)
        assert {key for key, _ in w.broker.asked} <= {METADATA, FIND_COORDINATOR, DESCRIBE_CONFIGS, API_VERSIONS}


def test_no_position_is_set_behind_another_decision() -> None:
    with world() as w:
        (commit,) = w.admin.commit_groups({"g": {TP: GroupPosition(1)}}, thawed).values()
        assert isinstance(commit.error, Frozen) and not w.asked(OFFSET_COMMIT)


def test_each_effect_of_the_facade_is_tried() -> None:
    functions = {(one.file, one.name) for one in effects(SENDING) if one.has_permit}
    facade = {
        name
        for name, method in inspect.getmembers(ClusterAdmin, inspect.isfunction)
        if (f"kafka/{method.__module__.rpartition('.')[2]}.py", method.__name__) in functions
    }
    assert facade == {*CALLS, "commit_groups"}


@pytest.mark.parametrize("written", [
    "def f(session):", "def f(session, permit: Permit = unfenced):\n    permit", "def f(session, permit: Permit):",
])  # fmt: skip
def test_a_naked_effect_is_found(written: str) -> None:
    tree = ast.parse(f"{written}\n    from kafka.protocol.admin import DeleteTopicsRequest as Request")
    assert naked([*functions("kafka/new.py", tree)]) == ["kafka/new.py: f"]


def test_a_call_of_a_naked_effect_is_found() -> None:
    made = "def f(s, permit: Permit):\n    permit\n    from kafka.protocol.admin import DeleteTopicsRequest as Request"
    caller = "class ClusterAdmin:\n    def g(self):\n        new.f(self._session, unfenced)"
    among = [*functions("kafka/new.py", ast.parse(made)), *functions("kafka/admin.py", ast.parse(caller))]
    assert naked(among) == ["kafka/admin.py: ClusterAdmin.g"]


def test_who_holds_the_lease_notes_nothing_without_its_permit() -> None:
    """What follows the data: an older note, written by who has slept, would be taken for what was seen last."""
    writes = [
        (file, node)
        for file, tree in FILES.items()
        if file.startswith("sync/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "self._state.write"
    ]
    assert {file for file, node in writes if len(node.args) < 2} == set() and len(writes) == 5


def test_records_are_produced_in_two_places_each_with_the_copys_check() -> None:
    """Their bytes are encoded by hand, so no class of kafka-python tells."""
    sent = {
        (file, {one.arg: ast.unparse(one.value) for one in node.keywords}.get("check"))
        for file, tree in FILES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.args[0]) == "produce.API_KEY" and node.keywords
    }
    assert sent == {("wire/single.py", "check"), ("copy/loop/target_side.py", "self._check_lease")}


def test_other_clients_change_what_is_the_callers_own() -> None:
    """Of confluent's admin client, whose methods are named as ours or otherwise."""
    imported = {
        file
        for file, tree in FILES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("confluent_kafka.admin")
    }
    assert imported == OTHER_CLIENTS.keys()
    for file, names in OTHER_CLIENTS.items():
        called = {node.attr for node in ast.walk(FILES[file]) if isinstance(node, ast.Attribute)}
        assert called & CONFLUENTS == names


def mentions(name: str, trees: Mapping[str, ast.Module]) -> set[tuple[str, str]]:
    """Return the files and functions in which a name is used in any way: called, given, looked up, or renamed."""
    found = set[tuple[str, str]]()
    for file, tree in trees.items():
        within = {
            node: each.name
            for each in ast.walk(tree)  # outer functions come before inner ones
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in ast.walk(each)
        }
        for node in ast.walk(tree):
            used = {getattr(node, "id", None), getattr(node, "attr", None)}
            if isinstance(node, ast.Constant):
                used.add(node.value if isinstance(node.value, str) else None)
            if isinstance(node, ast.alias) and node.asname:
                used.add(node.name)  # under another name nobody would find it
            if name in used:
                found.add((file, within.get(node, "")))
    return found


def test_whoever_asks_nobody_says_why() -> None:
    trees = {file: tree for file, tree in FILES.items() if file != "kafka/permit.py"}
    assert mentions("unfenced", trees) == UNFENCED.keys(), "say here why nobody else could have a say, or ask somebody"


@pytest.mark.parametrize("written", [
    "def f(a):\n    a.delete_topics(['t'], unfenced)", "def f(a):\n    return partial(a.delete, permit=permits.unfenced)",
    "def f(a):\n    a.delete(getattr(permits, 'unfenced'))", "def f():\n    from x import unfenced as u\n    u",
])  # fmt: skip
def test_who_asks_nobody_is_found(written: str) -> None:
    assert mentions("unfenced", {"new.py": ast.parse(written)}) == {("new.py", "f")}


def test_rules_are_changed_by_fences_and_by_who_lets_them_follow_alone() -> None:
    """One module raises and lifts fences. Who lets rules follow writes those of the other side, and no fence."""
    changed = {file for name in ("create_acls", "delete_acls") for file, _ in mentions(name, FILES)}
    assert changed == {"cutover/fence.py", "kafka/admin.py", "sync/acls.py"}
    assert mentions("create_rules", FILES) == {("sync/acls.py", "sync_acls"), ("cutover/failover/run.py", "_grants")}


def test_no_permit_is_made_on_the_spot() -> None:
    """Where nobody else has a say, it is `unfenced`, which says so: a lambda says nothing."""
    spots = [
        f"{file}:{node.lineno}"
        for file, tree in FILES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for given in [*node.args, *(one.value for one in node.keywords)]
        if isinstance(given, ast.Lambda) and ast.unparse(given) == "lambda: None"
    ]
    assert spots == []
