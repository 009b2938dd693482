"""Fields of a Mirror for the keys of a flow, and settings of a connection for those of its clients."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mirror.compat.declared import Given
from airflow_mirror.compat.flows import Flow, become
from airflow_mirror.compat.providers import Providers
from airflow_mirror.errors import InputError
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.config_diff import diff
from airflow_mirror.plan.configs import HELD_OPEN, Rules, kept, overrides
from tests.unit.plan.builders import configs

ADDRESSES = {"source.cluster.bootstrap.servers": "a:1", "target.cluster.bootstrap.servers": "b:1"}


def became(**keys: str) -> Flow:
    given = ADDRESSES | {key.replace("__", "."): value for key, value in keys.items()}
    return of(given)


def of(given: dict[str, str], *, secrets: bool = True) -> Flow:
    providers, _ = Providers.declared(given)
    return become({key: Given(v, f"A->B.{key}") for key, v in given.items()}, "A", "B", providers, secrets=secrets)


def test_a_flow_without_keys_goes_on_as_mirrormaker_does() -> None:
    flow = became()
    assert flow.problems == []
    mirror = Mirror.from_dict({"name": "m", "source": "a", "target": "b", **flow.fields})
    assert mirror.naming.target_topic("orders") == "A.orders"
    assert not mirror.sync_groups and mirror.sync_configs and mirror.sync_acls and mirror.sync_topics
    # MirrorMaker's target deletes by a retention that follows the source's: ours stays as small.
    assert (mirror.sync_log_starts, mirror.log_start_delay_s) == (True, 60.0)
    assert (mirror.topic_interval_s, mirror.replication_factor, mirror.isolation) == (600.0, 2, "read_uncommitted")
    left_out = ("mm2-offsets.A.internal", "x.replica", "__x", "mm2x.internal")
    assert not any(map(mirror.selects_topic, left_out))
    assert mirror.selects_topic("my-internal")
    assert [mirror.selects_group(g) for g in ("app", "connect-x", "console-consumer-1", "airflow-mirror:x:starts")] == [
        True, False, False, False,
    ]  # fmt: skip
    assert mirror.start == "earliest"
    left_alone = {
        "follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms", "log.message.timestamp.before.max.ms",
        "log.message.timestamp.after.max.ms", "message.timestamp.type", "unclean.leader.election.enable",
        "min.insync.replicas",
    }  # fmt: skip
    assert set(mirror.exclude_configs) == set(mirror.keep_configs) == left_alone
    assert all(map(mirror.excludes_config, left_alone)) and not mirror.excludes_config("retention.ms")


def test_names_are_those_of_the_files_policy() -> None:
    def name(**keys: str) -> str:
        mirror = Mirror.from_dict({"name": "m", "source": "a", "target": "b", **became(**keys).fields})
        return mirror.naming.target_topic("orders")

    package = "org.apache.kafka.connect.mirror."
    assert name() == name(replication__policy__class=f"{package}DefaultReplicationPolicy") == "A.orders"
    assert name(replication__policy__separator="-") == "A-orders"
    assert name(replication__policy__class=f"{package}IdentityReplicationPolicy") == "orders"


_MODULE = "org.apache.kafka.common.security"
_KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true"


@pytest.mark.parametrize(
    ("login", "is_known"),
    [
        ({}, True),
        ({"security.protocol": "SSL"}, True),
        ({"security.protocol": "ssl", "ssl.keystore.location": "${env:STORE}"}, False),
        ({"security.protocol": "SSL", "ssl.keystore.key": "${env:STORE}"}, False),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, False),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}, False),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": "${env:STORE}",
          "ssl.keystore.location": "${env:STORE}"}, True),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
          "sasl.jaas.config": f'{_MODULE}.plain.PlainLoginModule required username="m" password="p";'}, True),
        ({"security.protocol": "SASL_SSL", "sasl.jaas.config": f"{_KERBEROS};"}, False),
        ({"security.protocol": "SASL_SSL", "sasl.jaas.config": f'{_KERBEROS} principal="m@X";'}, True),
        ({"security.protocol": "SASL_SSL", "sasl.jaas.config": "${env:STORE}"}, True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("role", ["source", "target"])
def test_rights_follow_where_a_connection_says_which_ones_are_the_mirrors_own(
    role: str, login: dict[str, str], is_known: bool
) -> None:
    """Neither a plan nor a tail would begin, and no key of the file could name the principal. No secret is needed."""
    given = ADDRESSES | {
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        **{f"{role}.cluster.{key}": value for key, value in login.items()},
    }
    absent = of(given, secrets=False)
    assert (absent.problems, absent.fields["sync_acls"]) == ([], is_known)
    told = [one for one in absent.noticed if one.key == "A->B.sync.topic.acls.enabled (absent)"]
    assert bool(told) == (not is_known) and all(one.changed and f"the {role};" in one.text for one in told)
    asked = of({**given, "sync.topic.acls.enabled": "true"}, secrets=False)
    assert [line.partition(": ")[0] for line in asked.problems] == ["A->B.sync.topic.acls.enabled"] * (not is_known)
    assert all("Say false" in line and "own_principals" in line for line in asked.problems)
    assert of({**given, "sync.topic.acls.enabled": "false"}, secrets=False).problems == []


def test_traces_are_written_unless_the_file_says_no() -> None:
    mirror = Mirror.from_dict({"name": "m", "source": "a", "target": "b", **became().fields})
    assert mirror.traces == ("heartbeats", "checkpoints", "offset-syncs")  # RemoteClusterUtils answers, as there
    assert (mirror.heartbeat_interval_s, mirror.checkpoint_interval_s) == (1.0, 60.0)
    assert became(emit__heartbeats__enabled="yes").problems == [
        "A->B.emit.heartbeats.enabled: neither true nor false. Say which."
    ]
    given = {key: Given(value, key) for key, value in ADDRESSES.items()}
    flow = become(given | {"emit.heartbeats.enabled": Given("true", "k")}, "dc.1", "B", Providers({}, {}))
    (problem,) = flow.problems
    assert problem.startswith("emit.heartbeats.enabled: Java clients take what stands before '.' in 'dc.1'")
    flow = become(given, "dc.1", "B", Providers({}, {}))  # nobody asked for what clients would misread
    assert (flow.problems, flow.fields["traces"]) == ([], ["checkpoints", "offset-syncs"])
    flow = become(given, "a+b/c?", "B", Providers({}, {}))  # nor for topics whose names no broker takes
    assert (flow.problems, flow.fields["traces"]) == ([], [])


def test_traces_lie_where_java_clients_look_or_are_refused() -> None:
    """Else they would go on reading the checkpoints that MirrorMaker wrote last."""
    own = {"replication__policy__internal__topic__separator__enabled": "false"}
    (problem,) = became(replication__policy__separator="_", **own).problems
    assert problem.startswith("A->B.replication.policy.internal.topic.separator.enabled: checkpoints and offset-syncs")
    assert "emit.checkpoints.enabled=false and emit.offset-syncs.enabled=false" in problem
    untraced = {"emit__checkpoints__enabled": "false", "emit__offset-syncs__enabled": "false"}
    for others in ({}, {"replication__policy__separator": "."}, {"replication__policy__separator": "_", **untraced}):
        assert became(**others, **own).problems == []
    own["replication__policy__internal__topic__separator__enabled"] = "True"
    assert became(replication__policy__separator="_", **own).problems == []


def test_what_came_from_the_target_does_not_return() -> None:
    mirror = Mirror.from_dict({"name": "m", "source": "a", "target": "b", **became().fields})
    names = ("B.orders", "C.B.orders", "C.orders", "B", "orders.B", "orders-B.x")
    assert [mirror.selects_topic(name) for name in names] == [False, False, True, True, True, True]
    custom = became(replication__policy__separator="__")
    mirror = Mirror.from_dict({"name": "m", "source": "a", "target": "b", **custom.fields})
    assert [mirror.selects_topic(name) for name in ("B__x", "B.x")] == [False, True]


@pytest.mark.parametrize(
    ("keys", "fields"),
    [
        ({"topics": "a, b.*"}, {"topics": ["a", "b.*"]}),
        ({"topics": "(?i)orders.*, payments.*"}, {"topics": ["(?i)orders.*|payments.*"]}),
        ({"topics": "a.*, (?i)b.*, c"}, {"topics": ["a.*", "(?i)b.*|c"]}),
        ({"topics": r"prod\.(orders, payments), x{1,2}"}, {"topics": [r"prod\.(orders|payments)", "x{1,2}"]}),
        ({"groups": r"g[1,2], a\,b, c d"}, {"groups": ["g[1|2]", r"a\|b", "c d"]}),
        ({"topics.exclude": ""}, {"exclude_topics": ["(.*\\.)?B\\..*"]}),
        ({"topics.blacklist": "x"}, {"exclude_topics": ["x", "(.*\\.)?B\\..*"]}),
        ({"topics.blacklist": "x", "topics.exclude": "y"}, {"exclude_topics": ["y", "(.*\\.)?B\\..*"]}),
        ({"groups": "g1, g2"}, {"groups": ["g1", "g2"]}),
        ({"groups.exclude": "x"}, {"exclude_groups": ["x", "airflow-mirror[:.].*"]}),
        ({"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
          "topics.exclude": "x"}, {"policy": "identity", "exclude_topics": ["x"]}),
        ({"sync.topic.acls.enabled": "FALSE"}, {"sync_acls": False}),
        ({"sync.topic.acls.interval.seconds": "5"}, {"acl_interval_s": 60.0}),
        ({"emit.heartbeats.interval.seconds": "0"}, {"heartbeat_interval_s": 1.0}),
        ({"refresh.topics.interval.seconds": "-1"}, {"sync_topics": False}),
        ({"emit.heartbeats.enabled": "true", "emit.checkpoints.enabled": "FALSE"},
         {"traces": ["heartbeats", "offset-syncs"]}),
        ({"emit.heartbeats.enabled": "false", "emit.checkpoints.interval.seconds": "10"},
         {"traces": ["checkpoints", "offset-syncs"], "checkpoint_interval_s": 10.0}),
        ({"emit.checkpoints.enabled": "true", "emit.checkpoints.interval.seconds": "-1"},
         {"traces": ["heartbeats", "offset-syncs"]}),
        ({"emit.offset-syncs.enabled": "false", "emit.heartbeats.interval.seconds": "-1"}, {"traces": ["checkpoints"]}),
        ({"refresh.topics.interval.seconds": "86400"}, {"topic_interval_s": 3600.0}),
        ({"sync.group.offsets.enabled": "true", "sync.group.offsets.interval.seconds": "7"},
         {"sync_groups": True, "group_interval_s": 7.0}),
        ({"sync.group.offsets.enabled": "true", "emit.checkpoints.enabled": "false"}, {"sync_groups": False}),
        ({"sync.group.offsets.enabled": "true", "emit.checkpoints.interval.seconds": "-1"}, {"sync_groups": False}),
        ({"use.defaults.from": "source"}, {"use_defaults_from": "source"}),
        ({"source.consumer.isolation.level": "read_committed"}, {"isolation": "read_committed"}),
        ({"consumer.auto.offset.reset": "latest"}, {"start": "latest"}),
    ],
)  # fmt: skip
def test_keys_become_fields(keys: dict[str, str], fields: dict[str, Any]) -> None:
    flow = of(ADDRESSES | keys)
    assert flow.problems == []
    assert {name: flow.fields[name] for name in fields} == fields
    Mirror.from_dict({"name": "m", "source": "a", "target": "b", **flow.fields})


@pytest.mark.parametrize(
    "keys",
    [
        {"config.properties.exclude": "retention[.].*, flush.ms"},
        {"config.properties.blacklist": "retention.ms"},
        {"sync.topic.configs.enabled": "false"},
        {"sync.topic.configs.interval.seconds": "-1"},
    ],
)
def test_a_topic_that_is_there_keeps_what_mirrormaker_never_touches(keys: dict[str, str]) -> None:
    """Its owner's, not the target's default; the hold is put on it all the same, and gives it back."""
    rules = Rules.of(Mirror.from_dict({"name": "m", "source": "a", "target": "b", **of(ADDRESSES | keys).fields}))
    source, own = configs(retention_ms="5"), configs(retention_ms="1234")
    planned = kept(overrides(source, False, None, rules), own, rules)
    assert diff(source, own, hold=True, rules=rules, planned=planned).set["retention.ms"] == "-1"
    on_hold = configs(**{key.replace(".", "_"): value for key, value in HELD_OPEN.items()})
    after = diff(source, on_hold, hold=False, rules=rules, planned=planned)
    assert after.set["retention.ms"] == "1234" and "retention.ms" not in after.delete
    assert not diff(source, own, hold=False, rules=rules, planned=planned)


def test_a_topic_that_the_mirror_creates_begins_as_mirrormakers_does() -> None:
    def begins(**keys: str) -> dict[str, str]:
        mirror = Mirror.from_dict({"name": "m", "source": "a", "target": "b", **became(**keys).fields})
        return overrides(configs(retention_ms="5"), False, None, Rules.of(mirror))

    assert begins()["retention.ms"] == begins(sync__topic__configs__enabled="false")["retention.ms"] == "5"
    assert "retention.ms" not in begins(config__properties__exclude="retention.ms")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("topics", "", "nothing to mirror"),
        ("topics", "[a-z&&[^x]].*", "is Java's, not Python's"),
        ("sync.topic.configs.enabled", "on", "neither true nor false"),
        ("refresh.topics.interval.seconds", "ten", "no whole number of seconds"),
        ("replication.factor", "-2", "no number of replicas"),
        ("replication.policy.class", "com.example.Mine", "it is code of Java"),
        ("transforms", "x", "records pass as bytes"),
        ("transforms.x.type", "y", "records pass as bytes"),
        ("topic.filter.class", "com.example.Mine", "a filter is code of Java"),
        ("refresh.groups.enabled", "false", "name those that move in groups"),
        ("errors.tolerance", "all", "nothing is skipped"),
        ("target.admin.security.protocol", "SSL", "A connection logs in once"),
        ("target.cluster.bootstrap.servers", "b", "an address has no port"),
    ],
)
def test_what_cant_be_kept_is_named(key: str, value: str, says: str) -> None:
    (problem,) = of(ADDRESSES | {key: value}).problems
    assert says in problem
    assert key.rpartition(".")[2] in problem


def test_refused_keys_pass_with_their_defaults() -> None:
    keys = {"topic.filter.class": "org.apache.kafka.connect.mirror.DefaultTopicFilter", "transforms": "",
            "forwarding.admin.class": "org.apache.kafka.clients.admin.ForwardingAdmin", "errors.tolerance": "none",
            "refresh.groups.enabled": "true"}  # fmt: skip
    assert of(ADDRESSES | keys).problems == []


def test_secrets_go_into_settings_and_are_not_needed_for_a_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ADDRESSES | {
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "topics": "${env:TOPICS}",
        "source.cluster.ssl.key.password": "${env:KEY_PASSWORD}",
    }
    monkeypatch.setenv("TOPICS", "t1, t2")
    flow = of(given, secrets=False)
    assert flow.fields["topics"] == ["t1", "t2"]
    assert flow.settings["source"] == {"bootstrap.servers": "a:1"}
    with pytest.raises(InputError, match="'KEY_PASSWORD' is not there"):
        of(given)
    monkeypatch.setenv("KEY_PASSWORD", "hidden")
    flow = of(given)
    assert flow.settings["source"]["ssl.key.password"] == "hidden"
    assert "hidden" not in repr(flow) + str(flow.fields)


def test_each_cluster_keeps_its_own_login_by_kerberos() -> None:
    module = "com.sun.security.auth.module.Krb5LoginModule required"
    given = {**ADDRESSES}
    for role, options in (
        ("source", 'useKeyTab=true keyTab="/etc/one.keytab" principal="mirror@ONE.TEST"'),
        ("target", 'useTicketCache=true ticketCache="/run/krb5cc"'),
    ):
        given |= {
            f"{role}.cluster.security.protocol": "SASL_PLAINTEXT", f"{role}.cluster.sasl.mechanism": "GSSAPI",
            f"{role}.cluster.sasl.kerberos.service.name": f"kafka-{role}",
            f"{role}.cluster.sasl.jaas.config": f"{module} {options};",
        }  # fmt: skip
    flow = of(given)
    assert flow.problems == []
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
    assert flow.settings == {
        "source": {
            "bootstrap.servers": "a:1", **login, "sasl.kerberos.service.name": "kafka-source",
            "sasl.kerberos.keytab": "/etc/one.keytab", "sasl.kerberos.principal": "mirror@ONE.TEST",
        },
        "target": {
            "bootstrap.servers": "b:1", **login, "sasl.kerberos.service.name": "kafka-target",
            "sasl.kerberos.ccache": "/run/krb5cc",
        },
    }  # fmt: skip


def test_a_login_that_is_a_reference_is_not_missing_where_references_are_left_alone() -> None:
    given = ADDRESSES | {
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "source.cluster.security.protocol": "SASL_PLAINTEXT",
        "source.cluster.sasl.jaas.config": "${env:JAAS}",
    }
    assert of(given, secrets=False).problems == []
    del given["source.cluster.sasl.jaas.config"]
    (problem,) = of(given, secrets=False).problems
    assert problem.startswith("A->B.source.cluster.security.protocol=SASL_PLAINTEXT: GSSAPI")
