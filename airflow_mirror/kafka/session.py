"""A session with one cluster: first contact, routing, retries, and our own error types.

Every request names many objects, and a broker answers for each of them. :meth:`AdminSession.each` keeps these answers
apart: temporary errors are retried, and the first rejection is raised only after all objects have an answer. A request
with a lost response may have been executed. Only the caller can tell whether a later rejection ("exists already") means
that, so it passes a function for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from airflow_mirror.common.closing import Closing
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import BrokerError, ClusterUnreachable, InvalidField, MirrorError, RequestRefused
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.error_codes import ErrorCode, error_name
from airflow_mirror.wire.errors import RETRIABLE, ConnectionLost, meaning, refusal
from airflow_mirror.wire.retry import Backoff
from airflow_mirror.wire.routing import Router
from airflow_mirror.wording import count

log = logging.getLogger(__name__)

K = TypeVar("K")
T = TypeVar("T")

# The first call decides whether there is a cluster at all, and people wait for its result.
CONNECT_TIMEOUT_S = 8.0
CHUNK = 500  # objects per request: one that names thousands may be too large for a broker

# A broker that answers with one of these codes will repeat it for the same request.
_REFUSED = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.SECURITY_DISABLED,
    }
)
# A coordinator, leader or controller is moving, or a quota is exceeded for the moment.
_SOON = RETRIABLE | {ErrorCode.UNSTABLE_OFFSET_COMMIT}
# After one of these the request may have been executed, or be executed later.
_IN_DOUBT = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION})
_NOT_AUTHORIZED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)


class Reply(NamedTuple, Generic[K, T]):
    """A broker's answer for one object. ``code`` 0: ``value`` is valid; else ``text`` may hold the broker's message."""

    key: K
    code: int
    text: str | None
    value: T


class Unanswered(NamedTuple):
    """Why there is no reply. ``sent``: whether the request left this machine, so that it may have been executed."""

    error: ConnectionLost | ClusterUnreachable
    sent: bool


# What came instead of a valid answer.
Failure = Reply[K, T] | Unanswered


class AdminSession(Closing):
    """Sends requests to one cluster. Belongs to one thread. Connects at first use, and again after :meth:`close`.

    :param config: how to reach the cluster; errors name it by ``config.role``.
    :param timeout_s: for each call; the first one waits at most ``CONNECT_TIMEOUT_S`` for any broker.
    :raises InvalidField: a setting is unsupported; the error shows no secret.
    """

    def __init__(self, config: ClientConfig, timeout_s: float = 15.0) -> None:
        self.config, self.timeout_s = config, timeout_s
        try:
            self._cluster = WireCluster(config.for_admin(), timeout_s=timeout_s)
        except InvalidField as e:
            shown, cause = self._clean(str(e.value)), self._clean(e.cause)
            raise InvalidField(f"{config.where or f'{config.role} cluster'}: {e.field}", shown, cause, e.remedy) from None
        self.router = Router(self._cluster)
        self._connected = False
        self._sent = False  # whether the current request was sent
        self._said = set[str]()

    def says_once(self, what: str) -> bool:
        """Return whether this was not said before by this session, and note that it is now."""
        known = what in self._said
        self._said.add(what)
        return not known

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self._cluster.close()
        self.router.forget()
        self._connected = False

    @property
    def role(self) -> str:
        """The cluster's role: ``source`` or ``target``."""
        return self.config.role

    @property
    def known_principal(self) -> str | None:
        """Our principal, if a client can know it."""
        return self._cluster.settings.known_principal

    @property
    def kerberos_name(self) -> str | None:
        """The first part of our Kerberos principal; None without Kerberos, or if the ticket cache has it."""
        return self._cluster.settings.kerberos_name

    @property
    def wire(self) -> WireCluster:
        """The connections that its requests take, for reading and writing logs, once a broker has answered.

        :raises ClusterUnreachable: no broker answers. :raises AuthenticationFailed: a broker rejects the credentials.
        """
        if not self._connected:
            self._cluster.reach(min(CONNECT_TIMEOUT_S, self.timeout_s))
            self._connected = True
        return self._cluster

    @property
    def write_timeout_ms(self) -> int:
        """Timeout of a change at the broker, in ms; it ends before the connection times out."""
        return self.wire.write_timeout_ms

    def anywhere(self) -> Connection:
        """Return a connection to any broker that answers."""
        return self.wire.any_connection()

    def controller(self) -> Connection:
        """Return a connection to the controller, which changes topics."""
        _ = self.wire
        return self.router.controller()

    def request(self, connection: Connection, message: Any, version: int, permit: Permit | None = None) -> Any:
        """Send a request of kafka-python's classes; return the response.

        :param permit: of one that changes something: called last, right before the bytes.
        """
        self._sent = True
        return connection.request(message, version, permit)

    def newest(
        self, connection: Connection, request: Any, versions: tuple[int, int], permit: Permit | None = None, **fields: Any
    ) -> Any:
        """Send a request of a class of kafka-python's in the newest version that both sides have.

        :param versions: the lowest and the highest that we speak. :param permit: as for :meth:`request`.
        """
        version = connection.newest(request.API_KEY, *versions)
        return self.request(connection, request(version=version, **fields), version, permit)

    def at_each_broker(self, ask: Callable[[Connection], Reply[str, T]]) -> Reply[str, dict[int, T]]:
        """Query every live broker about its own part; return the values by its id.

        The error of one is the error of all: a partial result would lose objects silently.
        """
        _ = self.wire
        found: dict[int, T] = {}
        for node_id, connection in self.router.brokers():
            reply = ask(connection)
            if reply.code:
                return Reply("", reply.code, reply.text, {})
            found[node_id] = reply.value
        return Reply("", 0, None, found)

    def one(self, what: str, ask: Callable[[], Reply[str, T]], right: str) -> T:
        """Send a request about a single object; see :meth:`each`."""
        return self.each(lambda _: what, [""], lambda _: [ask()], right)[""]

    def each(
        self,
        what: Callable[[K], str],
        keys: Iterable[K],
        ask: Callable[[list[K]], Iterable[Reply[K, T]]],
        right: str | Callable[[int], str],
        *,
        name: Callable[[K, int], str] = lambda key, code: str(key),
        absent: int | None = None,
        done: Callable[[K, int], T | None] = lambda key, code: None,
        chunk: int = CHUNK,
    ) -> dict[K, T]:
        """Query objects until each has a final answer; return the values.

        :param what: names an object in errors: "create topic 'orders'".
        :param ask: sends one request for some objects and yields a reply for each of them.
        :param right: the ACL operation that is needed, as in kafka-acls; or what tells it by the error code.
        :param name: the resource of that ACL, given an object and the error code.
        :param absent: the error code that means "there is no such object"; such objects are omitted from the result.
        :param done: called for a rejection after a lost response. Returns the value if the first request was executed,
            None if the rejection is real.
        :raises MirrorError: of the first object that was rejected, after all of them have been queried.
        """
        found: dict[K, T] = {}
        in_doubt: set[K] = set()
        for failed, late in self._rounds(keys, ask, chunk, self.timeout_s, found):
            for key in [key for key, failure in failed.items() if isinstance(failure, Reply) and failure.code == absent]:
                del failed[key]
            for key in in_doubt.intersection(failed):
                code = _code(failed[key])
                value = done(key, code) if code not in _SOON else None
                if value is not None:
                    found[key] = value
                    del failed[key]
            in_doubt |= {key for key, failure in failed.items() if _code(failure) in _IN_DOUBT}
            final = [key for key, failure in failed.items() if _code(failure) not in _SOON]
            if failed and (final or late):  # after a rejection, retrying other objects can't help
                key = (final or list(failed))[0]
                code = _code(failed[key])
                needed = right if isinstance(right, str) else right(code)
                raise self._error(failed[key], what(key), needed, name(key, code))
        return found

    def each_apart(
        self,
        what: Callable[[K], str],
        keys: Iterable[K],
        ask: Callable[[list[K]], Iterable[Reply[K, T]]],
        right: str,
        patience_s: float,
    ) -> tuple[dict[K, T], dict[K, MirrorError]]:
        """Query objects like :meth:`each`; an object without a valid answer gets an error and delays no other for long.

        :param patience_s: for temporary errors.
        :raises ClusterUnreachable: no broker answers at the first contact.
        """
        found: dict[K, T] = {}
        errors: dict[K, MirrorError] = {}
        for failed, late in self._rounds(keys, ask, CHUNK, patience_s, found):
            for key in [key for key, failure in failed.items() if late or _code(failure) not in _SOON]:
                errors[key] = self._error(failed.pop(key), what(key), right, str(key))
            # A moved coordinator may be behind any of them, and the next call would ask the old one again.
            self.router.forget()
        return found, errors

    def at_coordinators(
        self, groups: list[str], ask: Callable[[Connection, list[str]], Iterable[Reply[str, T]]]
    ) -> Iterator[Reply[str, T]]:
        """Query the coordinator of each group; if one fails, the answers of the others are kept."""
        cluster = self.wire
        by_broker, lost = self.router.coordinators(groups)
        for one in lost:
            yield Reply(one.key, one.code, one.text, None)  # type: ignore[arg-type]  # nobody reads the value of an error
        for node_id, its in by_broker.items():
            left = dict.fromkeys(its)
            try:
                for reply in ask(cluster.connection(node_id), its):
                    left.pop(reply.key, None)
                    yield reply
            except ConnectionLost as e:
                for group in left:
                    yield Reply(group, ErrorCode.NETWORK_EXCEPTION, str(e), None)  # type: ignore[arg-type]

    def error(self, code: int, text: str | None, what: str, right: str, name: str) -> MirrorError:
        """Return the exception for a code and the broker's message; ``what`` names the object, ``name`` the resource."""
        what = f"{self.config.role} cluster: {what}"
        if code in _NOT_AUTHORIZED:
            return refusal(what, code, right, name, self._cluster.settings.principal)
        said = self._clean(text or "")
        if code in _REFUSED:
            return RequestRefused(what, code, error_name(code), said, meaning(code))
        return BrokerError(what, code, error_name(code), meaning(code, said))

    def _error(self, failure: Failure[Any, Any], what: str, right: str, name: str) -> MirrorError:
        if isinstance(failure, Reply):
            return self.error(failure.code, failure.text, what, right, name)
        return failure.error

    def _rounds(
        self,
        keys: Iterable[K],
        ask: Callable[[list[K]], Iterable[Reply[K, T]]],
        chunk: int,
        patience_s: float,
        found: dict[K, T],
    ) -> Iterator[tuple[dict[K, Failure[K, T]], bool]]:
        """Query objects, and those again that the caller leaves among the failures which each round yields.

        :param found: gets the values. :return: with the failures, whether ``patience_s`` have passed.
        """
        pending = list(dict.fromkeys(keys))
        backoff = Backoff(patience_s)
        while pending:
            failed: dict[K, Failure[K, T]] = {}
            before_s = self._cluster.throttled_s
            for key, answer in self._ask(pending, ask, chunk):
                if isinstance(answer, Reply) and not answer.code:
                    found[key] = answer.value
                else:
                    failed[key] = answer
            throttled_s = max(0.0, self._cluster.throttled_s - before_s)
            backoff.put_off(throttled_s)  # a quota is no error, however long it holds
            if throttled_s and any(_code(one) == ErrorCode.THROTTLING_QUOTA_EXCEEDED for one in failed.values()):
                log.warning(
                    "%s cluster: throttled by quota: %s wait %.1f s", self.role, count(len(failed), "change"), throttled_s
                )
            if failed:
                yield failed, backoff.expired
            pending = list(failed)
            if pending:
                self.router.forget()
                backoff.pause()

    def _ask(
        self, keys: Sequence[K], ask: Callable[[list[K]], Iterable[Reply[K, T]]], chunk: int
    ) -> Iterator[tuple[K, Failure[K, T]]]:
        """Yield the reply for each object, or why there is none."""
        _ = self.wire  # the first contact has its own time limit and errors
        for some in chunks(keys, chunk):
            left = dict.fromkeys(some)
            self._sent = False
            try:
                for reply in ask(some):
                    left.pop(reply.key, None)
                    yield reply.key, reply
            except (ConnectionLost, ClusterUnreachable) as e:
                yield from ((key, Unanswered(e, self._sent)) for key in left)
            else:
                for key in left:  # without a word it counts for nothing, and least of all for a yes
                    unsaid = "the broker's answer leaves it out"
                    yield key, Reply(key, ErrorCode.NETWORK_EXCEPTION, unsaid, None)  # type: ignore[arg-type]  # no value

    def _clean(self, text: str) -> str:
        for secret in self.config.secrets():
            text = text.replace(secret, "***")
        return text.rstrip(". ")


def _code(failure: Failure[Any, Any]) -> int:
    """Return the error code. Without one from a broker: that of a lost connection, or of one that never existed."""
    if isinstance(failure, Reply):
        return failure.code
    return ErrorCode.NETWORK_EXCEPTION if failure.sent else ErrorCode.BROKER_NOT_AVAILABLE


def chunks(items: Iterable[T], size: int) -> list[list[T]]:
    """Split into lists of at most ``size``."""
    everything = list(items)
    return [everything[i : i + size] for i in range(0, len(everything), size)]
