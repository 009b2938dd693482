"""The names of a client's settings. A name that nobody knows is refused: ignored, it may be the one that asks for TLS."""

from __future__ import annotations

import re

from airflow_mirror.compat.client_keys import CONSUMER, PRODUCER
from airflow_mirror.errors import UnknownSetting
from airflow_mirror.nearest import nearest

# librdkafka 2.16 without its callbacks; a test asks the library itself. First what its clients of every kind take.
_EVERY = """
    allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
    bootstrap.servers broker.address.family broker.address.ttl broker.version.fallback builtin.features
    client.dns.lookup client.id client.rack connections.max.idle.ms debug enable.metrics.push enable.random.seed
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification https.ca.location https.ca.pem
    interceptors internal.termination.signal log.connection.close log.queue log.thread.name max.in.flight
    max.in.flight.requests.per.connection message.copy.max.bytes message.max.bytes metadata.broker.list
    metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy opaque
    plugin.library.paths receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms
    reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism
    sasl.mechanisms sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
    sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
    sasl.oauthbearer.config sasl.oauthbearer.extensions sasl.oauthbearer.grant.type
    sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.oauthbearer.scope
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol
    socket.blocking.max.ms socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails
    socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem
    ssl.cipher.suites ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id
    ssl.engine.location ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password
    ssl.providers ssl.sigalgs.list statistics.interval.ms topic.blacklist topic.metadata.propagation.max.ms
    topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.sparse
"""
_ONE = """
    auto.commit.enable batch.num.messages compression.codec compression.level consume.callback.max.messages
    coordinator.query.interval.ms delivery.report.only.error enable.auto.offset.store enable.gapless.guarantee
    enable.partition.eof fetch.error.backoff.ms fetch.message.max.bytes fetch.queue.backoff.ms fetch.wait.max.ms
    group.protocol.type message.send.max.retries message.timeout.ms offset.store.method offset.store.path
    offset.store.sync.interval.ms partitioner produce.offset.report queue.buffering.backpressure.threshold
    queue.buffering.max.kbytes queue.buffering.max.messages queue.buffering.max.ms queued.max.messages.kbytes
    queued.min.messages queuing.strategy request.required.acks sticky.partitioning.linger.ms
"""
# Ours; those of Kerberos hold the bytes of a file for hosts that don't have it.
_OURS = {"admin.bootstrap.servers", "sasl.kerberos.keytab.base64", "sasl.kerberos.ccache", "sasl.kerberos.ccache.base64"}
# In the file of a client that Confluent Cloud offers for download, beside the client's own.
_OF_A_REGISTRY = ("schema.registry.", "basic.auth.")
EVERY_CLIENT = frozenset(_EVERY.split())
_KNOWN = EVERY_CLIENT | {*_ONE.split()} | _OURS | {*CONSUMER.keys, *PRODUCER.keys}


def require_known(key: str, where: str) -> None:
    """Return if a client of librdkafka or Java, or the mirror itself, has a setting of this name.

    :param where: where it stands, as errors name it.
    :raises UnknownSetting: it quotes the name only if it is nearly that of a setting: a line of a key's text is none.
    """
    if key in _KNOWN or key.startswith(_OF_A_REGISTRY) or CONSUMER.find(key):
        return
    meant = nearest(key, _KNOWN)
    shown = ascii(key) if meant and re.fullmatch(r"[A-Za-z0-9._-]+", key) else "what stands there"
    raise UnknownSetting(where, shown, meant)
