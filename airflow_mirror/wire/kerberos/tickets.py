"""Tickets of one identity: a thread gets them from the KDC and renews them before they end; logins use what is there.

- Who asks a KDC that hangs is blocked for 25 seconds. So only this thread asks, and a login waits for it as long as it
  would wait for a silent broker. A login whose tickets are here asks nobody.
- Tickets of a keytab are renewed at half of their life, as long as somebody logs in now and then: a KDC may be down for
  the other half, and no login notices.
- New tickets go into a second cache in memory, which takes the first one's place once it has a ticket for every broker.
  A login never meets a cache that is just being filled.
- Kerberos's credentials expire as objects. Each login makes new ones, of the cache.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from airflow_mirror.common.oauth.extra import library
from airflow_mirror.wire.kerberos.causes import Failure, explain, of_keytab, says_nothing, silent
from airflow_mirror.wire.kerberos.identity import Identity

log = logging.getLogger(__name__)

_LEAST_S = 2.0  # a ticket that ends sooner is not used: the broker's clock may be ahead
_AGAIN_S = 5.0  # after a renewal that failed
_IDLE_LIVES = 2  # tickets that nobody used for so many of their lives are not renewed
_numbers = itertools.count(1)


class Unavailable(Exception):  # noqa: N818 - a result, from which a login makes the error that names its broker
    """There is no ticket."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


@dataclass(kw_only=True)
class _Cache:
    """A ticket cache; all times are those of the wall clock, in seconds, as tickets have them.

    :param life_s: of the ticket that gets the others.
    :param hosts: when the ticket for each broker's host ends.
    :param seen: what the cache's file looked like when this was read; None for one in memory, which is ours alone.
    """

    name: str
    begun: float = 0.0
    life_s: float = 0.0
    hosts: dict[str, float] = field(default_factory=dict)
    seen: object = None

    @property
    def ends(self) -> float:
        """When it is of no more use."""
        return self.begun + self.life_s

    @property
    def renew_at(self) -> float:
        """When half of its life is over."""
        return self.begun + self.life_s / 2


