"""A token for all connections of a process, and its renewal."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from airflow_mirror.errors import MirrorError, TryAgain

Get = Callable[..., str]
"""Returns a setting; the second argument is the default, "" if omitted."""

log = logging.getLogger(__name__)

# Of its life. Clocks and the way to the broker take a share of it: who sends one that has just ended is refused for good.
_STALE_AT, _ENDS_AT = 0.8, 0.95
_PATIENCE_S = 2.0  # how long a login waits for a new token while it has one that is still valid
_BROKERS_LOG = "Only the broker's log says why: issuer, audience, scope, or a clock that is off."


class Token(NamedTuple):
    """A token as it is sent; ``life_s``: seconds from now in which a broker accepts it."""

    value: str
    life_s: float
    extensions: Mapping[str, str] = {}


def extensions_of(get: Get) -> dict[str, str]:
    """Return what settings say is to be sent beside a token, such as ``logicalCluster=lkc-1,identityPoolId=pool-2``."""
    pairs = (one.strip() for one in get("sasl.oauthbearer.extensions").split(","))
    return dict(pair.partition("=")[::2] for pair in pairs if pair)


@dataclass(frozen=True)
class Maker:
    """How tokens are made.

    :param make: returns a new one; may ask a server, and wait for it.
    :param advise: returns what to do, from the words with which a broker refused one.
    """

    make: Callable[[], Token]
    advise: Callable[[str], str] = field(default=lambda said: _BROKERS_LOG)


class Tokens:
    """What kafka-python and librdkafka ask for tokens. Its methods may be called from any thread.

    The source of tokens may hang, and what waits for a login here may be the confirmation of a lease. So a stale token is
    renewed by a thread of its own; logins go on with it while it is valid, after a moment of waiting.

    :param patience_s: that moment.
    """

    def __init__(self, maker: Maker, patience_s: float = _PATIENCE_S) -> None:
        self._maker, self._patience_s = maker, patience_s
        self._lock = threading.Lock()  # guards what follows
        self._token, self._stale_at, self._ends_at = Token("", 0.0), 0.0, 0.0
        self._renewal: threading.Thread | None = None
        self._failure: MirrorError | None = None

    def token(self) -> str:
        """Return a valid token. Raises what its making raised, if there is none."""
        return self._current().value

    def extensions(self) -> dict[str, str]:
        """Return what is sent beside the token."""
        return dict(self._token.extensions)

    def callback(self, _config: str) -> tuple[str, float, str, dict[str, str]]:
        """Return token, its end (seconds since the epoch), no principal and the extensions: librdkafka's ``oauth_cb``."""
        token = self._current()
        return token.value, time.time() + max(self._ends_at - time.monotonic(), 1.0), "", dict(token.extensions)

    def advise(self, said: str) -> str:
        """Return what to do about a broker that refused a token with these words."""
        return self._maker.advise(said)

    def _current(self) -> Token:
        with self._lock:
            now = time.monotonic()
            if now < self._stale_at:
                return self._token
            if self._renewal is None:
                self._renewal = threading.Thread(target=self._renew, name="token", daemon=True)
                self._renewal.start()
            renewal = self._renewal
        renewal.join(self._patience_s if now + self._patience_s < self._ends_at else None)  # None: until it is there
        with self._lock:
            if self._failure is not None and time.monotonic() >= self._ends_at:
                raise self._failure
            return self._token

    def _renew(self) -> None:
        token, failure = None, None
        try:
            token = self._maker.make()
        except MirrorError as e:
            failure = e
        except Exception as e:  # of a library, or of somebody's function: whoever logs in gets it
            failure = TryAgain("no token was made", f"{type(e).__name__}: {e}", "Correct what makes it, if this repeats.")
        with self._lock:
            self._failure, self._renewal = failure, None
            if token is not None:
                now = time.monotonic()
                self._token = token
                self._stale_at, self._ends_at = now + _STALE_AT * token.life_s, now + _ENDS_AT * token.life_s
            elif self._token.value:
                log.warning("no new token yet, the old one ends in %.0f s: %s", self._ends_at - time.monotonic(), failure)


_registry: dict[Any, Tokens] = {}
_registry_lock = threading.Lock()


def shared(key: object, make: Callable[[], Maker]) -> Tokens:
    """Return the tokens of ``key``, one for all of this process: what proves an identity is asked for once, and kept."""
    with _registry_lock:
        if key not in _registry:
            _registry[key] = Tokens(make())
        return _registry[key]


def _forget() -> None:
    """Begin anew in a forked child: it has none of the threads, and perhaps a lock that one of them held."""
    global _registry_lock
    _registry_lock = threading.Lock()
    _registry.clear()


os.register_at_fork(after_in_child=_forget)
