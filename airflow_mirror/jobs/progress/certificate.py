"""The driver's certificate: made when it begins to listen, vouching for itself alone, gone with the process.

Tasks get the certificate with their work, over Spark's own connections, and trust no other. So nobody needs an authority,
a file or a setting, and where Spark's connections are encrypted nobody can take the driver's place either. The private
key never leaves the driver's memory.
"""

from __future__ import annotations

import base64
import ssl
from datetime import UTC, datetime
from typing import NamedTuple

from airflow_mirror.common.certificates import as_file

# Executors' clocks may be years away: what ends a certificate's validity is that its key is gone.
_FROM, _UNTIL = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)


class Identity(NamedTuple):
    """How the driver proves to tasks that it is their driver.

    :param context: for the driver's side of TLS connections.
    :param certificate: what :func:`airflow_mirror.copy.reporter.trusting` takes: base64 of its DER.
    """

    context: ssl.SSLContext
    certificate: str


def new_identity() -> Identity:
    """Return a new key with its certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "airflow-mirror driver")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), _FROM, _UNTIL)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)  # or none could be its own authority
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0  # a task takes whatever arrives for the driver's word, and resumes no session
    with as_file(pem.decode()) as path:
        context.load_cert_chain(path)
    return Identity(context, base64.b64encode(certificate.public_bytes(serialization.Encoding.DER)).decode())
