"""Ed25519 signatures of links: made with a private key that a reference names, checked with a public one from a file.

As for the settings of a cluster, a reference names the key, a path or ``env:NAME``; the key itself is in no setting of
Airflow, report, log or error.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_mirror.errors import InputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


class Signer:
    """Signs with one key. Shows of it nothing but the fingerprint of its public half."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    def sign(self, data: bytes) -> dict[str, str]:
        """Return the ``signature``, in base64, and the fingerprint of the ``key``. The same data give the same ones."""
        signature = base64.b64encode(self._key.sign(data)).decode()
        return {"signature": signature, "key": fingerprint(self._key.public_key())}


def load_signer(reference: str) -> Signer:
    """Return a signer of the private key that a reference names: a PEM file, or ``env:NAME`` with its text.

    :raises InputError: it is not there, or no unencrypted Ed25519 key in PEM (PKCS #8). The error quotes nothing of it.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if reference.startswith("env:"):
        pem = os.environ.get(reference.removeprefix("env:"), "").encode()
        if not pem:
            raise InputError(
                "the key that signs reports",
                f"environment variable {reference[4:]} is not set",
                "Set it to the text of the key's PEM file.",
            )
    else:
        pem = _read(reference, "the key that signs reports")
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it is encrypted
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(
            "the key that signs reports",
            f"{reference} holds no unencrypted Ed25519 private key in PEM",
            "Make one: openssl genpkey -algorithm ed25519 -out KEY.pem",
        )
    return Signer(key)


def load_public(path: str) -> Ed25519PublicKey:
    """Return the public key in a PEM file.

    :raises InputError: it is not there, or no Ed25519 key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(_read(path, "the public key"))
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(
            "the public key",
            f"{path} holds no public Ed25519 key in PEM",
            "'openssl pkey -in KEY.pem -pubout' prints it.",
        )
    return key


def fingerprint(key: Ed25519PublicKey) -> str:
    """Return the SHA-256 of a public key in DER, as ``openssl pkey -pubin -outform DER | sha256sum`` has it."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def is_signed(key: Ed25519PublicKey, seal: Mapping[str, object], data: bytes) -> bool:
    """Return whether the key has made the signature of a seal over these data."""
    from cryptography.exceptions import InvalidSignature

    text = str(seal.get("signature"))
    try:
        signature = base64.b64decode(text, validate=True)
        key.verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return base64.b64encode(signature).decode() == text  # the last character has bits that decoding ignores


def _read(path: str, what: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as e:
        raise InputError(f"{what}: file {path!r} can't be read", str(e.strerror or e), "Check the path.") from None
