"""TLS and SASL against real listeners: who gets in, who is turned away, and what the message says."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import AuthenticationFailed, InputError, MirrorError, MissingRight, TryAgain
from airflow_mirror.jobs.runner.java import find_java
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import ConnectionLost
from airflow_mirror.wire.transactions import TransactionClient, write_txn_markers
from sandbox import Cluster
from sandbox.certificates import Authority
from sandbox.cluster import start_all, stop_all
from tests.integration.copying import wait_until

pytestmark = pytest.mark.faults

TOPIC = "secured"
TP = TopicPartition(TOPIC, 0)
_LISTENER = "listener.name.sasl_plaintext"
_SESSION_S = 20.0  # renewed at 17 s: what is sent just before arrives before the end, also on a busy machine
_SCRAM = "org.apache.kafka.common.security.scram"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_UNSECURED = "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_CLAIM = 'unsecuredLoginStringClaim_sub="broker"'  # the module wants one, although brokers never log in this way


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("test authority")


@pytest.fixture(scope="module")
def secured(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Cluster]]:
    """Two clusters whose second listener speaks SASL_SSL on one and SSL with client certificates on the other."""
    tls = authority.broker_settings(tmp_path_factory.mktemp("tls"))
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,SASL_PLAINTEXT:"
    sasl = Cluster(
        "sasl",
        authorizer=True,
        overrides=tls
        | {
            "listener.security.protocol.map": protocols + "SASL_SSL",
            f"{_LISTENER}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
            f"{_LISTENER}.scram-sha-512.sasl.jaas.config": f"{_SCRAM}.ScramLoginModule required;",
            f"{_LISTENER}.oauthbearer.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required {_CLAIM};",
            f"{_LISTENER}.oauthbearer.sasl.server.callback.handler.class": f"{_OAUTH}.{_UNSECURED}",
            f"{_LISTENER}.plain.connections.max.reauth.ms": str(int(_SESSION_S * 1000)),
        },
    )
    certificates = Cluster(
        "certificates",
        authorizer=True,
        overrides=tls
        | {
            "listener.security.protocol.map": protocols + "SSL",
            "ssl.client.auth": "required",
            "super.users": "User:admin;User:CN=broker",
        },
    )
    try:
        start_all([sasl, certificates])
        for cluster in (sasl, certificates):
            admin = AdminClient(cluster.properties())
            admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
            wait_until(lambda admin=admin: TOPIC in admin.list_topics(timeout=60).topics, f"{cluster.name} knows it")
        yield {"sasl": sasl, "certificates": certificates}
    finally:
        stop_all([sasl, certificates])


def properties(cluster: Cluster, authority: Authority, **extra: str) -> dict[str, str]:
    """Settings of user ``mirror`` on the SASL_SSL listener; ``_`` in a keyword stands for ``.``."""
    return {
        "bootstrap.servers": cluster.bootstrap_sasl,
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": authority.certificate,
        "sasl.mechanism": "PLAIN",
        "sasl.username": "mirror",
        "sasl.password": "mirror-secret",
    } | {key.replace("_", "."): value for key, value in extra.items()}


def opened(settings: dict[str, str]) -> WireCluster:
    return WireCluster(ClientConfig(settings, "target"), timeout_s=90)


def fails(settings: dict[str, str], error: type[MirrorError], said: str) -> str:
    cluster = WireCluster(ClientConfig(settings, "target"), timeout_s=1)
    cluster._request_timeout_s = 30  # calls give up soon, but the first handshake of a cold broker may take seconds
    with cluster, pytest.raises(MirrorError, match=said) as caught:
        cluster.refresh([TOPIC])
    assert isinstance(caught.value, error)
    assert "secret" not in str(caught.value)
    print(caught.value)  # shown when the test fails
    return str(caught.value)


# --- SASL over TLS ---------------------------------------------------------------------------------------------------


def test_plain_over_tls(secured: dict[str, Cluster], authority: Authority) -> None:
    with opened(properties(secured["sasl"], authority)) as cluster:
        assert cluster.log_ends([TP]) == {TP: 0}


@pytest.mark.parametrize("user", ["carol", "odd=na,me"])
def test_scram(secured: dict[str, Cluster], authority: Authority, user: str) -> None:
    cluster, mechanism = secured["sasl"], "SCRAM-SHA-512"
    admin = AdminClient(cluster.properties())
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    upsert = UserScramCredentialUpsertion(user, info, b"carol-secret")
    admin.alter_user_scram_credentials([upsert])[user].result()
    settings = properties(cluster, authority, sasl_mechanism=mechanism, sasl_username=user, sasl_password="carol-secret")

    def logs_in() -> bool:
        try:
            with opened(settings) as wire:
                assert wire.log_ends([TP]) == {TP: 0}
        except AuthenticationFailed:  # the controller knows the new user, the broker hears of it later
            return False
        return True

    wait_until(logs_in, "the broker knows the user", poll_s=0.2)
    wrong = settings | {"sasl.password": "not the secret"}
    assert user not in fails(wrong, AuthenticationFailed, f"{mechanism}: Authentication failed.*invalid credentials")


def test_an_unsecured_oauth_token(secured: dict[str, Cluster], authority: Authority) -> None:
    settings = properties(secured["sasl"], authority, sasl_mechanism="OAUTHBEARER") | {
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": "principal=dave lifeSeconds=60",
    }
    with opened(settings) as cluster:
        assert cluster.log_ends([TP]) == {TP: 0}


def test_a_wrong_password_is_said_at_once(secured: dict[str, Cluster], authority: Authority) -> None:
    settings = properties(secured["sasl"], authority, sasl_password="wrong")
    fails(settings, AuthenticationFailed, "target cluster: .*PLAIN: Authentication failed")


def test_unsupported_sasl_mechanism_error_names_the_supported_ones(
    secured: dict[str, Cluster], authority: Authority
) -> None:
    settings = properties(secured["sasl"], authority, sasl_mechanism="SCRAM-SHA-256")
    fails(settings, AuthenticationFailed, "SASL mechanisms .*SCRAM-SHA-512.*not SCRAM-SHA-256")


def test_a_listener_that_knows_no_sasl(secured: dict[str, Cluster], authority: Authority) -> None:
    settings = properties(secured["sasl"], authority, security_protocol="SASL_PLAINTEXT")
    fails(settings | {"bootstrap.servers": secured["sasl"].bootstrap}, AuthenticationFailed, "SaslHandshake answered")


def test_a_certificate_of_an_unknown_authority_is_not_trusted(secured: dict[str, Cluster]) -> None:
    settings = properties(secured["sasl"], Authority("somebody else"))
    fails(settings, InputError, "certificate.*ssl.ca.location")
    with opened(settings | {"enable.ssl.certificate.verification": "false"}) as cluster:
        assert cluster.log_ends([TP]) == {TP: 0}


def test_a_host_that_the_certificate_does_not_name(secured: dict[str, Cluster], authority: Authority) -> None:
    port = secured["sasl"].bootstrap_sasl.rpartition(":")[2]
    settings = properties(secured["sasl"], authority) | {"bootstrap.servers": f"localhost:{port}"}
    fails(settings, InputError, "localhost.*ssl.endpoint.identification.algorithm")
    with opened(settings | {"ssl.endpoint.identification.algorithm": "none"}) as cluster:
        assert cluster.broker_ids() == [1]


@pytest.mark.parametrize(
    ("listener", "protocol", "said"),
    [
        ("tls", "PLAINTEXT", "TLS"),
        ("tls", "SASL_PLAINTEXT", "TLS"),
        ("tls", "SSL", r"\(asked: Metadata\)\. A SASL listener closes .*security.protocol"),
        ("plain", "SSL", "security.protocol"),
        ("plain", "SASL_SSL", "security.protocol"),
    ],
)
def test_wrong_protocol_for_a_listener_names_the_setting(
    secured: dict[str, Cluster], authority: Authority, listener: str, protocol: str, said: str
) -> None:
    cluster = secured["sasl"]
    settings = properties(cluster, authority, security_protocol=protocol)
    settings["bootstrap.servers"] = cluster.bootstrap_sasl if listener == "tls" else cluster.bootstrap
    fails(settings, TryAgain, said)


def test_session_is_renewed_with_requests_in_flight(secured: dict[str, Cluster], authority: Authority) -> None:
    """It is renewed before it ends, idle or not; the broker closes one that is not renewed."""
    with opened(properties(secured["sasl"], authority)) as cluster:
        connection = cluster.dedicated(cluster.leader(TP).node_id)
        first = connection._renew_at
        assert first <= time.monotonic() + _SESSION_S  # a plan: a machine that stands still changes nothing of it
        waiting = connection.send(18, 0, [b""])
        for _ in range(2):
            time.sleep(1.2)  # a broker refuses to renew within a second
            following = connection.send(18, 0, [b""])
            connection._renew_at = 0  # the session's end is near
            assert len(connection._in_flight) == 2
            renewing = connection.send(18, 0, [b""])
            assert connection._renew_at > first
            first = connection._renew_at
            assert all(len(connection.receive(sent)) > 100 for sent in (waiting, following))
            waiting = renewing
        assert len(connection.receive(waiting)) > 100
        connection.close()
        # The broker is serious about it: an idle session that ended is renewed too, one that is not renewed is closed.
        idle, stale = (cluster.dedicated(1) for _ in range(2))
        stale._renew_at = float("inf")
        time.sleep(_SESSION_S + 0.2)
        assert len(idle.roundtrip(18, 0, b"")) > 100
        with pytest.raises(ConnectionLost, match="closed the connection"):
            stale.roundtrip(18, 0, b"")
        stale.close()
        idle.close()


# --- client certificates ---------------------------------------------------------------------------------------------


def mutual(cluster: Cluster, authority: Authority) -> dict[str, str]:
    return {
        "bootstrap.servers": cluster.bootstrap_sasl,
        "security.protocol": "SSL",
        "ssl.ca.pem": authority.certificate,
    }


def test_a_client_certificate_from_files_with_an_encrypted_key(
    secured: dict[str, Cluster], authority: Authority, tmp_path: Path
) -> None:
    client = authority.issue("client", password="key-secret")
    for name, text in (("ca", authority.certificate), ("cert", client.certificate), ("key", client.key)):
        (tmp_path / name).write_text(text)
    settings = {
        "bootstrap.servers": secured["certificates"].bootstrap_sasl,
        "security.protocol": "ssl",
        "ssl.ca.location": str(tmp_path / "ca"),
        "ssl.certificate.location": str(tmp_path / "cert"),
        "ssl.key.location": str(tmp_path / "key"),
        "ssl.key.password": "key-secret",
    }
    with opened(settings) as cluster:
        assert cluster.log_ends([TP]) == {TP: 0}
    with (
        pytest.raises(MirrorError, match=r"ssl.key.password") as caught,
        opened(settings | {"ssl.key.password": "wrong-secret"}) as cluster,
    ):
        cluster.refresh()
    assert "wrong-secret" not in str(caught.value)


def test_a_client_certificate_from_texts(secured: dict[str, Cluster], authority: Authority) -> None:
    client = authority.issue("client")
    settings = mutual(secured["certificates"], authority) | {
        "ssl.certificate.pem": client.certificate,
        "ssl.key.pem": client.key.replace("\n", "\\n"),
    }
    with opened(settings) as cluster:
        assert cluster.log_ends([TP]) == {TP: 0}


@pytest.mark.parametrize("kind", ["", "-J-Dkeystore.pkcs12.legacy=true"], ids=["17", "8"])
def test_a_client_certificate_from_javas_stores(
    secured: dict[str, Cluster], authority: Authority, tmp_path: Path, kind: str
) -> None:
    """Written by keytool, as it does now and did in Java 8; librdkafka, which can't read the latter, gets them as PEM."""
    client = authority.issue("client")
    for name, text in (("ca.pem", authority.certificate), ("client.pem", client.key + client.certificate)):
        (tmp_path / name).write_text(text)
    keytool = f"{find_java().executable.resolve().parent / 'keytool'} {kind}"
    to_p12 = "openssl pkcs12 -export -in client.pem -out client.p12 -passout pass:secret1"
    subprocess.run(to_p12.split(), cwd=tmp_path, check=True)
    for command in (
        f"{keytool} -importkeystore -srckeystore client.p12 -srcstorepass secret1 -destkeystore k.jks -deststorepass",
        f"{keytool} -importcert -noprompt -alias ca -file ca.pem -keystore t.jks -storepass",
    ):
        subprocess.run([*command.split(), "secret1"], cwd=tmp_path, check=True, capture_output=True)
    settings = {
        "bootstrap.servers": secured["certificates"].bootstrap_sasl,
        "security.protocol": "SSL",
        "ssl.truststore.location": str(tmp_path / "t.jks"),
        "ssl.truststore.password": "secret1",
        "ssl.keystore.location": str(tmp_path / "k.jks"),
        "ssl.keystore.password": "secret1",
    }
    with opened(settings) as cluster:
        assert cluster.log_ends([TP]) == {TP: 0}
    assert TOPIC in AdminClient(ClientConfig(settings).common()).list_topics(timeout=60).topics


