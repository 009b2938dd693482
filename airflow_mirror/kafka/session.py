"""One admin client: its start, its futures, and its errors turned into ours.

librdkafka reports *why* it can't connect only through callbacks, while a call merely times out. The session collects
these reasons and puts the last one into the error. It also keeps librdkafka's log, hundreds of equal lines a second
while a broker is down, out of stderr: each distinct line goes once to the logger ``airflow_mirror.kafka.librdkafka``.
"""

from __future__ import annotations

import logging
import re
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from airflow_mirror.errors import (
    AuthenticationFailed,
    BrokerError,
    ClusterUnreachable,
    InputError,
    MirrorError,
    MissingRight,
    RequestRefused,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from airflow_mirror.config import ClientConfig

T = TypeVar("T")
K = TypeVar("K")

# The first call decides whether there is a cluster at all; people wait for its answer.
CONNECT_TIMEOUT_S = 8.0

_LOG = logging.getLogger("airflow_mirror.kafka.librdkafka")
_DOWN = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE}
_NOT_AUTHORIZED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
# A broker that answers one of these will answer the same to the same request.
_REFUSED = {
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_REPLICA_ASSIGNMENT,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_REQUEST,
    KafkaError.POLICY_VIOLATION,
    KafkaError.SECURITY_DISABLED,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.OFFSET_OUT_OF_RANGE,
}
# A coordinator or leader on its way: every call made through here is safe to send again.
SOON = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
}