class _Asking:
    """A question to the KDC. ``failure`` is valid once it is ``over``."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.failure: Failure | None = None


def tickets_of(identity: Identity) -> Tickets:
    """Return the tickets of an identity, which all logins of this process share.

    :raises InputError: gssapi can't be imported.
    """
    with _registry_lock:
        if identity not in _registry:
            # One for the process: each has a thread that asks the KDC, and a cache in memory.
            _registry[identity] = Tickets(identity)
        return _registry[identity]


class Tickets:
    """Gives logins their tickets. Its methods may be called from any thread.

    :raises InputError: gssapi can't be imported.
    """

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self._gssapi = _library()
        self._cache = _Cache(name=_new_name() if identity.keytab else identity.cache)
        self._spare = _new_name()
        self._changed = threading.Condition()  # guards what follows
        self._asked: dict[str, _Asking] = {}
        self._used_at = self._renew_after = 0.0
        self._works = False

    def is_at_hand(self, host: str) -> bool:
        """Return whether a login to a host needs no KDC now. If it does, the KDC is asked from now on."""
        with self._changed:
            return self._ask(host) is None

    def begin(self, host: str, timeout_s: float) -> tuple[Any, bytes]:
        """Return a security context for a login to a host, and the first token to send.

        :raises Unavailable: there is no ticket, or none came within ``timeout_s``.
        """
        with self._changed:
            self._used_at = time.time()
            asking = self._ask(host)
        if asking is not None:
            # Only this login gives up. The thread asks on, and the next login finds what came.
            if not asking.over.wait(timeout_s):
                raise Unavailable(silent(f"no answer from the KDC within {timeout_s:.3g} s"))
            if asking.failure is not None:
                raise Unavailable(asking.failure)
        try:
            # The cache of this moment. One that takes its place meanwhile leaves it as it is, until it is filled again
            # half a life later.
            context = self._context(self._credentials(self._cache.name), host)
            return context, bytes(context.step() or b"")
        except self._gssapi.exceptions.GSSError as e:
            raise Unavailable(explain(e, self.identity, host)) from None

    # --- asking -------------------------------------------------------------------------------------------------------

    def _ask(self, host: str) -> _Asking | None:
        """Have the thread ask the KDC if need be; return the question, or None if the ticket is here."""
        cache = self._cache
        if cache.hosts.get(host, 0.0) - _LEAST_S > time.time() and (cache.seen is None or cache.seen == self._seen()):
            return None
        # One question for all who wait for this host.
        asking = self._asked.setdefault(host, _Asking())
        if not self._works:
            self._works = True
            threading.Thread(target=self._work, name="kerberos", daemon=True).start()
        self._changed.notify_all()
        return asking

    def _work(self) -> None:
        """Answer questions, and renew tickets; ends when nobody has logged in for long."""
        while True:
            with self._changed:
                host = self._next()
                if host is None:
                    # Under the lock in which `_next` found nothing: who asks later starts another thread, who asked
                    # before was seen.
                    self._works = False
                    return
            if host:
                self._answer(host)
            else:
                self._renew()

    def _next(self) -> str | None:
        """Wait for something to do: a host that is asked for, "" if tickets are to be renewed, None to end."""
        # Called under the lock, which `wait` lets go of: a question that comes meanwhile wakes it.
        while not self._asked:
            if not self.identity.keytab:
                return None
            if self._used_at + _IDLE_LIVES * self._cache.life_s < time.time():
                return None
            wait_s = max(self._cache.renew_at, self._renew_after) - time.time()
            if wait_s <= 0:
                return ""
            self._changed.wait(wait_s)
        return next(iter(self._asked))

    def _answer(self, host: str) -> None:
        failure: Failure | None = None
        try:
            self._get(host)
        except self._gssapi.exceptions.GSSError as e:
            failure = self._explained(e, host)
        except Exception as e:  # whatever it is: logins wait for an answer
            log.exception("no Kerberos ticket for %s", self.identity)
            failure = Failure(f"{type(e).__name__}: {e}", "This is a bug.")
        with self._changed:
            # Before it is over: who asks from now on gets a question of its own, and not the failure of this one.
            asking = self._asked.pop(host)
        # Before those who wait are let go on, who read it.
        asking.failure = failure
        asking.over.set()

    def _explained(self, error: Exception, host: str) -> Failure:
        if self.identity.keytab and says_nothing(error):
            gssapi = self._gssapi
            name = gssapi.Name(self.identity.principal, gssapi.NameType.kerberos_principal)
            try:  # as a service would: that reads the keytab alone, and tells what is wrong with it
                gssapi.Credentials(name=name, usage="accept", store={"keytab": self.identity.keytab})
            except gssapi.exceptions.GSSError as e:
                return of_keytab(e)
        return explain(error, self.identity, host)

    def _renew(self) -> None:
        try:
            # Whatever fails in it, the cache in use stays as it is, with half of its life left for further tries.
            self._replace(self._cache.hosts)
            log.info("Kerberos tickets of %s renewed for %.0f s", self.identity, self._cache.life_s)
        except self._gssapi.exceptions.GSSError as e:
            left_s, cause = self._cache.ends - time.time(), explain(e, self.identity, "").cause
            end = f"they end in {left_s:.0f} s" if left_s > 0 else f"they ended {-left_s:.0f} s ago"
            log.warning("Kerberos tickets of %s not renewed, %s: %s", self.identity, end, cause)
        self._renew_after = time.time() + _AGAIN_S

    # --- what the thread does -----------------------------------------------------------------------------------------

    def _get(self, host: str) -> None:
        """Get a ticket for a host, and before that a new one for the KDC itself if there is none."""
        cache = self._cache
        if self.identity.keytab and cache.ends - _LEAST_S <= time.time():
            self._replace([host])
            return
        credentials = self._credentials(cache.name)
        ends = self._ticket_ends(credentials, host)
        seen = None if self.identity.keytab else self._seen()  # after it: Kerberos adds the ticket to the file
        with self._changed:
            # Somebody has written the file meanwhile (kinit, k5start): what it held for other hosts may be gone.
            if seen is not None and seen != cache.seen:
                cache.hosts.clear()
            cache.hosts[host], cache.seen = ends, seen

    def _replace(self, hosts: Iterable[str]) -> None:
        """Fill the spare cache with new tickets, and let it take the place of the one in use."""
        credentials = self._renewed()
        # Filled aside. A KDC that stops answering half-way, or a death of the thread, leaves the cache in use as it
        # was.
        new = _Cache(name=self._spare, begun=time.time(), life_s=float(credentials.lifetime or 0))
        for host in list(hosts):
            new.hosts[host] = self._ticket_ends(credentials, host)
        with self._changed:
            # At once: a login has the cache of before or this one. That of before is filled again half a life later.
            self._spare, self._cache = self._cache.name, new

    def _renewed(self) -> Any:
        """Return credentials of a new ticket in the spare cache.

        What was there before may be given once more, or reported as expired, when the KDC gives nothing new: for the
        reason a cache is asked that never held anything.
        """
        try:
            credentials = self._credentials(self._spare, self.identity.keytab)
            if time.time() + (credentials.lifetime or 0) > self._cache.ends + 1:
                return credentials
        except self._gssapi.exceptions.ExpiredCredentialsError:
            pass
        self._spare = _new_name()
        return self._credentials(self._spare, self.identity.keytab)

    def _ticket_ends(self, credentials: Any, host: str) -> float:
        """Have the ticket for a host put into the cache; return when it ends."""
        # A context that needs no answer from the broker is complete after one step, and tells the ticket's end.
        one_way = self._gssapi.RequirementFlag.out_of_sequence_detection
        context = self._context(credentials, host, flags=one_way)
        context.step()
        return time.time() + float(context.lifetime or 0)

    # --- gssapi -------------------------------------------------------------------------------------------------------

    def _credentials(self, cache: str, keytab: str = "") -> Any:
        """Return new credentials of a cache; with a keytab, the KDC gives a new ticket if the one there is old."""
        gssapi, principal = self._gssapi, self.identity.principal
        name = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None
        store = {key: value for key, value in (("ccache", cache), ("client_keytab", keytab)) if value}
        return gssapi.Credentials(name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=store or None)

    def _context(self, credentials: Any, host: str, flags: Any = None) -> Any:
        gssapi = self._gssapi
        name = gssapi.Name(f"{self.identity.service}@{host}", gssapi.NameType.hostbased_service)
        mechanism = gssapi.MechType.kerberos
        return gssapi.SecurityContext(name=name, creds=credentials, mech=mechanism, usage="initiate", flags=flags)

    def _seen(self) -> object:
        """Return what changes when somebody writes the ticket cache's file; a new object each time if nothing does."""
        try:
            state = os.stat(self._cache.name.removeprefix("FILE:"))
        except OSError:
            return object()
        return state.st_ino, state.st_size, state.st_mtime_ns


def _new_name() -> str:
    return f"MEMORY:airflow-mirror-{next(_numbers)}"


def _library() -> Any:
    more = " It is compiled, which needs gcc and Kerberos's headers (Debian: libkrb5-dev; Red Hat: krb5-devel)."
    return library("gssapi", "gssapi", "kerberos", "sasl.mechanism=GSSAPI", more)


_registry: dict[Identity, Tickets] = {}
_registry_lock = threading.Lock()


def _forget() -> None:
    """Begin anew in a forked child: it has none of the threads, and perhaps a lock that one of them held."""
    global _registry_lock
    _registry_lock = threading.Lock()
    _registry.clear()


os.register_at_fork(after_in_child=_forget)
