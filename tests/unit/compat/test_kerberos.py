"""A Java client's login by Kerberos becomes a connection's; where it can't be the same one, it is refused by name."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from airflow_mirror.compat.client_keys import CONSUMER
from airflow_mirror.compat.clients import Settings, convert
from airflow_mirror.wire.kerberos.identity import SETTINGS, identity_of
from airflow_mirror.wire.settings import WireSettings

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
BY_KEYTAB = 'useKeyTab=true keyTab="/nowhere/mirror.keytab" principal="mirror@ONE.TEST"'


def converted(options: str, **more: str) -> Settings:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka"}
    given |= {key.replace("_", "."): value for key, value in more.items()}
    given |= {"sasl.jaas.config": f"{MODULE} required {options};"}
    return convert({key: value for key, value in given.items() if value}, CONSUMER)


def kerberos_of(found: Settings) -> dict[str, str]:
    assert found.problems == []
    assert {key for key in found.properties if "kerberos" in key} <= SETTINGS, "the mirror's client reads each"
    return {key.removeprefix("sasl.kerberos."): v for key, v in found.properties.items() if "kerberos" in key}


def test_a_keytab_comes_along_and_what_java_needs_besides_changes_nothing() -> None:
    found = converted(f"{BY_KEYTAB} storeKey=true doNotPrompt=true debug=false refreshKrb5Config=true renewTGT=false")
    assert kerberos_of(found) == {
        "keytab": "/nowhere/mirror.keytab", "principal": "mirror@ONE.TEST", "service.name": "kafka",
    }  # fmt: skip
    wire = WireSettings(found.properties)
    assert (wire.sasl_mechanism, wire.kerberos_name) == ("GSSAPI", "mirror")


def test_a_ticket_cache_comes_along_with_its_path_or_is_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = converted('useTicketCache=TRUE ticketCache="/tmp/krb5cc_7" principal="mirror@ONE.TEST"')
    assert kerberos_of(found) == {"ccache": "/tmp/krb5cc_7", "principal": "mirror@ONE.TEST", "service.name": "kafka"}
    monkeypatch.setenv("KRB5CCNAME", "FILE:/tmp/krb5cc_8")
    found = converted("useTicketCache=true")
    assert kerberos_of(found) == {"service.name": "kafka"}
    assert identity_of(WireSettings(found.properties).get, "source").cache == "FILE:/tmp/krb5cc_8"


def test_with_both_the_keytab_is_used_since_it_renews_itself() -> None:
    found = converted(f'{BY_KEYTAB} useTicketCache=true ticketCache="/tmp/krb5cc_7"')
    assert kerberos_of(found)["keytab"] == "/nowhere/mirror.keytab"
    assert "ccache" not in kerberos_of(found)


@pytest.mark.parametrize("key", ["", "custom"])
def test_the_service_may_be_named_by_the_module(key: str) -> None:
    found = converted(f'{BY_KEYTAB} serviceName="custom"', sasl_kerberos_service_name=key)
    assert kerberos_of(found)["service.name"] == "custom"


@pytest.mark.parametrize("order", [1, -1])
def test_two_names_of_the_service_are_one_too_many_in_either_order(order: int) -> None:
    given = {
        "sasl.kerberos.service.name": "kafka", "sasl.jaas.config": f"{MODULE} required {BY_KEYTAB} serviceName=other;"
    }  # fmt: skip
    (problem,) = convert(dict(list(given.items())[::order]), CONSUMER).problems
    assert problem.endswith("serviceName of sasl.jaas.config and sasl.kerberos.service.name differ. Remove one of them.")


def test_javas_default_mechanism_is_kerberos_here_as_well() -> None:
    found = converted(BY_KEYTAB, sasl_mechanism="")
    assert WireSettings(found.properties).sasl_mechanism == "GSSAPI"
    assert WireSettings(found.properties).kerberos_name == "mirror"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("", "would ask for a password. Set useKeyTab=true"),
        ("storeKey=true", "would ask for a password"),
        ("useKeyTab=true principal=mirror@ONE.TEST", "keyTab of Krb5LoginModule is missing"),
        ("useKeyTab=true keyTab='/k'", "principal of Krb5LoginModule is missing"),
        ("keyTab='/k' principal=mirror@ONE.TEST", "keyTab of Krb5LoginModule without useKeyTab=true"),
        (f"{BY_KEYTAB} ticketCache='/c'", "ticketCache of Krb5LoginModule without useTicketCache=true"),
        ("useTicketCache=true renewTGT=true", "renewTGT=true of Krb5LoginModule: nothing here renews a ticket cache"),
        (f"{BY_KEYTAB} isInitiator=False", "isInitiator=False of Krb5LoginModule: it would get no ticket"),
        (f"{BY_KEYTAB} useFirstPass=true", "useFirstPass=true of Krb5LoginModule: no password of another module"),
        (f"{BY_KEYTAB} credsType=both", "credsType of Krb5LoginModule can't be kept. Remove it."),
    ],
)
def test_what_cant_be_the_same_login_is_refused_by_the_options_name(options: str, says: str) -> None:
    (problem,) = converted(options).problems
    assert problem.startswith("sasl.jaas.config: ") and says in problem


def test_a_login_in_a_file_of_the_jvm_is_asked_for() -> None:
    """Else whoever's tickets the default cache has would log in."""

    def said(given: Mapping[str, str], *, whole: bool = True) -> list[str]:
        return convert(given, CONSUMER, "A.consumer.", whole=whole).problems

    (problem,) = said({"security.protocol": "SASL_PLAINTEXT"})
    assert problem.startswith("A.consumer.security.protocol=SASL_PLAINTEXT: GSSAPI, Java's default mechanism, needs ")
    assert "-Djava.security.auth.login.config" in problem and "section KafkaClient" in problem
    assert len(said({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"})) == 1
    assert said({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256"}) == []
    assert said({"security.protocol": "SSL", "sasl.mechanism": "GSSAPI"}) == []
    assert said({"security.protocol": "SASL_SSL"}, whole=False) == [], "it may be a reference that was left alone"


def test_other_keys_of_kerberos_are_without_effect_and_reach_no_client() -> None:
    found = converted(
        BY_KEYTAB, sasl_kerberos_kinit_cmd="/opt/kinit", sasl_kerberos_min_time_before_relogin="60000",
        sasl_kerberos_ticket_renew_jitter="0.1", sasl_kerberos_ticket_renew_window_factor="0.7",
    )  # fmt: skip
    assert kerberos_of(found).keys() == {"keytab", "principal", "service.name"}
    assert sum("renewed at half" in one.text or "k5start" in one.text for one in found.noticed) == 4
