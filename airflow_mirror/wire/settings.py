"""librdkafka's settings as the wire client interprets them: which are supported, which are rejected, and why.

A setting that would change whom we trust or who we are must never be ignored silently. So each key of the families
``ssl.*`` and ``sasl.*`` is either honoured here or rejected by name.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from airflow_mirror.common.oauth import methods
from airflow_mirror.common.oauth.tokens import Tokens
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InvalidField
from airflow_mirror.wire.kerberos import identity as kerberos
from airflow_mirror.wire.kerberos.tickets import Tickets

# 256 MiB: far above any fetch that the mirror requests, and below the first bytes of TLS or HTTP read as a size.
MAX_RESPONSE_BYTES = 256 * 1024 * 1024

_SUPPORTED = frozenset(
    {
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.grant.type",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
    }
)
# Clients set defaults for Kerberos settings even without Kerberos; they matter only with GSSAPI.
_HARMLESS = ("sasl.kerberos.",)
_OFTEN_SET = (*_HARMLESS, "sasl.mechanism", "ssl.endpoint.")  # also where neither TLS nor a login is wanted
_BY_PASSWORD = "Set the mechanism of this user, or remove sasl.username and set sasl.kerberos.principal."
_OF_CERTIFICATE, _OF_TOKEN = "User:<subject of the certificate>", "User:<whom the token names>"


@dataclass(frozen=True)
class WireSettings:
    """How to reach, trust and log in to the brokers of one cluster. Shared by connections and threads; never pickled.

    :param properties: librdkafka settings, all values strings; unknown keys outside ssl.* and sasl.* are left to the
        other clients of the same configuration.
    :param role: ``source``, ``target`` or a connection id, for errors.
    :raises InvalidField: a value can't be used, or the wire client does not honour a setting.
    """

    properties: Mapping[str, str] = field(repr=False)
    role: str = "cluster"
    client_id: str = "airflow-mirror"

    @classmethod
    def from_config(cls, config: ClientConfig, client_id: str = "airflow-mirror") -> WireSettings:
        """Build from a cluster's settings. The configuration's own ``client.id`` wins: quotas may depend on it."""
        settings = cls(config.properties, config.role, config.properties.get("client.id") or client_id)
        settings.check()
        return settings

    def check(self) -> None:
        """Read every setting once, so that a wrong one is reported before the first connection."""
        supported = _SUPPORTED | (kerberos.SETTINGS if self.uses_kerberos else methods.SETTINGS)
        harmless = () if self.uses_kerberos else _HARMLESS
        for key in self.properties:
            if key.startswith(("ssl.", "sasl.")) and key not in supported and not key.startswith(harmless):
                remedy = kerberos.REMEDIES.get(key, "Remove it, or reach the cluster by another mechanism.")
                raise InvalidField(key, "(set)", f"the mirror's wire client does not support it ({self.role})", remedy)
        self._check_protocol()
        if self.uses_sasl:
            self._check_credentials()

    def get(self, key: str, default: str = "") -> str:
        """Return a setting as text."""
        return self.properties.get(key, default)

    @property
    def bootstrap(self) -> str:
        """The comma-separated ``host:port`` list."""
        return self.properties["bootstrap.servers"]

    @property
    def principal(self) -> str:
        """Our principal for an authorizer, as far as a client can know it: ``User:<sasl user>``."""
        user = self.properties.get("sasl.username") or self.properties.get("sasl.oauthbearer.client.id")
        if self.uses_kerberos:  # brokers make a name of it by rules of theirs; without rules it is this one
            user = self.kerberos_name or "<the owner of the ticket cache>"
        if self.uses_sasl:
            return f"User:{user}" if user else _OF_TOKEN
        has_certificate = any(map(self.get, ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")))
        return _OF_CERTIFICATE if self.uses_tls and has_certificate else "User:ANONYMOUS"

    @property
    def known_principal(self) -> str | None:
        """Our principal, if brokers with Kafka's own principal builder make no other of it; None: a client can't know.

        They make it of a certificate's subject and of a Kerberos principal by rules of theirs, and of a claim of a token.
        """
        if self.uses_kerberos:
            return None
        if self.uses_sasl:
            user = self.properties.get("sasl.username")
            return f"User:{user}" if user and self.sasl_mechanism != "OAUTHBEARER" else None
        return None if self.principal == _OF_CERTIFICATE else self.principal

    @property
    def security_protocol(self) -> str:
        """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; librdkafka's default is PLAINTEXT."""
        return self.get("security.protocol", "PLAINTEXT").upper()

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether connections authenticate with SASL."""
        return self.security_protocol.startswith("SASL")

    @property
    def sasl_mechanism(self) -> str:
        """The SASL mechanism, such as ``SCRAM-SHA-512``; librdkafka's default is GSSAPI."""
        return methods.mechanism_of(self.properties)

    @property
    def uses_kerberos(self) -> bool:
        """Whether connections log in by Kerberos."""
        return self.uses_sasl and self.sasl_mechanism == "GSSAPI"

    @property
    def kerberos_name(self) -> str | None:
        """The first part of our Kerberos principal; None without Kerberos, or if the ticket cache has it."""
        principal = self.properties.get("sasl.kerberos.principal", "") if self.uses_kerberos else ""
        return principal.partition("@")[0].partition("/")[0] or None

    @property
    def verify_certificate(self) -> bool:
        """Whether a broker's certificate must chain to a trusted one."""
        return self.get("enable.ssl.certificate.verification", "true").lower() in ("true", "t", "1")

    @property
    def verify_hostname(self) -> bool:
        """Whether a broker's certificate must match the host name that we connect to."""
        return self.verify_certificate and self.get("ssl.endpoint.identification.algorithm", "https").lower() == "https"

    @property
    def socket_timeout_s(self) -> float:
        """Response timeout in seconds (``socket.timeout.ms``, 30 s if not set)."""
        return int(self.get("socket.timeout.ms", "30000")) / 1000

    @property
    def max_response_bytes(self) -> int:
        """The largest response size that is accepted, in bytes (``receive.message.max.bytes``)."""
        return int(self.get("receive.message.max.bytes", str(MAX_RESPONSE_BYTES)))

    @property
    def buffer_bytes(self) -> tuple[int, int]:
        """(send, receive) socket buffer sizes in bytes; 0 leaves them to the kernel."""
        return int(self.get("socket.send.buffer.bytes", "0")), int(self.get("socket.receive.buffer.bytes", "0"))

    @cached_property
    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context, built once: reading the CA file takes tens of milliseconds."""
        from airflow_mirror.wire.tls import ssl_context

        return ssl_context(self.get, verify_certificate=self.verify_certificate, verify_hostname=self.verify_hostname)

    @cached_property
    def oauth_tokens(self) -> Tokens:
        """The OAUTHBEARER tokens of this cluster. Errors as :func:`.methods.tokens_of`."""
        return methods.tokens_of(self.properties, self.role)

    @cached_property
    def kerberos(self) -> Tickets:
        """The Kerberos tickets of this cluster's identity.

        :raises InputError: gssapi is not installed.
        """
        from airflow_mirror.wire.kerberos.tickets import tickets_of

        return tickets_of(kerberos.identity_of(self.get, self.role))

    def _check_protocol(self) -> None:
        """Refuse settings of TLS and of a login that have no effect because nothing asks for either."""
        families = [k for k, v in self.properties.items() if v and k.startswith(("ssl.", "sasl."))]
        idle = [k for k in families if not k.startswith(_OFTEN_SET)]
        if idle and "security.protocol" not in self.properties:
            cause = f"not set, so that {idle[0]} has no effect and all goes in clear text ({self.role})"
            raise InvalidField("security.protocol", "", cause, "Set SSL or SASL_SSL; or PLAINTEXT, if that is meant.")

    def _check_credentials(self) -> None:
        if self.sasl_mechanism == "OAUTHBEARER":
            _ = self.oauth_tokens
            return
        if self.sasl_mechanism == "GSSAPI":
            if self.properties.get("sasl.username"):
                cause = f"GSSAPI (Kerberos), the default, takes no user and password ({self.role})"
                raise InvalidField("sasl.mechanism", self.properties.get("sasl.mechanism", ""), cause, _BY_PASSWORD)
            _ = self.kerberos
            return
        for key in ("sasl.username", "sasl.password"):
            if not self.properties.get(key):
                cause = f"{self.sasl_mechanism} needs it ({self.role})"
                raise InvalidField(key, "", cause, f"Set {key} in the connection.")