class _Once(logging.Filter):
    """Pass each distinct librdkafka line once; thread names and durations don't make a line distinct."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        line = re.sub(r"\[thrd:[^]]*\]|rdkafka#\w+-\d+|\(after \d+ms[^)]*\)", "", record.getMessage())
        if line in self._seen:
            return False
        if len(self._seen) < 1000:
            self._seen.add(line)
        return True


class AdminSession:
    """An AdminClient with typed errors. Connects at the first use.

    :param timeout_s: for each call; the first one waits at most ``CONNECT_TIMEOUT_S`` for any broker.
    :raises InputError: when librdkafka refuses a setting.
    """

    def __init__(self, config: ClientConfig, timeout_s: float = 15.0) -> None:
        self.config, self.timeout_s = config, timeout_s
        self._reasons: dict[int, str] = {}  # last text per librdkafka code
        self._connected = False
        self.log = logging.Logger(_LOG.name)  # for other clients to the same cluster, too
        self.log.parent = _LOG
        self.log.addFilter(_Once())
        settings = {**config.common(), "error_cb": self._on_error, "log.connection.close": "false"}
        try:
            self._client = AdminClient(settings, logger=self.log)
        except KafkaException as e:
            raise InputError(
                f"{config.role} cluster: librdkafka refuses the settings: {self._clean(e.args[0].str())}. Settings are "
                "librdkafka's; correct or remove this one."
            ) from None

    @property
    def client(self) -> Any:
        """The AdminClient, once a broker has answered."""
        if not self._connected:
            self.describe_cluster(min(CONNECT_TIMEOUT_S, self.timeout_s))
            self._connected = True
        return self._client

    @property
    def principal(self) -> str:
        """Who this client is, as far as its settings say; for errors."""
        return str(self.config.properties.get("sasl.username") or "the connection's principal")

    def describe_cluster(self, timeout_s: float) -> Any:
        """Ask any broker for id and nodes.

        :raises ClusterUnreachable: when none answers in ``timeout_s``.
        :raises AuthenticationFailed: when a broker refuses the credentials.
        """
        self._reasons.clear()
        future = self._client.describe_cluster(request_timeout=timeout_s)
        deadline = time.monotonic() + timeout_s
        while not self._wait(future, 0.1):
            # librdkafka would try wrong credentials again until the timeout.
            if KafkaError._AUTHENTICATION in self._reasons or time.monotonic() > deadline + 1:
                raise self._unreachable()
        try:
            return future.result()
        except KafkaException as e:
            if e.args[0].code() in _DOWN:
                raise self._unreachable() from None
            raise self.typed(e.args[0], "describe cluster") from None

    def call(self, what: str, start: Callable[[Any, float], Future[T]]) -> T:
        """Run one admin call and return its result.

        :param what: the object, for the error: "create topic 'orders'".
        :param start: takes the AdminClient and a timeout in seconds, returns a future.
        """
        return self.call_each(lambda _: what, lambda client, timeout_s: {what: start(client, timeout_s)})[what]

    def call_each(
        self, what: Callable[[K], str], start: Callable[[Any, float], Mapping[K, Future[T]]], absent: int | None = None
    ) -> dict[K, T]:
        """Run an admin call that has one future per object; every one of them is checked.

        :param absent: the error code that means "there is no such object": those are left out of the result.
        :raises MirrorError: of the first object that failed, after all of them have been waited for.
        """
        give_up = time.monotonic() + self.timeout_s
        while True:
            results, errors = self._attempt(start)
            errors = {key: e for key, e in errors.items() if e.code() != absent}
            if not errors:
                return results
            retry = all(e.code() in SOON for e in errors.values()) and time.monotonic() < give_up
            if not retry:
                key, error = next(iter(errors.items()))
                raise self.typed(error, what(key))
            time.sleep(0.2)

    def blocking(self, what: str, run: Callable[[Any, float], T]) -> T:
        """Run one of the few client calls that block instead of returning a future."""
        try:
            return run(self.client, self.timeout_s)
        except KafkaException as e:
            raise self.typed(e.args[0], what) from None

    def _attempt(self, start: Callable[[Any, float], Mapping[K, Future[T]]]) -> tuple[dict[K, T], dict[K, Any]]:
        results: dict[K, T] = {}
        errors: dict[K, Any] = {}
        for key, future in start(self.client, self.timeout_s).items():
            while not self._wait(future, 0.25):
                pass  # bounded: librdkafka ends every future at the timeout that was given to it
            try:
                results[key] = future.result()
            except KafkaException as e:
                errors[key] = e.args[0]
        return results, errors

    def _wait(self, future: Future[Any], timeout_s: float) -> bool:
        """Wait for ``future``; serve librdkafka's callbacks. Return whether it is done."""
        try:
            future.exception(timeout=timeout_s)
        except FutureTimeout:
            pass  # not done yet; done() says so
        self._client.poll(0)
        return future.done()

    def typed(self, error: Any, what: str) -> MirrorError:
        """Turn a KafkaError into one of ours; ``what`` names the object."""
        code, what, text = error.code(), f"{self.config.role} cluster: {what}", self._clean(error.str() or "")
        if code in _NOT_AUTHORIZED:
            return MissingRight(what, error.name(), self.principal)
        if code in _REFUSED:
            return RequestRefused(what, code, error.name(), text)
        if code in _DOWN and self._connected:
            try:
                self.describe_cluster(3.0)
            except MirrorError as unreachable:
                return unreachable
        return BrokerError(what, code, error.name(), text)

    def _on_error(self, error: Any) -> None:
        self._reasons[error.code()] = self._clean(error.str() or error.name())

    def _unreachable(self) -> MirrorError:
        if KafkaError._AUTHENTICATION in self._reasons:
            return AuthenticationFailed(
                self.config.role, self.config.bootstrap, self._reasons[KafkaError._AUTHENTICATION]
            )
        # "all brokers down" is a consequence; any other text says more.
        reasons = [text for code, text in self._reasons.items() if code != KafkaError._ALL_BROKERS_DOWN]
        return ClusterUnreachable(self.config.role, self.config.bootstrap, reasons[-1] if reasons else "no answer")

    def _clean(self, text: str) -> str:
        for secret in self.config.secrets():
            text = text.replace(secret, "***")
        return text.rstrip(". ")


def chunks(items: Iterable[T], size: int) -> list[list[T]]:
    """Split into lists of at most ``size``: a request that names thousands of objects may be too large for a broker."""
    everything = list(items)
    return [everything[i : i + size] for i in range(0, len(everything), size)]
