"""The trial of a newcomer, as far as a machine can make it: his own Airflow, the wheel, a browser, and what the docs say.

He moves three topics with a prefix to a target in use, by SCRAM, in less than half an hour, and makes ten mistakes on the
way. What answers each names object, cause and remedy where he looks, in words that take no longer than ten seconds, and
nothing was touched. What a machine can't see is whether a person understands these words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import expect

from airflow_mirror.kafka.admin import Acl
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.kafka.users import ScramCredential
from sandbox import Cluster, clusters
from sandbox.airflow import AirflowStandalone
from tests.e2e.conftest import PATIENCE
from tests.e2e.newcomer import DAG, Person, person
from tests.e2e.own_airflow import Clock, admin_of, contents, install, readme, type_in
from tests.e2e.records import Writer, commit, create, fill, positions, read_all
from tests.integration.copying import wait_until
from tests.integration.test_quotas_and_users import SCRAM

pytestmark = [
    pytest.mark.newcomer,
    pytest.mark.in_order("the story of one trial: connections, mistakes, and the migration at last"),
]

LIMIT_S = 30 * 60
WORDS = 75  # to look for object, cause and remedy in; whoever reads each of them takes 15 seconds
USER, PASSWORD = "mover", "mover-long-secret"
MOVED = ("orders", "payments", "users")
FORM = {"topics": "\n".join(MOVED), "policy": "With a prefix", "source_alias": "dc1"}
PLAN = {**FORM, "mode": "Plan only"}
AT_REST = {("orders", 0): 17, ("orders", 2): 3}
# Nobody may what no rule lets him, as on clusters of somebody who logs in by SCRAM.
CLOSED = SCRAM | {"allow.everyone.if.no.acl.found": "false", "super.users": "User:admin;User:ANONYMOUS"}


def rule(kind: str, name: str, principal: str, operation: str) -> Acl:
    return Acl(
        resource_type=kind, name=name, pattern_type="LITERAL", principal=principal, host="*", operation=operation,
        permission="ALLOW",
    )  # fmt: skip


@dataclass
class Trial:
    """All of it. :ivar answers: to each mistake, as it was seen."""

    source: Cluster
    target: Cluster
    airflow: AirflowStandalone
    person: Person
    clock: Clock
    answers: dict[str, str] = field(default_factory=dict)

    def type(self, text: str) -> str:
        """Type a line into a shell in which the environment is active; its status may be any."""
        return type_in(self.airflow.home, f"{text} || true", self.airflow.environment())

    def rights(self, acl: Acl, *, granted: bool) -> None:
        """Have the source's operator grant a right, or take it away."""
        with admin_of(self.source) as admin:
            (admin.create_acls if granted else admin.delete_acls)([acl], unfenced)
            wait_until(lambda: (acl in admin.describe_acls()) is granted, "the rule is known")

    def plan(self, **fields: str) -> str:
        """Trigger the mode ``plan``, and return how the log of the task looks."""
        run = self.person.trigger(**{**PLAN, **fields})
        assert self.airflow.wait(DAG, run, timeout_s=800) == "failed"
        return self.person.read_error(run, "plan")


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def ends() -> Iterator[tuple[Cluster, Cluster]]:
    """His clusters: both ask who comes; the target is in use, and has a topic of the name of one that is to move."""
    with clusters("newcomer-source", "newcomer-target", authorizer=True, overrides=CLOSED, ready_timeout_s=400) as both:
        source, target = both
        secret = ScramCredential(mechanism="SCRAM-SHA-512", iterations=4096, password=PASSWORD)
        for cluster in both:
            with admin_of(cluster) as admin:
                admin.create_scram_users({USER: [secret]}, unfenced)
        with admin_of(source) as admin:
            admin.create_acls([rule("TOPIC", "orders", "User:alice", "WRITE")], unfenced)
        for topic in (*MOVED, "audit"):
            create(source.admin_properties(), topic, 3)
            fill(source.admin_properties(), topic, 3000)
        commit(source.admin_properties(), "billing", AT_REST)
        for topic in ("inventory", "orders"):
            create(target.admin_properties(), topic, 3)
            fill(target.admin_properties(), topic, 500)
        yield source, target


