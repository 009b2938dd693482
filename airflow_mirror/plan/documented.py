"""What vendors document of their managed clusters, by kind and by what a mirror cares about; for ``docs/managed.md``.

Nothing decides by it: what a plan goes by is in :mod:`.targets`. What is missing here, no page of the vendor's was found
to say, in November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

ABOUT = (
    "settings", "replication", "cluster ALTER", "WriteTxnMarkers", "compression", "transactions", "names of topics",
    "ACLs by API", "idle connections",
)  # fmt: skip


class Page(NamedTuple):
    """A public page of a vendor's."""

    title: str
    address: str


_AWS, _CONFLUENT, _AZURE = (
    "https://docs.aws.amazon.com/msk/latest/developerguide/", "https://docs.confluent.io/cloud/current/",
    "https://learn.microsoft.com/en-us/azure/event-hubs/",
)  # fmt: skip
_AIVEN, _REDPANDA, _GCLOUD = (
    "https://aiven.io/docs/", "https://docs.redpanda.com/", "https://cloud.google.com/sdk/gcloud/reference/managed-kafka/",
)  # fmt: skip
_STANDARD = Page("Custom Amazon MSK configurations", f"{_AWS}msk-configuration-properties.html")
_EXPRESS = Page(
    "Custom MSK Express broker configurations (Read/Write access)", f"{_AWS}msk-configuration-express-read-write.html"
)
_EXPRESS_FIXED = Page("Express brokers read-only configurations", f"{_AWS}msk-configuration-express-read-only.html")
_SERVERLESS = Page("Configuration properties for MSK Serverless clusters", f"{_AWS}serverless-config.html")
_IAM = Page("Semantics of IAM authorization policy actions and resources", f"{_AWS}kafka-actions.html")
_MSK_ACLS = Page("Apache Kafka ACLs", f"{_AWS}msk-acls.html")
_TOPICS = Page("Configuration Reference for Topics in Confluent Cloud", f"{_CONFLUENT}topics/manage.html")
_OPERATIONS = Page("ACL Operations", f"{_CONFLUENT}security/access-control/acls/operations.html")
_INTERNAL = Page(
    "Cluster and topic settings in Confluent Cloud (Japanese edition)",
    "https://docs.confluent.io/ja-jp/cloud/current/clusters/broker-config.html",
)
_CLIENTS = Page("Apache Kafka client configurations for Azure Event Hubs", f"{_AZURE}apache-kafka-configurations")
_EVENT_HUBS = Page(
    "What is Azure Event Hubs for Apache Kafka?", f"{_AZURE}azure-event-hubs-apache-kafka-overview"
)  # fmt: skip
_PARAMETERS = Page(
    "Advanced parameters for Aiven for Apache Kafka", f"{_AIVEN}products/kafka/reference/advanced-params"
)  # fmt: skip
_AIVEN_ACLS = Page(
    "Manage access control lists in Aiven for Apache Kafka", f"{_AIVEN}products/kafka/howto/manage-acls"
)  # fmt: skip
_AIVEN_CLI = Page("avn service kafka-acl", f"{_AIVEN}tools/cli/service/kafka-acl")
_COMPATIBILITY = Page("Kafka Compatibility", f"{_REDPANDA}cloud-data-platform/develop/kafka-clients/")
_PROPERTIES = Page(
    "Topic Configuration Properties",
    "https://github.com/redpanda-data/docs/blob/main/modules/reference/pages/properties/topic-properties.adoc",
)
_TRANSACTIONS = Page("Transactions", f"{_REDPANDA}25.3/develop/transactions")
_RPK = Page("rpk security acl", f"{_REDPANDA}cloud-data-platform/reference/rpk/rpk-security/rpk-security-acl/")
_LIMITATIONS = Page(
    "Managed Service for Apache Kafka limitations",
    "https://cloud.google.com/managed-service-for-apache-kafka/docs/limitations",
)
_GOOGLE_ACLS = Page(
    "Create a Managed Kafka ACL",
    "https://docs.cloud.google.com/managed-service-for-apache-kafka/docs/kafka-acls/create-kafka-acls",
)
_GCLOUD_ACLS = Page("gcloud managed-kafka acls create", f"{_GCLOUD}acls/create")
_GCLOUD_ENTRY = Page("gcloud managed-kafka acls add-acl-entry", f"{_GCLOUD}acls/add-acl-entry")
_GCLOUD_TOPICS = Page("gcloud managed-kafka topics create", f"{_GCLOUD}topics/create")

