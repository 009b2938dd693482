"""Managed clusters: what each kind fixes or forbids, and whether a mirror's ledger and lease can live there.

One table, from which ``docs/managed.md`` is written and stand-ins for tests are made (``sandbox.strict``). What no source
says is not known, and is not guessed: the brokers are asked (:mod:`.refusals`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from airflow_mirror.common.addresses import parse_bootstrap


@dataclass(frozen=True)
class Fact:
    """What is known of a kind, in a sentence without its full stop, and where that is written.

    :param forbids: for a ledger or a lease: it can't be there.
    :param rules: the same for programs, as ``sandbox/java/TargetRules.java`` has them. Besides: ``unserved``, the
        requests that it doesn't serve; ``cluster``, the operations on the cluster that a client may be given.
    """

    says: str
    source: str
    forbids: bool = False
    rules: Mapping[str, str] = field(default_factory=dict)


NOT_KNOWN = Fact("not known", "")


@dataclass(frozen=True, kw_only=True)
class Managed:
    """A row of the table.

    :param title: as its owner calls it.
    :param address: what the name of a broker's host ends with, as a regular expression; empty: it is told alone.
    :param addressed_as: the kind whose addresses it has, where it has none of its own; empty: nobody knows them.
    :param facts: what it fixes, forbids or lacks.
    """

    title: str
    address: str = ""
    addressed_as: str = ""
    ledger: Fact = NOT_KNOWN
    lease: Fact = NOT_KNOWN
    facts: tuple[Fact, ...] = ()

    @property
    def rules(self) -> dict[str, str]:
        """All rules; see :class:`Fact`."""
        return {key: value for fact in self.facts for key, value in fact.rules.items()}

    @property
    def replicas(self) -> int | None:
        """The replication factor that every topic has; None: as it is wished."""
        return int(self.rules["replicas"]) if "replicas" in self.rules else None

    @property
    def forbids(self) -> list[str]:
        """Why no mirror can write there; empty: nothing is known to be in its way."""
        homes = {"ledger": self.ledger, "lease": self.lease}
        return [f"its {what} can't be there: {fact.says} ({fact.source})" for what, fact in homes.items() if fact.forbids]

    def unlike(self, brokers: int, served: Collection[str], configs: Mapping[str, str | None]) -> list[str]:
        """Return what a cluster answers that none of this kind would, each in a few words.

        :param brokers: how many it has. :param served: names of the requests that it serves.
        :param configs: values of topics' settings without an override; None is a value that is not told.
        """
        found = [f"it serves {request}" for request in self.rules.get("unserved", "").split() if request in served]
        if self.replicas is not None and brokers < self.replicas:
            found.append(f"its brokers are {brokers}, too few for {self.replicas} replicas")
        for rule, wanted in self.rules.items():
            how, _, key = rule.partition(".")
            value = configs.get(key)
            if value is not None and how in _KEPT and not _KEPT[how](value, wanted):
                found.append(f"{key} is {value}")
        return found


# How a rule about a topic's setting holds for a value: what most topics of a cluster have, none of its kind may lack.
_KEPT: Mapping[str, Callable[[str, str], bool]] = {
    "fixed": lambda value, wanted: value == wanted,
    "least": lambda value, wanted: int(value) >= int(wanted),
    "most": lambda value, wanted: int(value) <= int(wanted),
}
_EXPRESS, _PORTAL = "the vendor's comparison of broker types", "the vendor's Kafka configuration page"
_TOPICS, _REPLICATOR = "the vendor's reference of topic settings", "the vendor's requirements of MSK Replicator"
_SIGNER, _PROVIDER = "tried with aws-msk-iam-sasl-signer-python 1.0.2", "Airflow's Kafka provider 2.1"
_SERVERLESS = "the vendor's page of settings for Serverless clusters"
_BY_IAM = Fact("IAM as tokens by OAUTHBEARER, each valid for 900 s", _SIGNER)
_NO_WAY = "unclean elections are on, and can't be turned off: a decision that everybody goes by could be lost"
KINDS: Mapping[str, Managed] = {
    "msk": Managed(
        title="Amazon MSK, standard brokers", address=r"\.kafka\.[a-z0-9-]+\.amazonaws\.com(\.cn)?", facts=(_BY_IAM,),
    ),
    "msk-express": Managed(
        title="Amazon MSK, Express brokers", addressed_as="msk",
        ledger=Fact(_NO_WAY, _EXPRESS, forbids=True),
        facts=(
            _BY_IAM,
            Fact("replication 3, `min.insync.replicas` 2 and unclean elections are fixed", _EXPRESS),
            Fact("storage has no limit", _EXPRESS),
        ),
    ),
    "msk-serverless": Managed(
        title="Amazon MSK Serverless", address=r"\.kafka-serverless\.[a-z0-9-]+\.amazonaws\.com(\.cn)?",
        ledger=Fact("topics take neither `unclean.leader.election.enable` nor `min.insync.replicas`, which the ledger's "
                    "have", _SERVERLESS, forbids=True),
        facts=(
            _BY_IAM,
            Fact("no other login than IAM", _REPLICATOR),
            Fact("no ACLs by API", _REPLICATOR, rules={"unserved": "DescribeAcls CreateAcls DeleteAcls"}),
        ),
    ),
    "confluent-cloud": Managed(
        title="Confluent Cloud", address=r"\.confluent\.cloud",
        facts=(
            Fact("`cleanup.policy`: no direct way from `delete` to `compact,delete`; `delete` to `compact` drops records "
                 "without keys", _TOPICS, rules={"never.cleanup.policy": "delete>compact,delete"}),
            Fact("`compression.type` and the replication factor (3) can't be changed", _TOPICS,
                 rules={"fixed.compression.type": "producer", "replicas": "3"}),
            Fact("`delete.retention.ms` is at most 60566400000", _TOPICS,
                 rules={"most.delete.retention.ms": "60566400000"}),
            Fact("`segment.bytes` is at least 52428800", "its refusal in thingsboard issue 8861",
                 rules={"least.segment.bytes": "52428800"}),
            Fact("on the cluster there are CREATE, DESCRIBE, IDEMPOTENT_WRITE, and ALTER for ACLs",
                 "the vendor's page of ACL operations", rules={"cluster": "CREATE DESCRIBE IDEMPOTENT_WRITE"}),
        ),
    ),
    "event-hubs": Managed(
        title="Azure Event Hubs", address=r"\.servicebus\.windows\.net",
        ledger=Fact("topics get no settings by the admin API, and the ledger's have some", _PORTAL, forbids=True),
        lease=Fact("needs transactions: Premium and Dedicated alone have them, as a preview", _PORTAL),
        facts=(
            Fact("settings of topics in the portal alone", _PORTAL),
            Fact("idle connections are cut after 240 s", _PORTAL),
            Fact("a request above 1046528 bytes closes the connection", _PORTAL),
            Fact("transactions in Premium and Dedicated alone, as a preview", _PORTAL),
        ),
    ),
    "aiven": Managed(title="Aiven for Apache Kafka", address=r"\.aivencloud\.com"),
    "redpanda": Managed(
        title="Redpanda", address=r"\.cloud\.redpanda\.com",
        facts=(
            Fact("Shadowing is its own way in from any Kafka: same offsets, groups, ACLs, schemas (26.2)",
                 "the vendor's migration guide"),
            Fact("WriteTxnMarkers is not among the requests that it serves",
                 "its source, kafka/server/handlers/handlers.h", rules={"unserved": "WriteTxnMarkers"}),
            Fact("`min.insync.replicas` and `unclean.leader.election.enable` are taken and ignored",
                 "its source, kafka/server/handlers/topics/types.h"),
        ),
    ),
    "google": Managed(
        title="Google Managed Service for Apache Kafka", address=r"\.managedkafka\.[a-z0-9.-]*cloud\.goog",
        facts=(Fact("accounts of Google as tokens by OAUTHBEARER", _PROVIDER),),
    ),
}  # fmt: skip


def kind_of(told: str, bootstrap: str) -> str | None:
    """Return which kind a cluster is of; None: of none that is known.

    :param told: the Mirror's ``target_kind``: ``auto`` goes by the addresses.
    """
    if told != "auto":
        return told if told in KINDS else None
    hosts = [host.lower().rstrip(".") for host, _ in parse_bootstrap(bootstrap)]
    return next((n for n, k in KINDS.items() if k.address and any(re.search(k.address + "$", h) for h in hosts)), None)


def contradicts(told: str, by_address: str | None) -> bool:
    """Return whether a cluster's addresses are those of another kind than the one that was told.

    :param told: the Mirror's ``target_kind``. ``kafka`` contradicts nothing: it says that addresses mislead.
    :param by_address: :func:`kind_of` them; None: of a proxy or a private name, which say nothing.
    """
    return told in KINDS and by_address not in (None, told, KINDS[told].addressed_as)