@pytest.fixture(scope="module")
def trial(
    clock: Clock, ends: tuple[Cluster, Cluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Trial]:  # fmt: skip
    python, home = install(tmp_path_factory.mktemp("newcomer"), clock), tmp_path_factory.mktemp("airflow")
    (home / "dags").mkdir()
    # Two settings of Airflow's own are his. The others let a busy machine take its time.
    his = {"AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True", "AIRFLOW__CORE__TEST_CONNECTION": "Enabled"}
    airflow = AirflowStandalone(home, dags=home / "dags", env={**PATIENCE, **his}, python=python)
    try:
        with clock("start Airflow"):
            airflow.start(900)
        told = type_in(home, "python -c 'import airflow_mirror; print(airflow_mirror.__file__)'", airflow.environment())
        assert told.startswith(str(python.parents[1])), "he has nothing but the wheel"
        with clock("the DAG"):
            type_in(home, readme("echo 'from", "airflow dags"), airflow.environment())
        with person(airflow) as he:
            yield Trial(*ends, airflow, he, clock)
    finally:
        airflow.stop()


# --- before there is anything -----------------------------------------------------------------------------------------


def understood(trial: Trial, mistake: str, said: str, *names: str) -> None:
    """Assert that an answer has what it must in its first three lines, and is read in ten seconds."""
    trial.answers[mistake] = said
    lines = re.sub(r"\n {3,}(?!why|do)", " ", said.strip())  # folded, where the panel ends
    first = "\n".join([line for line in lines.splitlines() if line.strip(" *")][:3])
    print(f"newcomer: {mistake}: {len(said.split())} words\n{said}", flush=True)
    assert names[0] in first, f"the object is what is read first: {said}"
    assert [name for name in names[1:] if not re.search(name, first)] == [], said
    assert len(said.split()) <= WORDS, said
    assert PASSWORD not in said


@pytest.fixture(autouse=True)
def nothing_is_touched(request: pytest.FixtureRequest, ends: tuple[Cluster, Cluster]) -> Iterator[None]:
    """Of each mistake."""
    if "mistake" not in request.node.name:
        yield
        return
    before = contents(ends)
    yield
    assert contents(ends) == before


def test_mistake_an_option_is_misspelt(trial: Trial) -> None:
    said = trial.type("airflow-mirror rights --inclued orders --principal User:mover")
    understood(trial, "an option is misspelt", said, "--inclued", "no option", "nearest known is '--include'")


def test_the_mirrors_rights_are_printed_and_granted(trial: Trial) -> None:
    """By whoever runs the clusters: the command's script is run by others (tests/integration/test_rights.py)."""
    words = "--name migration --include orders --include payments --include users --policy prefix --source-alias dc1"
    rights = json.loads(trial.type(f"airflow-mirror rights {words} --principal User:{USER} --json"))
    for side, cluster in (("source", trial.source), ("target", trial.target)):
        wanted = [Acl(**{k: v for k, v in one.items() if k != "why"}) for one in rights[side]["rights"]]
        with admin_of(cluster) as admin:
            admin.create_acls(wanted, unfenced)
            wait_until(lambda admin=admin, wanted=wanted: {*wanted} <= {*admin.describe_acls()}, "the ACLs are known")


def test_mistake_tls_is_left_on(trial: Trial) -> None:
    with trial.clock("connections"):
        trial.person.connect("kafka_source", trial.source.bootstrap_sasl, USER, "not-that-one")
        trial.person.connect("kafka_target", trial.target.bootstrap_sasl, USER, PASSWORD)
        trial.person.turn_tls_off("kafka_target")
    with trial.clock("mistake: TLS"):
        said = trial.plan()
    understood(trial, "TLS is left on", said, "source cluster", "TLS handshake", "security.protocol", "Encrypt")


def test_mistake_the_password_is_wrong(trial: Trial) -> None:
    with trial.clock("mistake: password"):
        trial.person.turn_tls_off("kafka_source")
        said = trial.plan()
    understood(trial, "the password is wrong", said, "source cluster", "invalid credentials", "Check .*password")


def test_mistake_the_password_is_wrong_for_the_command_as_well(trial: Trial) -> None:
    said = trial.type("airflow connections test kafka_source")
    said = said[said.index("Connection failed!") :]
    understood(trial, "a connection is tried", said, "refused to authenticate", "invalid credentials", "Check .*password")
    trial.person.correct("kafka_source", PASSWORD)
    assert "Connection success!" in trial.type("airflow connections test kafka_source")


# --- in the form ------------------------------------------------------------------------------------------------------


def test_mistake_no_topic_is_given(trial: Trial) -> None:
    trial.person.open_form()
    field = trial.person.page.get_by_role("group").filter(has=trial.person.page.locator("#element_topics"))
    said = field.last.inner_text()
    expect(trial.person.page.get_by_role("dialog").get_by_role("button", name="Trigger", exact=True)).to_be_disabled()
    understood(trial, "no topic is given", said, "Topics", "This field is required", "names, or regular expressions")


MISTAKES = {
    "a connection is misspelt": (
        {"source": "kafka_sorce"},
        ("kafka_sorce", "no .*connection|does not exist|isn't defined"),
    ),
    "both ends are one": ({"target": "kafka_source"}, ("kafka_source", "same|both|one cluster|differ")),
    "a topic is misspelt": ({"topics": "orders\nuserz"}, ("userz", "no such topic", "nearest known is 'users'")),
    "nothing matches": ({"topics": "order[.].*"}, ("order[.].*", "match", "orders")),
    "the prefix is none": ({"source_alias": "dc1/"}, ("dc1/", "no topic may be called so", "Use letters, digits")),
    "the prefix is forgotten": ({"policy": "The same"}, ("'orders'", "target cluster", "lacks", "Add the ACL")),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_in_the_form(trial: Trial, mistake: str) -> None:
    fields, names = MISTAKES[mistake]
    with trial.clock(f"mistake: {mistake}"):
        said = trial.plan(**fields)
    understood(trial, mistake, said, *names)


def test_a_name_that_is_taken_is_left_alone(trial: Trial) -> None:
    theirs = trial.target.admin_properties()
    create(theirs, "dc1.users", 3)
    fill(theirs, "dc1.users", 50)
    before = contents([trial.target])
    try:
        with trial.clock("mistake: a name is taken"):
            said = trial.plan()
        assert contents([trial.target]) == before
    finally:
        with admin_of(trial.target) as admin:
            admin.delete_topics(["dc1.users"], unfenced)
            wait_until(lambda: "dc1.users" not in admin.topic_names(), "they have cleaned up")
    understood(trial, "a name is taken", said, "dc1.users", "holds data that this mirror did not write", "another prefix")


def test_a_right_that_the_cutover_lacks_is_said_by_the_plan(trial: Trial) -> None:
    """It warns, as somebody may grant it while the copy runs; the preview blocks it. The first plan begins the ledger."""
    alter = rule("CLUSTER", "kafka-cluster", f"User:{USER}", "ALTER")
    trial.rights(alter, granted=False)
    try:
        with trial.clock("mistake: a right lacks"):
            run = trial.person.trigger(**PLAN)
            assert trial.airflow.wait(DAG, run, timeout_s=800) == "success"
    finally:
        trial.rights(alter, granted=True)
    said = trial.person.find_in_log(run, "plan", "cutover_fence")
    understood(trial, "the fence may not be raised", said, "cutover_fence", "lacks Alter", "kafka-acls .*--cluster")


# --- the migration ----------------------------------------------------------------------------------------------------


def test_three_topics_move_with_a_prefix_and_are_seen_to(trial: Trial) -> None:
    he, airflow, clock = trial.person, trial.airflow, trial.clock
    theirs = {topic: read_all(trial.target.admin_properties(), topic) for topic in ("inventory", "orders")}
    with clock("the plan"):
        run = he.trigger(**PLAN)
        assert airflow.wait(DAG, run, timeout_s=800) == "success"
    he.open_form()
    he.fill({"mode": "Migrate", "max_bytes_per_second": "100000", **FORM})
    he.page.locator("#element_policy").evaluate("it => it.scrollIntoView({block: 'center'})")
    he.shoot("form_migration")
    with Writer(trial.source.properties("alice"), "orders", per_s=20) as writer:
        with clock("until the cutover is asked for"):
            run = he.start()
            airflow.wait_for_task(DAG, run, "bulk_copy", ("running",), timeout_s=800)
            lag_and_eta(he)
            airflow.wait_for_task(DAG, run, "approve_cutover", ("awaiting_input",), timeout_s=900)
            he.show_graph(run)
            airflow._wait_until_parked(DAG, run, "approve_cutover")
        with clock("the cutover"):
            he.approve(run)
            fence(he)
            airflow.wait_for_task(DAG, run, "cutover", ("success",), timeout_s=900)
    assert writer.refused > 0
    for topic in MOVED:
        moved = read_all(trial.source.admin_properties(), topic)
        assert len(moved) >= 3000 and read_all(trial.target.admin_properties(), f"dc1.{topic}") == moved
    stands = {(f"dc1.{topic}", p): offset for (topic, p), offset in AT_REST.items()}
    assert positions(trial.target.admin_properties(), "billing", {"dc1.orders": 3}) == stands
    assert theirs == {topic: read_all(trial.target.admin_properties(), topic) for topic in theirs}
    with admin_of(trial.target) as admin:
        there = {name for name in admin.topic_names() if not name.startswith(("_", "airflow-mirror."))}
    assert there == {"inventory", *theirs, *(f"dc1.{topic}" for topic in MOVED)}


def lag_and_eta(he: Person) -> None:
    """Look at the page while the copy runs: what is behind, at which rate, and when that will be done."""
    he.go("plugin/mirrors")
    row = he.page.get_by_role("row").filter(has_text="migration")
    expect(row).to_contain_text(re.compile(r"copying \d+ %.*[\d.]+ [kKM]B/s.*\d+ (s|min)", re.DOTALL))
    print("newcomer: the page says", row.inner_text().split(), flush=True)
    he.shoot("trial_copy")
    row.get_by_role("link", name="migration").click()
    expect(he.page.get_by_text("done in")).to_be_visible()
    expect(he.page.get_by_text(re.compile(r"\d+ partitions"))).to_be_visible()


def fence(he: Person) -> None:
    """Look at the page while nobody may write: the seconds that are left stand there."""
    he.go("plugin/mirrors")
    expect(he.page.get_by_text(re.compile("source fenced|Source FENCED")).first).to_be_visible()


def test_the_trial_took_less_than_half_an_hour(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    spent = sum(trial.clock.phases.values())
    with capsys.disabled():
        for phase, seconds in trial.clock.phases.items():
            print(f"{seconds:7.0f} s  {phase}")
        print(f"{spent:7.0f} s  all of it; {len(trial.answers)} mistakes")
    assert len(trial.answers) >= 8
    assert spent < LIMIT_S
