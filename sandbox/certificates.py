"""A certificate authority for one session of tests or benchmarks."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Issued:
    """A certificate and its key as PEM texts; ``key`` is encrypted when a password was given."""

    certificate: str
    key: str


class Authority:
    """Issues certificates that are valid for a day, by elliptic keys."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = _pem(builder.sign(self._key, hashes.SHA256()))

    def issue(self, name: str, hosts: tuple[str, ...] = (), password: str | None = None) -> Issued:
        """Issue a certificate for ``CN=name`` and the addresses or host names ``hosts``."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key.public_key())
        if hosts:
            names: list[x509.GeneralName] = [
                x509.IPAddress(ipaddress.ip_address(h)) if h[0].isdigit() else x509.DNSName(h) for h in hosts
            ]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password.encode())
        encoded = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        return Issued(_pem(builder.sign(self._key, hashes.SHA256())), encoded.decode())

    def broker_settings(self, directory: Path, hosts: tuple[str, ...] = ("127.0.0.1",)) -> dict[str, str]:
        """Write a broker's key and this authority into ``directory``; return the broker settings that use them."""
        broker = self.issue("broker", hosts)
        (directory / "broker.pem").write_text(broker.key + broker.certificate)
        (directory / "ca.pem").write_text(self.certificate)
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(directory / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(directory / "ca.pem"),
        }

    def _builder(self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=1))
        )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
