"""One flow of MirrorMaker 2: the fields of its Mirror, and the settings to reach both clusters.

The keys are those that its connectors get. An absent key has MirrorMaker's own default, which is written down in the
Mirror: a flow that came along goes on as it was, also where a Mirror's default is another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from airflow_mirror.common import patterns
from airflow_mirror.common.policy import HEARTBEATS, OWN_GROUPS, TRACES, is_topic_name, trace_topics
from airflow_mirror.compat import login
from airflow_mirror.compat.client_keys import ADMIN, CONSUMER, PRODUCER, is_basic
from airflow_mirror.compat.clients import Settings, convert
from airflow_mirror.compat.declared import Given
from airflow_mirror.compat.keys import DEFAULTS, FLOW, LIKE_RETENTION, POLICIES
from airflow_mirror.compat.providers import Providers
from airflow_mirror.compat.rows import Fate, Noticed
from airflow_mirror.errors import InvalidField

T = TypeVar("T")
_TABLES = {"consumer": CONSUMER, "producer": PRODUCER, "admin": ADMIN}
_OF_MIRRORS = ("isolation.level", "auto.offset.reset")  # keys of a client that become fields, which are no secrets
# What is written down besides, because MirrorMaker does so without a key.
_ALWAYS: Mapping[str, Any] = {"offsets": "auto", "partitioning": "preserve", **LIKE_RETENTION}
_ACLS = "sync.topic.acls.enabled"
_OWN_SEPARATOR = "replication.policy.internal.topic.separator.enabled"
_CERTIFICATE = ("ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.keystore.key")


@dataclass
class Flow:
    """What becomes of a flow.

    :param source: alias; ``target`` likewise.
    :param fields: of a Mirror, without name and connections.
    :param settings: by ``source`` and ``target``, of a connection each; secrets included.
    :param told_apart_by: of each, what tells it from another one of its cluster; it has references in place of secrets,
        so that a connection is called the same whether they are at hand or not.
    :param problems: what can't be kept, one line each, with the remedy. No line has a secret.
    :param noticed: what is otherwise here without a key.
    """

    source: str
    target: str
    fields: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict, repr=False, kw_only=True)
    told_apart_by: dict[str, frozenset[tuple[str, str]]] = field(default_factory=dict, repr=False, kw_only=True)
    problems: list[str] = field(default_factory=list)
    noticed: list[Noticed] = field(default_factory=list, kw_only=True)


def become(keys: Mapping[str, Given], source: str, target: str, providers: Providers, *, secrets: bool = True) -> Flow:
    """Return what becomes of a flow.

    :param keys: as its connectors get them.
    :param secrets: False: references to secrets are left alone, and ``settings`` lack what they stand for.
    :raises InputError: a reference leads nowhere.
    """
    flow = Flow(source, target)
    consumer = _settings(keys, "source", "consumer", providers, secrets)
    producer = _settings(keys, "target", "producer", providers, secrets)
    for role, client, data in (("source", "consumer", consumer), ("target", "producer", producer)):
        admin = _settings(keys, role, "admin", providers, secrets)
        flow.problems += [*data.problems, *admin.problems]
        flow.settings[role] = _one_connection(role, data, admin, flow.problems)
        flow.told_apart_by[role] = _told_apart_by(keys, role, client, providers)
        addresses = client_of(keys, role, client).get("bootstrap.servers")
        if secrets or addresses is None or not providers.has_reference(addresses.value):
            _require_addresses(getattr(flow, role), flow.settings[role], flow.problems)
    flow.fields = {**_ALWAYS, **_fields(keys, providers, flow.problems), "source_alias": source}
    flow.noticed += _otherwise_behind_references(keys, providers)
    flow.fields["target_alias"] = target  # in traces
    flow.fields["isolation"] = consumer.fields.get("isolation", DEFAULTS["consumer.isolation.level"])
    flow.fields["start"] = consumer.fields.get("start", DEFAULTS["consumer.auto.offset.reset"])
    separator = flow.fields["separator"]
    if flow.fields.get("policy") == "prefix":
        # Patterns that can't be read are a problem by now, and no field: nothing is begun by such a flow.
        flow.fields["exclude_topics"] = [*flow.fields.get("exclude_topics", ()), _returning(target, separator)]
    if "heartbeats" in flow.fields["traces"] and "emit.heartbeats.enabled" in keys and separator in source:
        flow.problems.append(
            f"emit.heartbeats.enabled: Java clients take what stands before {separator!r} in {source!r} for the cluster. "
            "Give it another alias, or say false."
        )
    for kind in flow.fields["traces"]:
        key = f"emit.{kind}.enabled"
        if key not in keys and not _fits(kind, source, separator):  # nobody has asked for it
            text = "none: the alias makes no topics in which Java clients would look for this cluster"
            flow.noticed.append(Noticed(f"{source}->{target}.{key} (absent)", Fate.MAPPED, text, changed=True))
            flow.fields["traces"] = [other for other in flow.fields["traces"] if other != kind]
    _require_same_names(flow, keys, providers)
    _settle_rights(flow, keys, providers)
    flow.problems = list(dict.fromkeys(flow.problems))
    return flow


def _settle_rights(flow: Flow, keys: Mapping[str, Given], providers: Providers) -> None:
    """Let rights follow only where it is known which ones are the mirror's own: those must not be touched."""
    unknown = [
        role
        for role, client in (("source", "consumer"), ("target", "producer"))
        if not _says_principal(client_of(keys, role, client), providers)
    ]
    if not unknown or not flow.fields.get("sync_acls"):
        return
    cause = f"brokers alone know which principal they make of the login at the {' and the '.join(unknown)}"
    if _ACLS in keys:
        flow.problems.append(
            f"{keys[_ACLS].key}: {cause}, and the mirror's own rights must not be touched. Say false; where rights are "
            "to follow, name it in the Mirror that --out writes: sync_acls, and own_principals."
        )
    else:
        flow.fields["sync_acls"] = False
        text = f"sync_acls: false, because {cause}; own_principals of a Mirror names it"
        flow.noticed.append(Noticed(f"{flow.source}->{flow.target}.{_ACLS} (absent)", Fate.MAPPED, text, changed=True))