def test_missing_client_certificate_is_reported_as_the_clients_fault(
    secured: dict[str, Cluster], authority: Authority
) -> None:
    fails(mutual(secured["certificates"], authority), InputError, "client certificate")


# --- rights ----------------------------------------------------------------------------------------------------------


Deny = Callable[[ResourceType, str, AclOperation], None]


@pytest.fixture
def deny(secured: dict[str, Cluster], authority: Authority) -> Iterator[Deny]:
    """Yield a function that denies user mirror an operation on a resource until the test ends."""
    # The super user: an ACL on the cluster resource shuts out everybody else, also from lifting it.
    settings = properties(secured["sasl"], authority, sasl_username="admin", sasl_password="admin-secret")
    admin = AdminClient(settings)

    def act(kind: ResourceType, name: str, operation: AclOperation) -> None:
        literal, no = ResourcePatternType.LITERAL, AclPermissionType.DENY
        binding = AclBinding(kind, name, literal, "User:mirror", "*", operation, no)
        admin.create_acls([binding])[binding].result()
        wait_until(lambda: binding in admin.describe_acls(everything).result(), "the broker has read the rule")

    any_pattern, any_permission = ResourcePatternType.ANY, AclPermissionType.ANY
    everything = AclBindingFilter(ResourceType.ANY, None, any_pattern, None, None, AclOperation.ANY, any_permission)
    yield act
    admin.delete_acls([everything])[everything].result()
    wait_until(lambda: not admin.describe_acls(everything).result(), "the broker has dropped the rules")


