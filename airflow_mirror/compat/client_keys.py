"""A row for every key of a Java consumer, producer and admin client, from Kafka 0.11 to 4.3.

A test holds the three tables against the lists that the clients' own classes print. What is left to clients of
librdkafka's names is a setting of the connection; ``*.callback.handler.class`` and the like are code, which can't come
along.
"""

from __future__ import annotations

import re

from airflow_mirror.compat.rows import Table, honoured, mapped, no_effect, refused

_JAVA = "Java's own; Python's TLS is OpenSSL"
_RETRIES = "the engine retries without end, with growing pauses, and holds the order meanwhile"
_METRICS = "figures are published for Prometheus and Airflow (docs/monitoring.md)"
_OWN_PACE = "the engine sizes its requests by what it copies"
_BYTES = "batches pass as bytes; nothing is deserialized"
_NO_GROUP = "the copy reads without a consumer group; its progress is on the target"
_BROKERS = "checks tokens in a broker, not in a client"
_CODE = "it is code of Java, which can't run here. Remove it"
_STORES, _JKS = "PKCS12, whatever the file is called", "JKS is refused with the command that makes PKCS12 of it"
_KIND = "PEM, or what the file turns out to be"
RECOMPRESSED = (
    "batches keep the source's codec, byte for byte; a compression.type of the target's own topic, once the mirror has "
    "ended, lets its brokers recompress what they store"
)
_OAUTH = "org.apache.kafka.common.security.oauthbearer."
_ASSERTION = [
    refused(f"sasl.oauthbearer.assertion.{name}", "no login by assertion is spoken here. Use a client's id and secret")
    for name in ("algorithm", "claim.aud", "claim.exp.seconds", "claim.iss", "claim.jti.include", "claim.nbf.seconds",
                 "claim.sub", "file", "private.key.file", "private.key.passphrase", "template.file")
]  # fmt: skip

COMMON = Table(
    honoured("bootstrap.servers"),
    honoured("client.id"),
    honoured("security.protocol"),
    honoured("sasl.mechanism"),
    mapped("sasl.jaas.config", "sasl.username, sasl.password, sasl.kerberos.*, sasl.aws.*", "of PlainLoginModule, "
           "ScramLoginModule, OAuthBearerLoginModule, Krb5LoginModule and IAMLoginModule (mechanism AWS_MSK_IAM becomes "
           "OAUTHBEARER); another module is refused"),
    honoured("sasl.kerberos.service.name", "", "serviceName of sasl.jaas.config, too; absent it is kafka, where Java's "
             "client does not start"),
    mapped("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.token.endpoint.url"),
    mapped("sasl.oauthbearer.scope", "sasl.oauthbearer.scope"),
    mapped("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id"),
    mapped("sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret"),
    mapped("sasl.login.callback.handler.class", "sasl.oauthbearer.method", "Kafka's own OAuthBearerLoginCallbackHandler "
           "becomes oidc, IAMOAuthBearerLoginCallbackHandler msk, GcpLoginCallbackHandler gcp; another class is refused"),
    mapped("sasl.client.callback.handler.class", "sasl.oauthbearer.method", "IAMClientCallbackHandler and "
           "IAMOAuthBearerLoginCallbackHandler become msk; another class is refused"),
    mapped("request.timeout.ms", "socket.timeout.ms"),
    mapped("receive.buffer.bytes", "socket.receive.buffer.bytes", "-1, the kernel's choice, becomes 0"),
    mapped("send.buffer.bytes", "socket.send.buffer.bytes", "-1, the kernel's choice, becomes 0"),
    mapped("ssl.truststore.location", "ssl.truststore.location, ssl.ca.location", f"{_STORES}, or PEM; {_JKS}"),
    mapped("ssl.truststore.type", "", _KIND),
    honoured("ssl.truststore.password", "", "of no use with PEM"),
    mapped("ssl.truststore.certificates", "ssl.ca.pem"),
    mapped("ssl.keystore.location", "ssl.keystore.location, ssl.certificate.location, ssl.key.location",
           f"{_STORES}, or PEM; {_JKS}"),
    mapped("ssl.keystore.type", "", _KIND),
    honoured("ssl.keystore.password", "", "of no use with PEM"),
    mapped("ssl.keystore.certificate.chain", "ssl.certificate.pem"),
    mapped("ssl.keystore.key", "ssl.key.pem"),
    honoured("ssl.key.password"),
    mapped("ssl.endpoint.identification.algorithm", "ssl.endpoint.identification.algorithm",
           "the empty text becomes none"),
    refused("ssl.cipher.suites", "Java's names are not OpenSSL's. Remove it here, and give OpenSSL's in the connection",
            ""),
    refused("ssl.engine.factory.class", _CODE),
    refused("security.providers", _CODE),
    refused("sasl.login.class", _CODE),
    *_ASSERTION,
    refused("sasl.oauthbearer.jwt.retriever.class", _CODE, f"{_OAUTH}DefaultJwtRetriever"),
    refused("sasl.oauthbearer.jwt.validator.class", _CODE, f"{_OAUTH}DefaultJwtValidator"),
    refused("sasl.oauthbearer.header.urlencode", "the id and secret are sent as they are. Remove it, and give "
            "them encoded", "false"),
    refused("bootstrap.controllers", "a mirror talks to brokers. Give bootstrap.servers"),
    refused("interceptor.classes", _CODE, ""),
    *no_effect("no command is run: a ticket cache is read again for each login, and something else has to keep it fresh "
               "(k5start, krenew); a keytab needs none", "sasl.kerberos.kinit.cmd"),
    *no_effect("tickets of a keytab are renewed at half of their life", "sasl.kerberos.min.time.before.relogin",
               "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor"),
    *no_effect("TLS 1.2 and 1.3 are spoken, nothing older", "ssl.protocol", "ssl.enabled.protocols"),
    *no_effect(_JAVA, "ssl.provider", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm",
               "ssl.secure.random.implementation"),
    *no_effect(_BROKERS, "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer",
               "sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.jwks.endpoint.refresh.ms",
               "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
               "sasl.oauthbearer.clock.skew.seconds",
               "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name"),
    *no_effect("a token is fetched anew before it ends", "sasl.login.refresh.buffer.seconds",
               "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.window.factor",
               "sasl.login.refresh.window.jitter", "sasl.login.connect.timeout.ms",
               "sasl.login.read.timeout.ms", "sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms"),
    *no_effect(_RETRIES, "retries", "retry.backoff.ms", "retry.backoff.max.ms", "reconnect.backoff.ms",
               "reconnect.backoff.max.ms", "default.api.timeout.ms", "socket.connection.setup.timeout.ms",
               "socket.connection.setup.timeout.max.ms", "connections.max.idle.ms"),
    *no_effect("every address of every name is tried", "client.dns.lookup"),
    *no_effect("brokers are asked again whenever a leader or a connection is lost", "metadata.max.age.ms",
               "metadata.max.idle.ms", "metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms"),
    *no_effect(_METRICS, "metric.reporters", "metrics.num.samples", "metrics.recording.level",
               "metrics.sample.window.ms", "metrics.context.*", "metrics.jmx.*",
               "enable.metrics.push", "auto.include.jmx.reporter"),
    mapped("config.providers", "", "file, directory and environment variable are read; another class is refused"),
    mapped("config.providers.*", "", "see config.providers"),
)  # fmt: skip

