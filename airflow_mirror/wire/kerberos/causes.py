"""What a failure of Kerberos means: the cause in words, what to do, and whether it may pass by itself.

Kerberos numbers its errors from a base; the names are those of RFC 4120 and of MIT's ``krb5.h``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from airflow_mirror.errors import InputError
from airflow_mirror.wire.errors import ConnectionLost
from airflow_mirror.wire.kerberos.identity import Identity

_BASE = -1765328384
_NO_CACHE = 195  # KRB5_FCC_NOFILE: also where a keytab gave no ticket because it is missing or has not the principal
_EXPIRED = 32  # KRB5KRB_AP_ERR_TKT_EXPIRED
# GSS_S_CREDENTIALS_EXPIRED and GSS_S_CONTEXT_EXPIRED: known before Kerberos is asked, whose own text is then "Success".
_GSS_EXPIRED = frozenset({11, 12})
_SILENT = frozenset({29, 156})  # KDC_ERR_SVC_UNAVAILABLE, KRB5_KDC_UNREACH: the KDC is down or busy
_KEY = "Its key was changed since the keytab was written: write the keytab again (ktadd, ktpass)."
_REMEDIES = {
    6: "Create the principal in its realm's KDC, or correct sasl.kerberos.principal.",
    7: "The brokers' realm must know each broker by the host name that it advertises, as {service}/{host}: check "
    "sasl.kerberos.service.name, [domain_realm] and dns_canonicalize_hostname in krb5.conf, and trust between realms.",
    18: "The principal, or its key, is locked or has expired: unlock it at the KDC.",
    23: "Its key has expired: change it, and write the keytab again.",
    24: _KEY,
    31: _KEY,
    37: "Set the clocks of this host, of the KDC and of the brokers (NTP): five minutes of difference are the limit.",
    154: "Name the realm's KDC in krb5.conf ([realms]); KRB5_CONFIG names another file, or several joined by colons.",
}


class Failure(NamedTuple):
    """Why there is no ticket. ``passes``: it may be gone at the next attempt."""

    cause: str
    remedy: str
    passes: bool = False


def no_ticket(role: str, address: str, identity: Identity, failure: Failure) -> InputError | ConnectionLost:
    """Return the error for a login without a ticket: a lost connection where the KDC did not answer in time."""
    nothing = f"no Kerberos ticket for {identity}"
    if failure.passes:
        return ConnectionLost(role, address, "login", f"{nothing}: {failure.cause}", failure.remedy)
    return InputError(f"{role} cluster, broker {address}: {nothing}", failure.cause, failure.remedy)


def says_nothing(error: Exception) -> bool:
    """Return whether an error hides what is wrong with a keytab."""
    return _number(error) == _NO_CACHE


def of_keytab(error: Exception) -> Failure:
    """Return what is wrong with a keytab: it is missing, is none, or has no key of the principal."""
    return Failure(_text(error), "Look at it with klist -k, and compare with sasl.kerberos.principal.")


def explain(error: Exception, identity: Identity, host: str) -> Failure:
    """Return what an error of gssapi means.

    :param error: a ``GSSError``.
    :param host: of the broker to log in to.
    """
    number, text = _number(error), _text(error)
    if number == _EXPIRED or int(getattr(error, "maj_code", 0)) >> 16 & 0xFF in _GSS_EXPIRED:
        return _expired(identity)
    if number == _NO_CACHE and not identity.keytab:
        return Failure("there is no such cache", "Get a ticket with kinit, or set sasl.kerberos.keytab.")
    if number in _SILENT:
        return silent(text)
    remedy = _REMEDIES.get(
        number, "Try kinit and kvno with the same principal on this host; krb5.conf and the KDC decide."
    )
    return Failure(text, remedy.format(service=identity.service, host=host))


def silent(cause: str) -> Failure:
    """Return the failure to reach the KDC."""
    return Failure(cause, "Connections that are open go on; check the realm's KDC, and krb5.conf.", passes=True)


def _expired(identity: Identity) -> Failure:
    remedy = (
        "Check the KDC: it gives no new one for the keytab."
        if identity.keytab
        else "Get another (kinit), and keep the cache fresh (k5start, krenew, a cron job); a keytab needs none of that."
    )
    return Failure("the ticket has expired", remedy, passes=bool(identity.keytab))


def _number(error: Exception) -> int:
    """Return Kerberos's number of an error; -1 if it is none of its own."""
    code = int(getattr(error, "min_code", 0) or 0)
    code -= 1 << 32 if code >= 1 << 31 else 0
    return code - _BASE if 0 <= code - _BASE < 256 else -1


def _text(error: Exception) -> str:
    """Return the text of Kerberos itself, without that of the layer above: "Unspecified GSS failure"."""
    said = error.gen_message() if hasattr(error, "gen_message") else str(error)
    return re.sub(r"^.*Minor \(\d+\): ", "", said, flags=re.DOTALL).strip().rstrip(".")