def _says_principal(client: Mapping[str, Given], providers: Providers) -> bool:
    """Return whether a client's keys say which principal it is, as far as they stand in the file.

    Of a certificate and of a token brokers make one by rules of theirs. Whether they make another one of a Kerberos
    principal, a plan asks them.
    """

    def value(key: str) -> str:
        return "" if key not in client or providers.has_reference(client[key].value) else client[key].value.strip()

    protocol, mechanism = value("security.protocol").upper(), value("sasl.mechanism").upper()
    if protocol == "SSL":
        return not any(client[key].value.strip() for key in _CERTIFICATE if key in client)
    if not protocol.startswith("SASL"):
        return True
    by_kerberos = mechanism == "GSSAPI" or "sasl.mechanism" not in client
    if by_kerberos and (module := value("sasl.jaas.config")):
        return "sasl.kerberos.principal" in login.settings_of(module)[0]
    return mechanism not in ("OAUTHBEARER", "AWS_MSK_IAM")


def internal_separator(keys: Mapping[str, Given], separator: str, providers: Providers) -> str:
    """Return what stands between the parts of the names of MirrorMaker's internal topics.

    :param separator: of its policy.
    """
    one = keys.get(_OWN_SEPARATOR)
    follows = one is None or providers.resolve(one.key, one.value).strip().lower() == "true"  # all else is false in Java
    return separator if follows else "."


def _require_same_names(flow: Flow, keys: Mapping[str, Given], providers: Providers) -> None:
    """Name the traces that Java clients would look for in MirrorMaker's topics, where nothing is written any more."""
    separator = flow.fields["separator"]
    kinds = [kind for kind in flow.fields["traces"] if kind != HEARTBEATS]  # these are called the same
    if kinds and internal_separator(keys, separator, providers) != separator:
        flow.problems.append(
            f"{keys[_OWN_SEPARATOR].key}: {' and '.join(kinds)} are in topics whose names have {separator!r}, and Java "
            "clients with this key would go on reading MirrorMaker's. Say true, here and in these clients, or "
            f"{' and '.join(f'emit.{kind}.enabled=false' for kind in kinds)}. 'airflow-mirror adopt' then finds "
            "MirrorMaker's own topics by --internal-separator '.'."
        )


def _fits(kind: str, source: str, separator: str) -> bool:
    """Return whether an alias makes names of topics for a kind of traces, from which Java clients know the cluster."""
    is_read_right = kind != HEARTBEATS or separator not in source
    return is_read_right and all(map(is_topic_name, trace_topics(kind, source, separator)))


def _returning(target: str, separator: str) -> str:
    """Return a pattern of what came from the target, by its name alone, as DefaultReplicationPolicy sees it."""
    between = re.escape(separator)
    return f"(.*{between})?{re.escape(target)}{between}.*"


# --- clients ---------------------------------------------------------------------------------------------------------


