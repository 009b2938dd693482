"""Tokens of clouds on a real broker that reads them: logins, their renewal, and what a refusal says."""

from __future__ import annotations

import base64
import datetime
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Signer
from botocore import auth
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from airflow_mirror.common.oauth import tokens
from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import AuthenticationFailed, MirrorError
from airflow_mirror.verify.referee import Stretch, spot_check
from airflow_mirror.wire import login
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster, cloud
from tests.clouds import Server, assumed, own_key, serving
from tests.integration import plain
from tests.integration.copying import WithLogin, assert_equal, config, create, ends, flow_of, wait_until, write
from tests.integration.test_spark_jobs import end_job, stop, submit

pytestmark = pytest.mark.faults

SESSION_S, TOKEN_S = 6.0, 15
ROLE = "arn:aws:iam::123456789012:role/mirror"
_API_VERSIONS = 18
_TOKEN = base64.b64encode(b"https://kafka.e")  # how every token of MSK begins


class Cloud(WithLogin):
    """A node that takes tokens of clouds. :ivar login: how our clients get theirs."""

    login: dict[str, str] = {"sasl.oauthbearer.method": "msk", "sasl.aws.region": cloud.REGION}

    @property
    def settings(self) -> dict[str, str]:
        where = {"bootstrap.servers": self.bootstrap_sasl, "security.protocol": "SASL_PLAINTEXT"}
        return {**where, "sasl.mechanism": "OAUTHBEARER", **self.login}


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    classes = cloud.compiled(tmp_path_factory.mktemp("classes"))
    with Cloud("managed", authorizer=True, classes=classes, overrides=cloud.overrides(SESSION_S)) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's AWS, but a key in the environment."""
    own_key(monkeypatch, tmp_path)


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """STS, whose sessions end so soon that botocore asks for another one whenever it is asked."""

    def answer(form: dict[str, str]) -> tuple[int, str]:
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=12)
        return 200, assumed("ASIA1", end.isoformat(), f"session:{form['RoleSessionName']}:{int(end.timestamp())}")

    with serving() as server:
        server.answers.append(answer)
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
        yield server


