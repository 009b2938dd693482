"""A local Kafka cluster of one or more real nodes."""

from __future__ import annotations

import atexit
import base64
import errno
import os
import re
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

from airflow_mirror.errors import InputError
from sandbox import ready
from sandbox.errors import DiskFull
from sandbox.home import Home
from sandbox.kdc import SERVICE, Realm
from sandbox.node import Node
from sandbox.ports import ReservedPort, reserve
from sandbox.process import Started, stands_still
from sandbox.program import Installed, Program, install
from sandbox.settings import SUPER_USER, USERS, BrokerLogin, NodeAddresses, jaas, node_settings
from sandbox.versions import DEFAULT_VERSION, Release, release
from sandbox.zookeeper import ZooKeeper

T = TypeVar("T")

_STOP_TIMEOUT_S = 20.0
_running: set[Cluster] = set()  # held here so that a dropped reference loses no cluster


class Cluster(Started):
    """Kafka nodes on this machine; start it with ``with`` or :meth:`start`.

    :param name: for messages and directories; letters, digits, ``-`` and ``_``.
    :param nodes: how many nodes; with KRaft each is broker and controller. One or three are useful.
    :param overrides: broker settings that win over the sandbox's own.
    :param authorizer: ACLs are enforced and a second listener asks for user and password, see :meth:`properties`.
    :param data_dir: a directory to keep; by default a temporary one, deleted on :meth:`stop`.
    :param ports: the PLAINTEXT port of each node; free ports by default.
    :param version: the release of Kafka, one of :data:`sandbox.versions.RELEASES`.
    :param zookeeper: with a ZooKeeper beside the nodes; by default only where the release needs it.
    :param kerberos: a started realm; the second listener lets its principals in as well, see :meth:`kerberos_properties`.
        Needs ``authorizer``.
    :param classes: a directory of compiled classes that the nodes find, such as a policy of yours.
    :param heap_mb: maximum heap of a node in MB.
    :param min_free_mb: free space that the data directory's file system must have at the start, in MB.
    :param ready_timeout_s: how long a node may take to become ready, in seconds.
    :raises InputError: for a name, a number of nodes or a version that can't be.
    """

    def __init__(
        self,
        name: str,
        nodes: int = 1,
        overrides: Mapping[str, str] | None = None,
        authorizer: bool = False,
        data_dir: str | Path | None = None,
        *,
        ports: Sequence[int] | None = None,
        version: str = DEFAULT_VERSION,
        zookeeper: bool | None = None,
        kerberos: Realm | None = None,
        classes: str | Path | None = None,
        heap_mb: int = 512,
        min_free_mb: int = 256,
        ready_timeout_s: float = 240.0,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name):
            raise InputError(f"cluster name {name!r}: use 1 to 60 letters, digits, '-' and '_'.")
        if not 1 <= nodes <= 9:
            raise InputError(f"cluster {name!r}: nodes={nodes}; one or three make sense, nine are the limit.")
        if ports is not None and len(ports) != nodes:
            raise InputError(f"cluster {name!r}: {len(ports)} port(s) for {nodes} node(s); give one for each node.")
        self.name, self.node_count, self.authorizer, self.release = name, nodes, authorizer, release(version)
        self._with_zookeeper = self.release.needs_zookeeper if zookeeper is None else zookeeper
        if self._with_zookeeper and not self.release.knows_zookeeper:
            raise InputError(f"cluster {name!r}: Kafka {version} knows no ZooKeeper; 3.9 is the last that does.")
        if self.release.needs_zookeeper and not self._with_zookeeper:
            raise InputError(f"cluster {name!r}: Kafka {version} needs ZooKeeper; 3.3 is the first that does without.")
        if kerberos is not None and not authorizer:
            raise InputError(f"cluster {name!r}: kerberos needs a listener for users; start it with authorizer=True.")
        self.realm, self._classes = kerberos, classes
        self._overrides = {key: str(value) for key, value in (overrides or {}).items()}
        self._data_dir = Path(data_dir) if data_dir is not None else None
        self._ports, self._heap_mb, self._min_free_mb = ports, heap_mb, min_free_mb
        self._ready_timeout_s = ready_timeout_s
        self._nodes: list[Node] = []
        self._zookeeper: ZooKeeper | None = None
        self._addresses: list[NodeAddresses] = []
        self._home: Home | None = None
        self._cluster_id = ""
        self._owner = os.getpid()
        self._cancel = threading.Event()
        self._lock = threading.RLock()

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start all nodes and wait until they are ready. A started cluster is left as it is.

        :raises JavaNotFound, OldJavaUnavailable, JarsUnavailable, DiskFull, PortInUse, NodeFailed, NodeNotReady:
            and nothing is left behind.
        """
        with self._lock:
            if self._nodes:
                return self
            # Before anything is taken: it may need the user's hands.
            installed = self._install(self.release)
            _running.add(self)
            self._cancel.clear()
            try:
                self._prepare(installed)
                if self._zookeeper is not None:
                    self._zookeeper.start()
                    self._zookeeper.wait_ready(self._ready_timeout_s, self._cancel)
                _each(self._format_and_start, self._nodes, self._cancel.set)
                self.wait_ready()
            except BaseException as e:
                home = self._home
                self.stop()
                if isinstance(e, OSError) and e.errno in (errno.ENOSPC, errno.EDQUOT) and home is not None:
                    raise DiskFull(home.path, 0, max(1, self._min_free_mb)) from e
                raise
            return self

    def stop(self) -> None:
        """End all nodes, give the ports back and delete a temporary directory. Safe to call twice.

        Nodes whose data are deleted anyway get SIGKILL; with a ``data_dir`` of your own they shut down in order.
        """
        if os.getpid() != self._owner:
            return  # a forked child has a copy of this object, but the cluster is not its own
        self.cancel()
        with self._lock:
            graceful = self._home is not None and not self._home.temporary
            # No threads here: at the interpreter's exit none can be started any more.
            for node in self._nodes:
                node.ask_to_end(signal.SIGTERM if graceful else signal.SIGKILL)
            programs: list[Program] = [*self._nodes, *([self._zookeeper] if self._zookeeper else [])]
            for program in programs:  # ZooKeeper last: brokers sign off there
                program.end(_STOP_TIMEOUT_S if graceful else 0)
            for program in programs:
                for port in program.ports:
                    port.release()
            if self._home is not None:
                self._home.release()
            self._nodes, self._zookeeper, self._addresses, self._home = [], None, [], None
            _running.discard(self)

    def cancel(self) -> None:
        """Make a :meth:`start` that is under way in another thread give up soon; :meth:`stop` then waits for it."""
        self._cancel.set()

    def wait_ready(self, node_ids: Sequence[int] | None = None) -> None:
        """Wait until the given nodes (all that run, by default) serve clients and lead what they have to lead.

        :raises NodeFailed, DiskFull, PortInUse: when a process ended; with its last log lines.
        :raises NodeNotReady: when the time is over.
        """
        wanted = [n for n in self._nodes if (n.node_id in node_ids if node_ids is not None else n.child is not None)]
        for node in wanted:
            ready.wait(node, self._addresses[node.node_id - 1].plain, self._ready_timeout_s, self._cancel)

    # --- single nodes -------------------------------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        """End a node with SIGKILL; its data and its ports stay for :meth:`restart`."""
        self._node(node_id).end(0)

    def shut_down(self, node_id: int) -> None:
        """End a node in order (SIGTERM); its data and ports stay for :meth:`restart`, and its logs need no recovery."""
        self._node(node_id).end(_STOP_TIMEOUT_S)

    def restart(self, node_id: int, version: str | None = None) -> None:
        """Start a node again and wait until it is ready; one that runs is shut down in order first.

        :param version: the release that it has from now on, as in a rolling upgrade; None: the same as before.
        """
        node = self._node(node_id)
        if version is not None:
            node.installed = self._install(release(version))
        node.end(_STOP_TIMEOUT_S)
        self._start(node)
        self.wait_ready([node_id])

    def wipe(self, cluster_id: str | None = None) -> None:
        """End all nodes with SIGKILL and empty their disks; :meth:`restart` starts them. KRaft only.

        :param cluster_id: which they are formatted with; None: with the same as before.
        """
        for node in self._nodes:
            node.end(0)
        for node in self._nodes:
            shutil.rmtree(node.directory / "data")
            node.format(cluster_id or self._cluster_id)

    def pause(self, node_id: int) -> None:
        """Freeze a node (SIGSTOP): connections stay open and nothing answers, as with a hanging disk.

        Returns when all its threads have stopped; some answer for a moment after the signal was sent.
        """
        node = self._node(node_id)
        node.send(signal.SIGSTOP)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while not stands_still(node.pid()) and time.monotonic() < deadline:
            time.sleep(0.01)

    def resume(self, node_id: int) -> None:
        """Let a frozen node continue."""
        self._node(node_id).send(signal.SIGCONT)

    def alive(self, node_id: int) -> bool:
        """Whether the node's process runs; a paused one does."""
        return self._node(node_id).alive()

    def pid(self, node_id: int) -> int | None:
        """Return the process id of a node, or None when it is down."""
        return self._node(node_id).pid()

    def log_path(self, node_id: int) -> Path:
        """Return the node's log file; it lives as long as the cluster's directory."""
        return self._node(node_id).log

    # --- what clients need --------------------------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """The cluster's directory while it is started."""
        if self._home is None:
            raise self._not_started()
        return self._home.path

    @property
    def bootstrap(self) -> str:
        """``host:port,...`` of the PLAINTEXT listener of every node."""
        if not self._addresses:
            raise self._not_started()
        return ",".join(address.plain for address in self._addresses)

    @property
    def bootstrap_sasl(self) -> str:
        """``host:port,...`` of the listener that asks for a user; only with ``authorizer=True``."""
        if not self.authorizer:
            raise InputError(f"cluster {self.name!r} has no SASL listener; start it with authorizer=True.")
        if not self._addresses:
            raise self._not_started()
        return ",".join(address.sasl for address in self._addresses if address.sasl)

    def properties(self, user: str | None = None) -> dict[str, str]:
        """Return librdkafka settings for ``user`` (admin, alice or mirror), or for the PLAINTEXT listener when None."""
        if user is None:
            return {"bootstrap.servers": self.bootstrap}
        if user not in USERS:
            raise InputError(f"cluster {self.name!r} has no user {user!r}; there are {', '.join(USERS)}.")
        return {
            "bootstrap.servers": self.bootstrap_sasl,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": USERS[user],
        }

    def kerberos_properties(self, principal: str) -> dict[str, str]:
        """Return librdkafka settings for a principal of the realm (without the realm), with a keytab.

        ``KRB5_CONFIG`` must name the realm's configuration, :attr:`sandbox.kdc.Realm.config`.
        """
        if self.realm is None:
            raise InputError(f"cluster {self.name!r} has no Kerberos; start it with kerberos=Realm(...).")
        return {
            "bootstrap.servers": self.bootstrap_sasl,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.principal": f"{principal}@{self.realm.name}",
            "sasl.kerberos.keytab": str(self.realm.keytab(principal)),
        }

    def admin_properties(self) -> dict[str, str]:
        """Return librdkafka settings that may do anything: the super user's, or plaintext without an authorizer."""
        return self.properties(SUPER_USER if self.authorizer else None)

    def advertised(self, node_id: int, own: NodeAddresses) -> NodeAddresses:
        """Return where a node that listens at ``own`` sends its clients; a subclass puts a proxy in between."""
        return own

    # --- inside -------------------------------------------------------------------------------------------------------

    def _install(self, wanted: Release) -> Installed:
        found = install(wanted, kerberos=self.realm is not None)
        return (
            found if self._classes is None else replace(found, classpath=f"{self._classes}{os.pathsep}{found.classpath}")
        )

    def _prepare(self, installed: Installed) -> None:
        self._home = Home(self.name, self._data_dir)
        self._home.require_free(self._min_free_mb)
        ports: list[list[ReservedPort]] = []
        try:
            for index in range(self.node_count):
                own = [reserve(self.name, self._ports[index] if self._ports else None)]
                ports.append(own)
                own.extend(reserve(self.name) for _ in range(2 if self.authorizer else 1))
            if self._with_zookeeper:
                port = reserve(self.name)
                self._zookeeper = ZooKeeper(self.name, self._home.path / "zookeeper", port, installed)
        except BaseException:
            for own in ports:
                for port in own:
                    port.release()
            raise
        self._cluster_id = _cluster_id(self._home.path / "cluster.id")
        self._addresses = [NodeAddresses(*(port.address for port in own)) for own in ports]
        login, options = self._broker_login(), []
        if login is not None:
            options.append(f"-Djava.security.krb5.conf={login.config}")
        for node_id, own in enumerate(ports, 1):
            directory = self._home.path / f"node-{node_id}"
            settings = node_settings(
                node_id, self._addresses, directory / "data", self._overrides, self.authorizer,
                advertised=self.advertised(node_id, self._addresses[node_id - 1]), release=self.release,
                zookeeper=self._zookeeper.address if self._zookeeper else None, kerberos=login,
            )  # fmt: skip
            file = jaas(self.release, login) if self.authorizer else None
            self._nodes.append(
                Node(self.name, node_id, directory, settings, own, installed, self._heap_mb, file, options)
            )

    def _broker_login(self) -> BrokerLogin | None:
        realm = self.realm
        if realm is None:
            return None
        return BrokerLogin(f"{SERVICE}@{realm.name}", realm.keytab(SERVICE, "broker"), realm.config)

    def _format_and_start(self, node: Node) -> None:
        node.write()
        if self._zookeeper is None:
            node.format(self._cluster_id)
        self._start(node)

    def _start(self, node: Node) -> None:
        if self._zookeeper is not None:
            self._zookeeper.wait_forgotten(node.node_id, self._ready_timeout_s, self._cancel)
        node.start()

    def _node(self, node_id: int) -> Node:
        for node in self._nodes:
            if node.node_id == node_id:
                return node
        if not self._nodes:
            raise self._not_started()
        raise InputError(f"cluster {self.name!r} has no node {node_id}; nodes are numbered from 1 to {self.node_count}.")

    def _not_started(self) -> InputError:
        return InputError(f"cluster {self.name!r} is not started; use it in a 'with' block or call start().")