def test_each_missing_right_is_named_with_the_acl_to_add(
    secured: dict[str, Cluster], authority: Authority, deny: Deny
) -> None:
    with opened(properties(secured["sasl"], authority)) as cluster:
        client = TransactionClient(cluster, "allowed-tx")
        producer_id, epoch = client.init(60_000)
        cluster.refresh([TOPIC])
        deny(ResourceType.TOPIC, TOPIC, AclOperation.DESCRIBE)
        with pytest.raises(MissingRight, match="User:mirror --operation Delete --topic secured"):
            cluster.delete_records({TP: 0}, unfenced)
        with pytest.raises(MissingRight, match="User:mirror --operation Write --topic secured"):
            client.write_marker(TP, producer_id, epoch)
        with pytest.raises(MissingRight, match="User:mirror --operation Describe --topic secured"):
            cluster.log_starts([TP])  # log ends are also told to whom the cluster allows ClusterAction
        with pytest.raises(MissingRight, match="User:mirror --operation Read --topic secured"):
            cluster.describe_producers([TP])
        deny(ResourceType.TRANSACTIONAL_ID, "mirror-tx", AclOperation.WRITE)
        with pytest.raises(MissingRight, match="User:mirror --operation (Write|Describe) --transactional-id mirror-tx"):
            TransactionClient(cluster, "mirror-tx").init(60_000)


def test_direct_markers_without_cluster_rights(secured: dict[str, Cluster], authority: Authority, deny: Deny) -> None:
    with opened(properties(secured["sasl"], authority)) as cluster:
        deny(ResourceType.BROKER, "kafka-cluster", AclOperation.ALTER)
        with pytest.raises(MissingRight, match=r"Alter \(or ClusterAction\) on cluster.* --operation Alter --cluster"):
            write_txn_markers(cluster, TP, 4000, 0, 3)
        assert cluster.log_ends([TP]) == {TP: 0}