CONSUMER = COMMON + Table(
    mapped("isolation.level", "isolation", "of the Mirror; absent it is read_uncommitted, as in Java"),
    mapped("auto.offset.reset", "start", "of the Mirror"),
    *no_effect("the copy reads from leaders, also where a follower is nearer", "client.rack"),
    *no_effect(_BYTES, "key.deserializer", "value.deserializer"),
    *no_effect(_NO_GROUP, "group.id", "group.instance.id", "group.protocol", "group.remote.assignor",
               "heartbeat.interval.ms", "session.timeout.ms", "max.poll.interval.ms", "max.poll.records",
               "partition.assignment.strategy", "enable.auto.commit", "auto.commit.interval.ms",
               "exclude.internal.topics", "internal.leave.group.on.close",
               "internal.throw.on.fetch.stable.offset.unsupported",
               "share.acknowledgement.mode", "share.acquire.mode"),
    *no_effect(_OWN_PACE, "fetch.min.bytes", "fetch.max.bytes", "fetch.max.wait.ms", "max.partition.fetch.bytes"),
    *no_effect("every checksum is verified, always", "check.crcs"),
    *no_effect("the copy creates no topic on the source", "allow.auto.create.topics"),
)  # fmt: skip

PRODUCER = COMMON + Table(
    *no_effect(RECOMPRESSED, "compression.type"),
    refused("partitioner.class", "each record keeps its partition. Remove it; partitioning='by_key' of a Mirror is the "
            "Java producer's choice", "org.apache.kafka.clients.producer.internals.DefaultPartitioner"),
    refused("transactional.id", "the mirror's own transactional ids are its lease and its markers. Remove it"),
    refused("transaction.two.phase.commit.enable", "a transaction of the mirror is its own. Remove it", "false"),
    *no_effect("batches keep the source's codec, and its level where they pass", "compression.gzip.level",
               "compression.lz4.level", "compression.zstd.level"),
    *no_effect("always all: a record that one broker alone has is not mirrored", "acks"),
    *no_effect("always: a batch is sent again under its own sequence, and the log holds it once", "enable.idempotence",
               "max.in.flight.requests.per.connection"),
    *no_effect(_RETRIES, "delivery.timeout.ms", "max.block.ms", "timeout.ms", "metadata.fetch.timeout.ms",
               "block.on.buffer.full", "transaction.timeout.ms"),
    *no_effect("batches pass as the source has them; small ones of a backlog are merged (merge_below)", "batch.size",
               "linger.ms", "buffer.memory"),
    *no_effect("a target topic takes what its source topic took: max.message.bytes comes along", "max.request.size"),
    *no_effect(_BYTES, "key.serializer", "value.serializer"),
    *no_effect("each record keeps its partition", "partitioner.ignore.keys", "partitioner.adaptive.partitioning.enable",
               "partitioner.availability.timeout.ms"),
    *no_effect("only an authorizer can refuse the mirror's idempotent writes, and a plan finds that out",
               "internal.auto.downgrade.txn.commit"),
)  # fmt: skip

ADMIN = COMMON

_SECRET = re.compile(r"password|passphrase|secret|jaas|token$|keystore\.key$|credentials$")


def is_basic(key: str) -> bool:
    """Return whether a key is one that every Java client has to reach brokers: addresses, encryption, login.

    Rule: MirrorClientConfig.CLIENT_CONFIG_DEF of 4.3.1.
    """
    return key in ("bootstrap.servers", "security.protocol") or key.startswith(("ssl.", "sasl."))


def is_secret(key: str) -> bool:
    """Return whether a key's value must not be shown, whatever class of Java it may be for."""
    return _SECRET.search(key) is not None
