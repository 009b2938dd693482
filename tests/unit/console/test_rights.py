"""``airflow-mirror rights``: as a script, as JSON, and what it takes from clusters."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from airflow_mirror.common.policy import DECISIONS, LEDGER, MAPS, STATE
from airflow_mirror.console.main import main
from airflow_mirror.kafka.acls import OPEN_BY_DEFAULT
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import Acl, ConfigEntry
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.rights import SIDES, rights_of
from tests.driven.cluster import DrivenCluster
from tests.unit.console.conftest import named

WHOSE = ["--principal", "User:mirror"]
CLOSES = (
    "# Note: Where what has no ACL is open to everybody (allow.everyone.if.no.acl.found=true), the first ACL of a "
    "resource closes it to everybody else, and one on '*' all of its kind. Run nothing of this there: the mirror may do "
    "all of it anyway."
)


def run(capsys: pytest.CaptureFixture[str], *options: str, status: int = 0) -> str:
    assert main(["rights", *options]) == status
    printed = capsys.readouterr()
    return printed.err if status else printed.out


def as_acls(script: str) -> list[Acl]:
    """What the commands of a script add, read as kafka-acls.sh reads them."""
    acls = []
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] != ["kafka-acls.sh"]:
            continue
        options: dict[str, list[str]] = {}
        for option, value in zip(words, [*words[1:], "--"], strict=True):
            if option.startswith("--"):
                options.setdefault(option, []).append(value)
        kinds = {"--topic": "TOPIC", "--group": "GROUP", "--transactional-id": "TRANSACTIONAL_ID"}
        named = [(kind, name) for option, kind in kinds.items() for name in options.get(option, [])]
        for kind, name in named or [("CLUSTER", "kafka-cluster")]:
            for operation in options["--operation"]:
                upper = "".join(f"_{c}" if c.isupper() else c.upper() for c in operation).lstrip("_")
                acls.append(
                    Acl(
                        resource_type=kind, name=name, principal=options["--allow-principal"][0], host="*",
                        pattern_type=options.get("--resource-pattern-type", ["literal"])[0].upper(), operation=upper,
                        permission="ALLOW",
                    )
                )  # fmt: skip
    return acls


@pytest.mark.parametrize("topics", [["orders"], [f"t{i}" for i in range(120)], ["pay.*", "orders"], [".*"]])
def test_the_script_adds_exactly_the_rights_of_the_table(topics: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    script = run(capsys, "--name", "flow", *WHOSE, *(word for t in topics for word in ("--include", t)))
    mirror = Mirror(name="flow", source="source", target="target", topics=topics)
    wanted = [acl for side in SIDES for acl, _ in rights_of(mirror, side, "User:mirror").grants]
    assert sorted(as_acls(script)) == sorted(wanted)
    assert max(map(len, script.splitlines())) < 1500


def test_the_script_gives_a_reason_and_names_what_to_set(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "--include", "pay.*", *WHOSE, "--role", "copy", "--side", "source").splitlines()
    assert lines == [
        "# What User:mirror needs on the source cluster (the newest rules).",
        CLOSES,
        "# Note: 'pay.*' is a regular expression, and no pattern of ACLs: the rights are for each topic that begins with "
        "'pay'.",
        "SOURCE=source:9092  # bootstrap servers",
        "SOURCE_ADMIN=source-admin.properties  # client settings of somebody who may change ACLs",
        "",
        "# READ: read records",
        "# DESCRIBE_CONFIGS: read the topics' settings",
        'kafka-acls.sh --bootstrap-server "$SOURCE" --command-config "$SOURCE_ADMIN" --add \\',
        "  --allow-principal User:mirror --topic pay --resource-pattern-type prefixed \\",
        "  --operation Read --operation DescribeConfigs",
        "",
        "# DESCRIBE: let groups follow; without it none does, and the tail says so",
        'kafka-acls.sh --bootstrap-server "$SOURCE" --command-config "$SOURCE_ADMIN" --add \\',
        "  --allow-principal User:mirror --group '*' \\",
        "  --operation Describe",
        "",
        "# DESCRIBE: see whether a list of groups lacks those without a coordinator; without it the log says that it may",
        'kafka-acls.sh --bootstrap-server "$SOURCE" --command-config "$SOURCE_ADMIN" --add \\',
        "  --allow-principal User:mirror --topic __consumer_offsets \\",
        "  --operation Describe",
        "",
        "# DESCRIBE: sizes of partitions, to split work by bytes; without it the job uses samples, and its log says so",
        'kafka-acls.sh --bootstrap-server "$SOURCE" --command-config "$SOURCE_ADMIN" --add \\',
        "  --allow-principal User:mirror --cluster \\",
        "  --operation Describe",
        "",
        "# READ: see whether topics come from the target; also where there is no ledger, because Kafka does not say so "
        "without it",
        'kafka-acls.sh --bootstrap-server "$SOURCE" --command-config "$SOURCE_ADMIN" --add \\',
        "  --allow-principal User:mirror --topic airflow-mirror.decisions \\",
        "  --operation Read",
    ]


def test_a_name_can_not_run_as_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    script = run(capsys, "--principal", "User:CN=a b;rm -rf $HOME", "--include", "orders", "--groups", "it's `me`")
    assert {acl.principal for acl in as_acls(script)} == {"User:CN=a b;rm -rf $HOME"}
    assert "it's `me`" in {acl.name for acl in as_acls(script)}


def test_json_has_the_fields_of_an_acl_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mirror.yaml"
    file.write_text("{name: flow, source: a, target: b, topics: [pay.*], offsets: mapped}")
    found = json.loads(run(capsys, "--mirror", str(file), *WHOSE, "--json", "--role", "verify", "--side", "source"))
    row = {
        "resource_type": "TOPIC", "name": "pay", "pattern_type": "PREFIXED", "principal": "User:mirror", "host": "*",
        "operation": "READ", "permission": "ALLOW", "why": ["read records"],
    }  # fmt: skip
    closes, note = found["source"]["notes"]
    assert found == {"source": {"rights": [row], "notes": [closes, note]}} and f"# Note: {closes}" == CLOSES
    assert "begins with 'pay'" in note


def test_first_acl_that_closes_an_open_cluster_is_warned_of_on_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--include", "orders", *WHOSE).splitlines().count(CLOSES) == 2


@pytest.mark.parametrize(
    ("setting", "warned"),
    [(ConfigEntry(value="false"), False), (ConfigEntry(value=None, is_sensitive=True), True), (None, False)],
)
def test_cluster_that_is_closed_by_default_needs_no_warning(
    setting: ConfigEntry | None,
    warned: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with DrivenCluster("target") as target:
        named(target, "target")
        configs = {} if setting is None else {OPEN_BY_DEFAULT: setting}
        monkeypatch.setattr(ClusterAdmin, "broker_configs", lambda _: {0: configs})
        script = run(capsys, "--target", "target", "--side", "target", "--include", "orders", *WHOSE)
    assert (CLOSES in script.splitlines()) == warned


def test_releases_that_are_given_decide(capsys: pytest.CaptureFixture[str]) -> None:
    script = run(capsys, *WHOSE, "--include", "orders", "--target-version", "3.7.1", "--role", "copy", "--side", "target")
    assert "(Kafka 3.7.1)" in script
    assert "CLUSTER_ACTION" in {acl.operation for acl in as_acls(script)}
    with pytest.raises(SystemExit, match="2"):
        main(["rights", *WHOSE, "--target-version", "newest"])


def test_without_a_principal_nothing_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--principal is missing" in run(capsys, status=2)
    assert "--principal='mirror'\n  why: no principal\n  do:  Write User:mirror." in run(
        capsys, "--principal", "mirror", status=2
    )


def test_named_clusters_tell_names_releases_and_principals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with DrivenCluster("source", version="2.8.2") as source, DrivenCluster("target") as target:
        for cluster in (source, target):
            login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.password": "s"}
            cluster.settings = {**login, "sasl.username": f"at-{cluster.role}"}
            named(cluster, cluster.role)
        for topic in ("__consumer_offsets", "orders", "orders.dlq", "users"):
            source.create(topic)
        clusters = [word for side in SIDES for word in (f"--{side}", side)]
        script = run(capsys, *clusters, "--include", "orders.*", "--role", "verify")
        reads = [acl for acl in as_acls(script) if acl.operation == "READ" and acl.name not in LEDGER]
        assert [(acl.principal, acl.name, acl.pattern_type) for acl in reads] == [
            ("User:at-source", "orders", "LITERAL"), ("User:at-source", "orders.dlq", "LITERAL"),
            ("User:at-target", "orders", "LITERAL"), ("User:at-target", "orders.dlq", "LITERAL"),
        ]  # fmt: skip
        assert f"SOURCE={source.config.bootstrap} " in script and "(Kafka 2.1)" in script
        # The source tells the names for the target alone, too; what is said wins over what is asked.
        script = run(capsys, *clusters, "--role", "verify", "--side", "target", *WHOSE, "--target-version", "4.0")
    assert [acl.name for acl in as_acls(script) if acl.operation == "READ"] == [
        "orders", "orders.dlq", "users", DECISIONS, STATE, MAPS,
    ]  # fmt: skip
    assert "What User:mirror needs on the target cluster (Kafka 4.0)" in script