@pytest.fixture
def logins(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When this process has logged in."""
    seen: list[float] = []
    original = login.log_in

    def noted(*arguments: Any) -> int:
        lifetime_ms = original(*arguments)
        seen.append(time.monotonic())
        return lifetime_ms

    monkeypatch.setattr("airflow_mirror.wire.connection.log_in", noted)
    return seen


def refused(settings: dict[str, str]) -> str:
    cluster = WireCluster(ClientConfig(settings, "target"), timeout_s=30)
    with cluster, pytest.raises(AuthenticationFailed) as caught:
        cluster.broker_ids()
    assert "s3cr3t" not in str(caught.value)
    return str(caught.value)


def test_connection_logs_in_again_with_new_tokens_of_new_sessions_under_one_name(
    managed: Cloud, sts: Server, logins: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker ends a connection whose principal, the session's name, is another one (KIP-368)."""
    monkeypatch.setattr(Signer, "DEFAULT_TOKEN_EXPIRY_SECONDS", TOKEN_S)
    settings = {**managed.settings, "sasl.aws.role.arn": ROLE}
    with WireCluster(ClientConfig(settings, "target"), timeout_s=30) as cluster:
        assert cluster.broker_ids() == [1]
        connection, until = cluster.dedicated(1), time.monotonic() + 2.5 * TOKEN_S
        opened = len(logins)
        while time.monotonic() < until:
            assert len(connection.roundtrip(_API_VERSIONS, 0, b"")) > 100
            time.sleep(0.3)
        assert not connection.closed
        connection.close()
    assert len(logins) - opened >= 4 and len(sts.asked) >= 3
    assert {(one["RoleArn"], one["RoleSessionName"]) for one in sts.asked} == {(ROLE, "airflow-mirror")}


def test_another_principal_ends_a_connection_and_the_error_says_what_to_name(
    managed: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WireCluster(ClientConfig(managed.settings, "target"), timeout_s=30) as cluster:
        cluster.broker_ids()
        connection = cluster.dedicated(1)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOTHER")
        time.sleep(1.2)  # a broker refuses to renew within a second
        connection._renew_at = 0.0
        connection.roundtrip(_API_VERSIONS, 0, b"")  # the same credentials as at the first login
        tokens._forget()
        cluster.settings.__dict__.pop("oauth_tokens")  # as another process would begin
        time.sleep(1.2)
        connection._renew_at = 0.0
        with pytest.raises(AuthenticationFailed, match="Cannot change principals.*AKIAOTHER.*AWS_ROLE_SESSION_NAME"):
            connection.roundtrip(_API_VERSIONS, 0, b"")
        assert connection.closed


def test_wrong_region(managed: Cloud) -> None:
    said = refused({**managed.settings, "sasl.aws.region": "us-east-1"})
    assert "not 'us-east-1'" in said and said.endswith("Set sasl.aws.region to the region of the cluster.")


@pytest.mark.parametrize(
    ("minutes", "words"), [(5, "Signature not yet current"), (-20, "Signature expired")], ids=["ahead", "behind"]
)
def test_clock_that_is_off(managed: Cloud, monkeypatch: pytest.MonkeyPatch, minutes: int, words: str) -> None:
    right: Callable[..., datetime.datetime] = auth.get_current_datetime
    off = datetime.timedelta(minutes=minutes)
    monkeypatch.setattr(auth, "get_current_datetime", lambda *a, **kw: right(*a, **kw) + off)
    said = refused(managed.settings)
    assert words in said and "by this host's clock. Set this host's clock" in said


@pytest.mark.parametrize(
    ("left_s", "words", "remedy"),
    [(-5, "Access denied", "aws sts get-caller-identity"), (1, "Session too short", "aws sso login")],
)
def test_session_of_a_role_that_has_ended(
    managed: Cloud, monkeypatch: pytest.MonkeyPatch, left_s: int, words: str, remedy: str
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", f"session:night:{int(time.time()) + left_s}")
    said = refused(managed.settings)
    assert words in said and remedy in said and "access key AKIAEXAMPLE" in said


def test_token_of_google(managed: Cloud) -> None:
    made = rsa.generate_private_key(65537, 2048)
    form = serialization.PrivateFormat.PKCS8
    pem = made.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()
    with serving() as google:
        google.answers.append((200, json.dumps({"access_token": "ya29", "expires_in": 3600})))
        key = {"type": "service_account", "client_email": "m@p", "private_key": pem, "token_uri": google.url}
        content = base64.b64encode(json.dumps(key).encode()).decode()
        settings = managed.settings | {"sasl.oauthbearer.method": "gcp", "sasl.gcp.key.base64": content}
        del settings["sasl.aws.region"]
        with WireCluster(ClientConfig(settings, "target"), timeout_s=30) as cluster:
            assert cluster.broker_ids() == [1]


@pytest.fixture
def noted(managed: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where each token is noted that clients make by a function; nothing but its name reaches their processes."""
    file = tmp_path / "noted"
    login = {"oauth_cb": "tests.short_tokens.token", "sasl.oauthbearer.config": f"{TOKEN_S} {file}"}
    monkeypatch.setattr(Cloud, "login", login)
    return file


def write_meanwhile(cluster: Cluster, topic: str, rounds: int) -> None:
    for seed, began in enumerate([time.monotonic()] * rounds, 1):
        write(cluster, topic, 50, seed, "lz4", partition=seed % 2)
        time.sleep(max(0.0, began + 5 * seed - time.monotonic()))


def level(source: Cluster, target: Cluster, topic: str) -> bool:
    return ends(source, topic, 2) == ends(target, topic, 2)


def test_tail_goes_on_for_many_tokens_and_its_processes_make_their_own(
    source_cluster: Cluster, managed: Cloud, noted: Path, topic_name: str, tmp_path: Path
) -> None:
    log, before = managed.log_path(1), managed.log_path(1).stat().st_size
    create(source_cluster, topic_name, 2)
    write(source_cluster, topic_name, 200, seed=0)
    flow = [*flow_of(tmp_path, source_cluster, managed, topic_name), "--no-probe"]
    with plain.Follow(*flow, "--processes", "2", log=tmp_path / "follow.log") as follow:
        follow.says("partitions")
        write_meanwhile(source_cluster, topic_name, 9)
        tokens = Counter(noted.read_text().split())
        workers = {str(pid) for pid in follow.workers()}
        wait_until(lambda: level(source_cluster, managed, topic_name), "it has caught up")
        summary = follow.stop()
    assert (summary["partitions"], summary["errors"], summary["gone"]) == (2, [], [])
    assert_equal(source_cluster, managed, topic_name, 2)
    assert workers & tokens.keys() and max(tokens[pid] for pid in workers) >= 3, tokens
    assert "Failed re-authentication" not in log.read_text()[before:]
    # librdkafka's own clients log in by the same function.
    assert topic_name in AdminClient(config(managed).common()).list_topics(timeout=60).topics
    there = TopicPartition(topic_name, 0)
    found = spot_check(
        [Stretch(source=there, target=there, start=0, end=200)], config(source_cluster), config(managed),
        places=20, seed=1, isolation="read_committed",
    )  # fmt: skip
    assert found.records > 10 and not (found.differences or found.failed or found.left_out)


def test_spark_tasks_make_their_own_tokens_and_none_is_written_down(
    source_cluster: Cluster,
    managed: Cloud,
    noted: Path,
    topic_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create(source_cluster, topic_name, 2)
    write(source_cluster, topic_name, 200, seed=0)
    flow = [*flow_of(tmp_path, source_cluster, managed, topic_name), "--no-probe"]
    job, log, scratch = tmp_path / "job", tmp_path / "tail.log", tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))  # of checkpoints and turns
    tail = submit("streaming_tail.py", *flow, "--turn-s", "4", "--job-dir", str(job), log=log)
    try:
        wait_until(lambda: tail.poll() is not None or copied(managed, topic_name) == 200, "it copies", 300, 0.5)
        write_meanwhile(source_cluster, topic_name, 6)
        wait_until(lambda: level(source_cluster, managed, topic_name), "it has caught up")
        lines = [line for file in Path("/proc").glob("[0-9]*/cmdline") if str(job).encode() in (line := read(file))]
        written = [read(file) for here in (job, scratch) for file in here.rglob("*") if file.is_file()]
        stop(tail, log)
    finally:
        end_job(tail)
    assert_equal(source_cluster, managed, topic_name, 2)
    assert len(Counter(noted.read_text().split())) >= 2  # the driver, and at least one of its tasks' processes
    assert lines and len(written) > 5 and not any(_TOKEN in text for text in [*lines, *written, log.read_bytes()])


def copied(cluster: Cluster, topic: str) -> int:
    try:
        return sum(end for _, _, end in ends(cluster, topic, 2).values())
    except MirrorError:  # the job creates the topic
        return 0


def read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # the process has ended
        return b""