def client_of(keys: Mapping[str, Given], role: str, client: str) -> dict[str, Given]:
    """Return the keys of one of the flow's clients: those of its cluster, on top of them its own; the last wins.

    :param role: of the cluster: ``source`` or ``target``.
    :param client: ``consumer``, ``producer`` or ``admin``.
    Rule: MirrorConnectorConfig.sourceConsumerConfig, sourceAdminConfig, targetAdminConfig; what is copied is written by
    Connect's own producer, whose keys are ``target.producer.`` and ``producer.override.``.
    """
    own_prefix = f"{role}.{client}."
    prefixes = (own_prefix, "producer.override.") if client == "producer" else (f"{client}.", own_prefix)
    found = {key: one for key, one in _below(keys, f"{role}.cluster.").items() if is_basic(key)}
    for prefix in prefixes:
        # ``consumer.poll.timeout.ms`` is no consumer's key. What nobody knows is reported where the file is read.
        own = {key: one for key, one in _below(keys, prefix).items() if not FLOW.find(prefix + key)}
        found |= {key: one for key, one in own.items() if _TABLES[client].find(key)}
    return found


def _settings(keys: Mapping[str, Given], role: str, client: str, providers: Providers, secrets: bool) -> Settings:
    all_of = client_of(keys, role, client)
    found = {
        key: one for key, one in all_of.items() if secrets or key in _OF_MIRRORS or not providers.has_reference(one.value)
    }
    values = {key: providers.resolve(one.key, one.value) for key, one in found.items()}
    names = {key: one.key for key, one in found.items()}
    return convert(values, _TABLES[client], names=names, whole=len(found) == len(all_of))


def _told_apart_by(keys: Mapping[str, Given], role: str, client: str, providers: Providers) -> frozenset[tuple[str, str]]:
    data, admin = (_settings(keys, role, one, providers, secrets=False) for one in (client, "admin"))
    references = {
        (f"{which}.{key}", one.value)
        for which, of in (("data", client), ("admin", "admin"))
        for key, one in client_of(keys, role, of).items()
        if key not in _OF_MIRRORS and providers.has_reference(one.value)
    }
    return frozenset(_one_connection(role, data, admin, []).items() | references)


def _below(keys: Mapping[str, Given], prefix: str) -> dict[str, Given]:
    return {key.removeprefix(prefix): one for key, one in keys.items() if key.startswith(prefix)}


def _one_connection(role: str, data: Settings, admin: Settings, problems: list[str]) -> dict[str, str]:
    """Return the settings of a connection that serves data and administration, as two clients did there."""
    found = dict(data.properties)
    if (addresses := admin.properties.get("bootstrap.servers")) != found.get("bootstrap.servers") and addresses:
        found["admin.bootstrap.servers"] = addresses
    for key in sorted({*data.properties, *admin.properties}):
        if key.startswith(("ssl.", "sasl.", "security.")) and data.properties.get(key) != admin.properties.get(key):
            problems.append(
                f"{key}: the {role}'s admin client has another value than the client that moves data. A connection logs "
                "in once: give both the same."
            )
    return found


def _require_addresses(alias: str, settings: Mapping[str, str], problems: list[str]) -> None:
    if not settings.get("bootstrap.servers", "").strip(" ,"):
        problems.append(f"{alias}.bootstrap.servers: missing. Add it, such as {alias}.bootstrap.servers = broker1:9092.")


# --- fields ----------------------------------------------------------------------------------------------------------


def _fields(keys: Mapping[str, Given], providers: Providers, problems: list[str]) -> dict[str, Any]:
    found = dict[str, Any]()

    def value_of(key: str) -> tuple[str, str]:
        """Return the value, and the key as the file has it."""
        one = keys.get(key)
        return (DEFAULTS[key], key) if one is None else (providers.resolve(one.key, one.value).strip(), one.key)

    for key, one in keys.items():
        row, value = FLOW.find(key), providers.resolve(one.key, one.value).strip() if FLOW.find(key) else ""
        if row is not None and row.refuses(value):
            problems.append(f"{one.key}: {row.why}.")

    def read(key: str, how: Callable[[str], T]) -> T | None:
        """Return what a key means; None if that is among the problems now, without the value: it may be a secret."""
        value, called = value_of(key)
        try:
            return how(value)
        except ValueError as e:
            problems.append(f"{called}: {e}.")
            return None

    for key, (name, how) in _READ.items():
        if (meant := read(_older(key, keys), how)) is not None:
            found[name] = meant
    for key, name in _INTERVALS.items():
        if (seconds := read(f"{key}.interval.seconds", _whole)) is None:
            continue
        if seconds < 0:  # MirrorMaker takes it for never
            found[f"sync_{name}s"] = False
        else:
            found[f"{name}_interval_s"] = _kept(key, seconds)
    # What MirrorMaker never touches on a topic that is there: what is excluded, or everything.
    found["keep_configs"] = [*found.get("exclude_configs", ())] if found.get("sync_configs", True) else [".*"]
    _add_traces(found, read)
    return found


