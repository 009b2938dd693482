"""Amazon MSK with IAM: a connection of Airflow's provider, a Java client's file, and what each error says."""

from __future__ import annotations

import base64
import datetime
import re
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_mirror.config import ClientConfig, load
from airflow_mirror.errors import AuthenticationFailed, ClusterUnreachable, InputError, InvalidField
from airflow_mirror.wire.login import _mechanism, log_in
from airflow_mirror.wire.settings import WireSettings
from tests.clouds import Server, assumed, own_key, refused, serving
from tests.unit.wire.test_login import Broker

THERE = "b-1.demo.abcde1.c2.kafka.eu-west-1.amazonaws.com:9098"
ROLE = "arn:aws:iam::123456789012:role/mirror"
_JAVA = "software.amazon.msk.auth.iam"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's AWS, but a key in the environment."""
    own_key(monkeypatch, tmp_path)


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
        yield server


def built(**more: str) -> WireSettings:
    given = {"bootstrap.servers": THERE, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    given |= {key.replace("_", "."): value for key, value in more.items()}
    return WireSettings.from_config(ClientConfig(given, "target"))


def signed(settings: WireSettings) -> dict[str, str]:
    """Return what a token says: parameters of its URL, and the host of it as ``host``."""
    sent = _mechanism(settings, "b1").auth_bytes().decode()
    token = sent.removeprefix("n,,\x01auth=Bearer ").rstrip("\x01")
    url = urllib.parse.urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    return {**dict(urllib.parse.parse_qsl(url.query)), "host": url.netloc}


def later(minutes: float) -> str:
    return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=minutes)).isoformat()


def test_connection_of_airflows_provider_signs_for_the_region_of_its_addresses() -> None:
    said = signed(built())
    assert said["host"] == "kafka.eu-west-1.amazonaws.com" and said["Action"] == "kafka-cluster:Connect"
    assert said["X-Amz-Credential"].split("/")[0::2] == ["AKIAEXAMPLE", "eu-west-1", "aws4_request"]
    assert said["X-Amz-Expires"] == "900" and len(said["X-Amz-Signature"]) == 64


@pytest.mark.parametrize(
    ("servers", "region"),
    [
        ("boot-abcde1.c2.kafka-serverless.us-east-1.amazonaws.com:9098", "us-east-1"),
        ("b-1.x.kafka.cn-north-1.amazonaws.com.cn:9098,b-2.x.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
    ],
)
def test_region_of_an_address(servers: str, region: str) -> None:
    assert region in signed(built(bootstrap_servers=servers))["X-Amz-Credential"]


def test_address_that_only_begins_like_one_of_msk_gets_no_signature() -> None:
    with pytest.raises(InvalidField, match="names no source of tokens"):
        built(bootstrap_servers="b-1.x.kafka.eu-west-1.amazonaws.com.example.com:9098")


def test_region_is_told_where_addresses_do_not_say_it(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"bootstrap_servers": "kafka.example.com:9098", "sasl_oauthbearer_method": "msk"}
    with pytest.raises(InvalidField, match=r"sasl\.aws\.region='': can't be told.*target cluster.*Set sasl\.aws\.region"):
        built(**own)
    assert "eu-north-1" in signed(built(**own, sasl_aws_region="eu-north-1"))["X-Amz-Credential"]
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-south-2")
    assert "eu-south-2" in signed(built(**own))["X-Amz-Credential"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"sasl_aws_region": "us-east-1"}, r"sasl\.aws\.region='us-east-1'.*are in eu-west-1.*Remove or correct"),
        ({"bootstrap_servers": f"{THERE},{THERE.replace('west', 'north')}"}, "several regions: eu-north-1, eu-west-1"),
        ({"sasl_aws_profile": "nobody"}, r"sasl\.aws\.profile='nobody'.*could not be found.*AWS_CONFIG_FILE"),
        ({"sasl_aws_role_session_name": "night"}, "has no effect.*target cluster has no sasl.aws.role.arn.*AWS_ROLE_SES"),
        ({"sasl_gcp_key": "/k.json"}, r"sasl\.gcp\.key.*has no effect.*come by msk.*method=gcp"),
        ({"sasl_oauthbearer_method": "gcp", "sasl_aws_region": "x"}, r"sasl\.aws\.region.*come by gcp.*method=msk"),
    ],
)
def test_settings_that_can_not_be_meant_are_refused_before_a_connection(more: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidField, match=says):
        built(**more)


def test_missing_extra_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer.MSKAuthTokenProvider", None)
    with pytest.raises(InputError, match=r"aws-msk-iam-sasl-signer-python.*pip install 'airflow-mirror\[msk\]'"):
        built()


def test_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(InputError, match="target cluster: no AWS credentials were found on host .*AWS_PROFILE"):
        signed(built())


def test_role_is_assumed_once_under_a_fixed_session_name_and_renewed_before_it_ends(sts: Server) -> None:
    sts.answers += [(200, assumed("ASIA1", later(5))), (200, assumed("ASIA2", later(60)))]
    settings = built(sasl_aws_role_arn=ROLE)
    assert signed(settings)["X-Amz-Credential"].startswith("ASIA1")
    settings.oauth_tokens._stale_at = settings.oauth_tokens._ends_at = 0.0
    assert signed(settings)["X-Amz-Security-Token"] == "session"
    settings.oauth_tokens._stale_at = settings.oauth_tokens._ends_at = 0.0
    signed(built(sasl_aws_role_arn=ROLE))
    assert [(one["RoleArn"], one["RoleSessionName"]) for one in sts.asked] == [(ROLE, "airflow-mirror")] * 2


