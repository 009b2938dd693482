"""What Airflow asks every provider at start-up. Imports nothing: each Airflow process calls it."""

from __future__ import annotations

from typing import Any

_NAME = "Kafka Mirror"


def _modules(*names: str) -> list[dict[str, Any]]:
    return [{"integration-name": _NAME, "python-modules": [f"airflow_mirror.{name}" for name in names]}]


def _option(description: str, kind: str, default: str | None, example: str | None) -> dict[str, Any]:
    return {
        "description": description,
        "version_added": "0.2.0",
        "type": kind,
        "example": example,
        "default": default,
    }


def _field(label: str, description: str, kind: str = "string", **schema: object) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": [kind, "null"], **schema}}


_LOGINS = ["none", "TLS", "SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "AWS IAM"]
# What becomes of each is in hooks/form.py; names of secrets are such that Airflow hides them.
_FORM = {
    "bootstrap_servers": {
        "label": "Brokers", "description": "Addresses with ports, with commas between them: broker1:9093,broker2:9093.",
        "schema": {"type": "string", "minLength": 1},
    },
    "log_in": _field(
        "Log in by", "TLS: with the certificate below, or without one. SCRAM and PLAIN: with the user and the password "
        "above. AWS IAM: as the worker's role, for Amazon MSK. none: neither login nor encryption. Kerberos and other "
        "tokens take a connection of type Apache Kafka.",
        default="SCRAM-SHA-512", enum=_LOGINS,
    ),
    "tls": _field(
        "Encrypt (TLS)", "For SCRAM and PLAIN. Turned off, others can read what is sent; of PLAIN the password, too.",
        "boolean", default=True,
    ),
    "ca": _field(
        "CA certificates", "The text of a PEM file, or its path on every worker. Empty: those that the host trusts.",
        format="multiline",
    ),
    "certificate": _field(
        "Client certificate", "For TLS with one: the text of a PEM file, or its path on every worker.",
        format="multiline",
    ),
    "private_key": _field("Private key", "Of that certificate, likewise.", format="multiline"),
    "private_key_password": _field("Password of the private key", "If it is encrypted.", format="password"),
    "aws_region": _field("AWS region", "For AWS IAM; empty: as the brokers' addresses say."),
    "aws_role_arn": _field("AWS role", "For AWS IAM: the ARN of a role to assume; empty: none."),
}  # fmt: skip


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata: name, modules, connection form, and configuration options with their defaults.

    Connections of the Kafka provider's own type ``kafka`` are taken as well; it must not be registered a second time.
    """
    return {
        "package-name": "airflow-mirror",
        "name": _NAME,
        "description": "Moves and protects Kafka clusters: same log, same offsets, proven cutover.",
        "integrations": [
            {"integration-name": _NAME, "external-doc-url": "https://kafka.apache.org/", "tags": ["apache"]},
        ],
        "hooks": _modules("hooks.kafka"),
        "connection-types": [
            {
                "connection-type": "kafka_cluster",
                "hook-class-name": "airflow_mirror.hooks.kafka.KafkaClusterHook",
                "hook-name": "Kafka cluster",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "host", "port"],
                    "relabeling": {"login": "User", "extra": "Further settings of librdkafka"},
                    "placeholders": {"login": "mirror", "extra": '{"client.id": "mirror"}'},
                },
                "conn-fields": _FORM,
            }
        ],
        "operators": _modules(
            "operators.plan",
            "operators.topics",
            "operators.acls",
            "operators.mirror",
            "operators.health",
            "operators.verify",
            "operators.offsets",
            "operators.cutover",
            "operators.lift_fence",
            "operators.approval",
            "operators.rollback",
            "operators.pace",
            "operators.failover",
            "operators.drill",
            "operators.schemas",
        ),
        "sensors": _modules("sensors.after", "sensors.catch_up", "sensors.windows"),
        "triggers": _modules("triggers.catch_up", "triggers.job", "triggers.outage"),
        "extra-links": [
            f"airflow_mirror.operators.links.{name}"
            for name in ("ReportLink", "DrillLink", "NightLink", "JobLogLink", "LiveStateLink")
        ],
        "config": {
            "mirror": {
                "description": "Settings of airflow-mirror.",
                "options": {
                    "home": _option(
                        "Directory for plans, jobs and reports; workers that copy in bulk and compare must see the same "
                        "one. Empty means $AIRFLOW_HOME/mirror.",
                        "string",
                        "",
                        "/shared/mirror",
                    ),
                    "files_url": _option(
                        "URL at which a web server of yours serves [mirror] home, to which tasks then link reports, logs "
                        "and states of jobs. Empty means that Airflow's API server serves what it can see of it.",
                        "string",
                        "",
                        "https://files.example.com/mirror",
                    ),
                    "targets": _option(
                        "Ids of connections whose clusters the page of mirrors looks at, with commas between them. Empty "
                        "means all connections of types kafka and kafka_cluster in Airflow's database.",
                        "string",
                        "",
                        "dc2_kafka, archive_kafka",
                    ),
                    "metrics_dir": _option(
                        "Existing directory in which each mirror's copies keep <mirror>.prom, for node_exporter's "
                        "textfile collector. Empty means no such file.",
                        "string",
                        "",
                        "/var/lib/node_exporter/textfile",
                    ),
                    "report_key": _option(
                        "Unencrypted Ed25519 private key (PEM) that signs reports of cutovers: the path of a file, or "
                        "env:NAME of a variable with its text. Empty means that they are not signed.",
                        "string",
                        "",
                        "/run/secrets/reports.pem",
                    ),
                    "alarm": _option(
                        "Function that calls a person, as package.module.function: it is given a text when a cutover has "
                        "died behind its fence, and what became of that. Workers, and hosts on which tails run, must be "
                        "able to import it. Empty means that guards only write to their logs.",
                        "string",
                        "",
                        "company.oncall.page",
                    ),
                    "poll_interval": _option("Seconds between two looks at a running Spark job.", "float", "5", "2.5"),
                },
            }
        },
    }