def _otherwise_behind_references(keys: Mapping[str, Given], providers: Providers) -> Iterator[Noticed]:
    """Yield what is otherwise here with a value that a provider holds: whoever read the file saw its reference alone."""
    for key, one in keys.items():
        row = FLOW.find(key)
        if row is not None and providers.has_reference(one.value):
            its = Noticed.by(row, one.key, providers.resolve(one.key, one.value))
            if its.changed:
                yield its


def _add_traces(found: dict[str, Any], read: Callable[[str, Callable[[str], Any]], Any]) -> None:
    """Add what Java clients read."""
    wanted = {kind: read(f"emit.{kind}.enabled", _true_or_false) for kind in TRACES}
    for kind, name in (("heartbeats", "heartbeat_interval_s"), ("checkpoints", "checkpoint_interval_s")):
        seconds = read(f"emit.{kind}.interval.seconds", _whole)
        if seconds is not None and seconds >= 0:
            found[name] = _kept(f"emit.{kind}", seconds)
        elif seconds is not None:
            wanted[kind] = False
    found["traces"] = [kind for kind, is_wanted in wanted.items() if is_wanted]
    if not wanted["checkpoints"]:  # MirrorCheckpointConnector has no task then, and it is who moves groups
        found["sync_groups"] = False


def _older(key: str, keys: Mapping[str, Given]) -> str:
    """Return the name that a key had before 3.0, if only that is there."""
    before = key.replace(".exclude", ".blacklist")
    return before if before in keys and key not in keys else key


def _kept(key: str, seconds: int) -> float:
    row = FLOW.find(f"{key}.interval.seconds")
    assert row is not None and row.within is not None
    return float(row.within.nearest(seconds))


def _whole(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError("no whole number of seconds. Correct it") from None


def _true_or_false(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("neither true nor false. Say which")
    return value.lower() == "true"


def _patterns(field_name: str) -> Callable[[str], list[str]]:
    def read(value: str) -> list[str]:
        try:
            items = patterns.of_older_tools(value) if value else []
            return list(patterns.parse(field_name, items, commas=field_name != "groups"))
        except InvalidField as e:
            cause = e.cause if e.__cause__ is None else "not a valid regular expression"  # re's own words quote it
            raise ValueError(f"{cause}. {e.remedy.rstrip('.')}") from None

    return read


def _excluded_groups(value: str) -> list[str]:
    return [*_patterns("groups")(value), OWN_GROUPS]


def _policy(value: str) -> str:
    if value not in POLICIES:
        raise ValueError("it is code of Java. Remove it, and give the Mirror a policy of Python, package.module:Class")
    return POLICIES[value]


def _replicas(value: str) -> int | None:
    if value == "-1":  # nobody's wish; keys.toml says what comes of it
        return None
    if not value.isdigit() or not 1 <= int(value) <= 32767:
        raise ValueError("no number of replicas. Give one from 1 on")
    return int(value)


def _defaults_from(value: str) -> str:
    if value not in ("source", "target"):
        raise ValueError("neither source nor target. Say which")
    return value


def _not_empty(value: str) -> list[str]:
    if not value:
        raise ValueError("nothing to mirror. Name topics, or disable the flow")
    return _patterns("topics")(value)


_READ: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "topics": ("topics", _not_empty),
    "topics.exclude": ("exclude_topics", _patterns("exclude_topics")),
    "groups": ("groups", _patterns("groups")),
    "groups.exclude": ("exclude_groups", _excluded_groups),
    "config.properties.exclude": ("exclude_configs", _patterns("exclude_configs")),
    "use.defaults.from": ("use_defaults_from", _defaults_from),
    "replication.factor": ("replication_factor", _replicas),
    "replication.policy.class": ("policy", _policy),
    "replication.policy.separator": ("separator", str),
    "refresh.topics.enabled": ("sync_topics", _true_or_false),
    "sync.topic.configs.enabled": ("sync_configs", _true_or_false),
    "sync.topic.acls.enabled": ("sync_acls", _true_or_false),
    "sync.group.offsets.enabled": ("sync_groups", _true_or_false),
}
# By what stands before ``.interval.seconds``: what the fields begin with.
_INTERVALS = {
    "refresh.topics": "topic", "sync.topic.configs": "config", "sync.topic.acls": "acl", "sync.group.offsets": "group",
}  # fmt: skip