_CODECS = "gzip, snappy, lz4, zstd, none, and the producer's"
_OPEN = "yes; topics without any are open unless `allow.everyone.if.no.acl.found` is set to false"
_MARKERS_BY_IAM = "with IAM from Kafka 3.8 on; before, by SCRAM or mTLS with ACLs"
SAID: Mapping[str, Mapping[str, tuple[str, Page]]] = {
    "msk": {
        "settings": ("of brokers those that the page lists; others have MSK's values", _STANDARD),
        "replication": ("`default.replication.factor` can be set", _STANDARD),
        "cluster ALTER": ("with IAM as `kafka-cluster:AlterCluster`", _IAM),
        "WriteTxnMarkers": (_MARKERS_BY_IAM, _IAM),
        "compression": (_CODECS, _STANDARD),
        "ACLs by API": (_OPEN, _MSK_ACLS),
        "idle connections": ("`connections.max.idle.ms` can be set", _STANDARD),
    },
    "msk-express": {
        "settings": ("of brokers and topics those that the page lists; the others are MSK's", _EXPRESS),
        "replication": ("`default.replication.factor` is 3, and can't be set", _EXPRESS_FIXED),
        "cluster ALTER": ("with IAM as `kafka-cluster:AlterCluster`", _IAM),
        "WriteTxnMarkers": (_MARKERS_BY_IAM, _IAM),
        "compression": (_CODECS, _EXPRESS),
        "ACLs by API": (_OPEN, _EXPRESS),
    },
    "msk-serverless": {
        "settings": (
            "of topics alone: `compression.type`, `max.message.bytes` to 8388608, `message.timestamp.type`, "
            "`message.timestamp.difference.max.ms`, `retention.bytes`, `retention.ms`; `cleanup.policy` when a topic is "
            "created, and never again", _SERVERLESS,
        ),
        "cluster ALTER": ("no: `kafka-cluster:AlterCluster` is not for serverless clusters", _IAM),
        "compression": ("`compression.type` can be set", _SERVERLESS),
    },
    "confluent-cloud": {
        "settings": ("of each whether it can be changed, and within which bounds", _TOPICS),
        "replication": ("3, and can't be changed", _TOPICS),
        "cluster ALTER": ("it allows to create and to delete ACLs; CLUSTER_ACTION is not listed", _OPERATIONS),
        "compression": ("`compression.type` is `producer`, and can't be changed", _TOPICS),
        "transactions": ("transactional ids have DESCRIBE and WRITE", _OPERATIONS),
        "names of topics": ("Kafka's own, as `__consumer_offsets`, can't be reached", _INTERNAL),
        "ACLs by API": ("yes, with ALTER on the cluster", _OPERATIONS),
    },
    "event-hubs": {
        "settings": ("partitions and retention, in the portal or by Azure's API, not by Kafka's", _CLIENTS),
        "replication": ("the service's own", _CLIENTS),
        "compression": ("gzip alone, in Premium and Dedicated", _EVENT_HUBS),
        "transactions": (
            "a preview in Premium and Dedicated; its page of client configurations says that there are none", _EVENT_HUBS,
        ),
        "ACLs by API": ("rights are Azure's roles, or shared access signatures", _EVENT_HUBS),
        "idle connections": ("cut after 240 s", _CLIENTS),
    },
    "aiven": {
        "settings": ("of brokers those that are parameters of the service", _PARAMETERS),
        "cluster ALTER": ("Alter and ClusterAction can be granted", _AIVEN_CLI),
        "compression": (_CODECS, _PARAMETERS),
        "ACLs by API": ("by the vendor's console, command, API and Terraform; of Kafka's own requests it says nothing",
                        _AIVEN_ACLS),
        "idle connections": ("`connections.max.idle.ms` is a parameter of the service", _PARAMETERS),
    },
    "redpanda": {
        "settings": ("by an edition of the page `delete.retention.ms` is not supported in its cloud", _COMPATIBILITY),
        "replication": ("`replication.factor` is a setting of a topic", _PROPERTIES),
        "compression": (_CODECS, _PROPERTIES),
        "transactions": ("as Kafka's", _TRANSACTIONS),
        "ACLs by API": ("yes, as `rpk` does it", _RPK),
    },
    "google": {
        "settings": ("of brokers some are the service's own, those of storage among them", _LIMITATIONS),
        "replication": ("given with each topic", _GCLOUD_TOPICS),
        "cluster ALTER": ("ALL on the cluster can be granted", _GCLOUD_ACLS),
        "compression": ("an edition of the page excludes zstd, others don't mention it",
                        _LIMITATIONS),
        "transactions": ("ACLs can be for transactional ids", _GCLOUD_ENTRY),
        "ACLs by API": ("by the service's own API, with a role of IAM; of Kafka's own requests it says nothing",
                        _GOOGLE_ACLS),
    },
}  # fmt: skip