def test_token_of_a_session_lives_no_longer_than_the_session_may(sts: Server) -> None:
    """botocore renews a session ten minutes before its end, and what was signed ends with the session."""
    sts.answers.append((200, assumed("ASIA1", later(60))))
    lives = [settings.oauth_tokens.callback("")[1] for settings in (built(), built(sasl_aws_role_arn=ROLE))]
    assert lives[0] - lives[1] == pytest.approx(285, abs=5)


@pytest.mark.parametrize(
    ("code", "message", "says"),
    [
        ("ExpiredToken", "The security token included in the request is expired", "Renew them .aws sso login"),
        ("SignatureDoesNotMatch", "Signature expired: 20261127T1000Z is now earlier than", "Set this host's clock"),
        ("AccessDenied", "User: arn:aws:iam::1:user/x is not authorized", "sts:AssumeRole"),
        ("InvalidClientTokenId", "The security token included in the request is invalid", "access key does not exist"),
    ],
)
def test_role_that_is_not_given_says_why_and_what_to_do(sts: Server, code: str, message: str, says: str) -> None:
    sts.answers.append((403, refused(code, message)))
    with pytest.raises(
        AuthenticationFailed, match=f"target cluster: AWS gives no credentials for {ROLE}: {code}.*{says}"
    ) as caught:
        signed(built(sasl_aws_role_arn=ROLE))
    assert "s3cr3t" not in str(caught.value)


def test_sts_that_is_not_there_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(ClusterUnreachable, match="AWS gave no credentials: EndpointConnectionError"):
        signed(built(sasl_aws_role_arn=ROLE))


@pytest.mark.parametrize(
    ("status", "code"),
    [(503, "ServiceUnavailable"), (500, "InternalFailure"), (400, "Throttling"), (400, "IDPCommunicationError")],
)
def test_sts_that_is_busy_is_asked_again(sts: Server, monkeypatch: pytest.MonkeyPatch, status: int, code: str) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    sts.answers.append((status, refused(code, "not now")))
    with pytest.raises(ClusterUnreachable, match=f"AWS gave no credentials: {code}: not now"):
        signed(built(sasl_aws_role_arn=ROLE))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("[e6d2]: Access denied", "allow kafka-cluster:Connect on this cluster.*clock"),
        ("[e6d2]: Session too short", "end within minutes.*aws sso login"),
        ("Signature expired", "Set this host's clock"),
        ("Cannot change principals during re-authentication from IAM.x to IAM.y", "AWS_ROLE_SESSION_NAME"),
    ],
)
def test_refusal_by_a_broker_says_what_was_signed_and_what_to_do(words: str, says: str) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        log_in(Broker(lambda _: b"", refusal=(58, words)), built())
    said = str(caught.value)
    assert words in said and "signed by credentials by env (access key AKIAEXAMPLE) for eu-west-1 at 2" in said
    assert re.search(says, said) and "s3cr3t" not in said


# --- the files of Java clients ---------------------------------------------------------------------------------------


OPTIONS = f'awsRoleArn="{ROLE}" awsRoleSessionName="night"'
JAVA = {
    "iam": f"""
        sasl.mechanism=AWS_MSK_IAM
        sasl.jaas.config={_JAVA}.IAMLoginModule required {OPTIONS} awsDebugCreds=true;
        sasl.client.callback.handler.class={_JAVA}.IAMClientCallbackHandler
        """,
    "oauth": f"""
        sasl.mechanism=OAUTHBEARER
        sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required {OPTIONS};
        sasl.login.callback.handler.class={_JAVA}.IAMOAuthBearerLoginCallbackHandler
        sasl.client.callback.handler.class={_JAVA}.IAMOAuthBearerLoginCallbackHandler
        """,
}


@pytest.mark.parametrize("kind", JAVA)
def test_file_of_a_java_client_becomes_the_same_login(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={THERE}\nsecurity.protocol=SASL_SSL\n{JAVA[kind]}")
    found = load(str(file), "source")
    assert found.properties == {
        "bootstrap.servers": THERE, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "msk", "sasl.aws.role.arn": ROLE, "sasl.aws.role.session.name": "night",
    }  # fmt: skip
    WireSettings.from_config(found)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"sasl.jaas.config": f"{_JAVA}.IAMLoginModule required awsRoleAccessKeyId=hidden;"},
            "awsRoleAccessKeyId of IAMLoginModule can't be kept. Give them to this host",
        ),
        ({"sasl.jaas.config": "com.example.Own required;"}, "its module is code of Java. Known: "),
        ({"sasl.client.callback.handler.class": "com.example.Own"}, "code of Java.*IAMClientCallbackHandler"),
        ({"sasl.mechanism": "AWS_MSK_IAM", "sasl.oauthbearer.method": "oidc"}, "method is not what sasl.mechanism says"),
    ],
)
def test_what_a_java_client_has_of_its_own_is_refused_by_name(given: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidField, match=says) as caught:
        ClientConfig({"bootstrap.servers": THERE, "sasl.mechanism": "OAUTHBEARER", **given}, "source")
    assert "hidden" not in str(caught.value)


def test_clients_of_librdkafka_get_a_function_in_place_of_what_they_do_not_know() -> None:
    given = {"bootstrap.servers": THERE, "sasl.mechanism": "OAUTHBEARER", "sasl.aws.region": "eu-west-1"}
    common = ClientConfig(given).common()
    assert set(common) == {"bootstrap.servers", "sasl.mechanism", "sasl.oauthbearer.method", "oauth_cb"}
    assert common["oauth_cb"]("")[0]