def _cluster_id(path: Path) -> str:
    """Return the id in ``path``, so that a kept data directory stays the same cluster, or a new one."""
    if not path.exists():
        text = "-"
        while text.startswith("-"):  # the format tool would take it for an option
            text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        path.write_text(text, encoding="ascii")
    return path.read_text(encoding="ascii")


@contextmanager
def clusters(*names: str, **kw: Any) -> Iterator[list[Cluster]]:
    """Start several clusters at the same time; ``kw`` are :class:`Cluster`'s, the same for all.

    :raises MirrorError: what :meth:`Cluster.start` raises; then none of them is left running.
    """
    several = [Cluster(name, **kw) for name in names]
    try:
        start_all(several)
        yield several
    finally:
        stop_all(several)


def start_all(several: Sequence[Cluster]) -> None:
    """Start clusters at the same time; the first error is raised when all have ended their attempt."""
    for version, kerberos in dict.fromkeys((cluster.release, cluster.realm is not None) for cluster in several):
        install(version, kerberos=kerberos)  # once, and where Ctrl-C can end it
    _each(Cluster.start, several, lambda: stop_all(several))


def stop_all(several: Sequence[Cluster]) -> None:
    """Stop clusters, also those that another thread is just starting."""
    for cluster in several:
        cluster.cancel()
    for cluster in several:
        cluster.stop()


def _each(do: Callable[[T], object], items: Sequence[T], on_interrupt: Callable[[], object] | None = None) -> None:
    """Call ``do`` for all items at the same time, wait for all, raise the first error."""
    with ThreadPoolExecutor(max_workers=max(1, len(items)), thread_name_prefix="sandbox") as pool:
        futures = [pool.submit(do, item) for item in items]
        try:
            wait(futures)
        except BaseException:  # Ctrl-C: the pool would go on waiting for threads that wait for a broker
            if on_interrupt is not None:
                on_interrupt()
            raise
    for future in futures:
        future.result()


@atexit.register
def _stop_what_runs() -> None:
    stop_all(list(_running))
