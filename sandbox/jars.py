"""The jars of Kafka, YARN and a schema registry: fetched once by PySpark's Ivy, checked, and kept in the user's cache.

``jars.sha256`` is the list: one line per jar, ``sum version set group:artifact:version``. The set ``broker`` runs a node,
and ZooKeeper where the release needs one. The set ``tools`` adds the command-line classes and MirrorMaker 2 on top of it.
The set ``yarn`` is what PySpark lacks for a YARN; ``registry`` is the archive of Apicurio; ``tiered`` has a store for
tiered storage in a directory, from Kafka's own tests. Ivy gets the exact list and resolves nothing by itself: one request
per jar instead of the dozen that reading all the POMs takes (6 s instead of 42 s measured), and a new release of a
dependency can't change what runs here. ``python -m sandbox.lock`` makes the list anew. Every start checks the sums again
(0.1 s).
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO
from xml.sax.saxutils import quoteattr

from airflow_mirror.jobs.runner.java import cache_dir, find_java
from sandbox.errors import JarsUnavailable, without_addresses
from sandbox.process import leashed
from sandbox.store import keep
from sandbox.versions import DEFAULT_VERSION

LOCK_FILE = Path(__file__).with_name("jars.sha256")
_PRODUCTS = {"yarn": "Hadoop", "registry": "Apicurio"}  # by set; the others are Kafka's

# Ivy's own default for a repository of Maven's layout; no address of a registry stands in this repository. No POMs: the
# list is complete. No checksums from the server: ours are stronger and do not come from there.
SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers>
    <ibiblio name="central" m2compatible="true" usepoms="false" useMavenMetadata="false" checksums=""/>
  </resolvers>
</ivysettings>
"""


@dataclass(frozen=True)
class Jar:
    """One line of the list.

    :param kafka: Kafka's version; Hadoop's in the set ``yarn``, Apicurio's in ``registry``.
    """

    sha256: str
    kafka: str
    jar_set: str
    group: str
    artifact: str
    version: str
    classifier: str = ""
    extension: str = "jar"

    @property
    def product(self) -> str:
        """What the version is of, for people."""
        return f"{_PRODUCTS.get(self.jar_set, 'Kafka')} {self.kafka}"

    @property
    def coordinates(self) -> str:
        """As the list has them."""
        extension = "" if self.extension == "jar" else self.extension
        return ":".join(filter(None, (self.group, self.artifact, self.version, self.classifier, extension)))

    @property
    def file_name(self) -> str:
        """The file's name in its set's directory."""
        return "-".join(filter(None, (self.artifact, self.version, self.classifier))) + f".{self.extension}"


@functools.cache
def locked_jars() -> tuple[Jar, ...]:
    """Return the recorded list."""
    lines = (line.split() for line in LOCK_FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return tuple(Jar(*fields, *gav.split(":")) for *fields, gav in (line for line in lines if line))


def classpath(*jar_sets: str, version: str = DEFAULT_VERSION, progress: TextIO | None = None) -> str:
    """Return a Java class path of ``jar_sets`` (``broker`` alone by default), fetching what is missing.

    :param progress: where to show the progress of a download; standard error by default.
    :raises JarsUnavailable: when a set can't be fetched, or what came is not what is recorded.
    :raises JavaNotFound: when something has to be fetched and there is no Java to run Ivy.
    """
    return os.pathsep.join(
        str(path)
        for name in jar_sets or ("broker",)
        for path in ensure(name, progress=progress or sys.stderr, version=version)
    )


def ensure(jar_set: str, progress: TextIO, root: Path | None = None, version: str = DEFAULT_VERSION) -> list[Path]:
    """Return the checked files of one set below ``root`` (the user's cache by default), fetching them if need be.

    :raises JarsUnavailable: see :func:`classpath`.
    """
    root = root or cache_dir() / f"kafka-{version}"
    jars = [jar for jar in locked_jars() if (jar.kafka, jar.jar_set) == (version, jar_set)]
    directory = root / jar_set
    try:
        keep(directory, lambda: not _wrong(directory, jars), lambda work: _fetch(work, jars, progress), progress)
    except OSError as e:
        raise JarsUnavailable(jar_set, f"can't be kept in {root}: {e}") from e
    return [directory / jar.file_name for jar in jars]


def _wrong(directory: Path, jars: Iterable[Jar]) -> list[str]:
    """Return the names of jars that are missing from ``directory`` or are not the recorded ones."""
    return [jar.file_name for jar in jars if sha256_of(directory / jar.file_name) != jar.sha256]


def sha256_of(path: Path) -> str | None:
    """Return the SHA-256 sum of a file in hexadecimal, or None when there is no such file."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _fetch(work: Path, jars: Sequence[Jar], progress: TextIO) -> Path:
    """Fetch ``jars`` into a directory inside ``work`` and return it.

    :raises JarsUnavailable: when one is missing or is not the recorded one.
    """
    of = jars[0]
    output = run_ivy(work, jars, progress, f"{of.product}, {of.jar_set} jars", transitive=False)
    if wrong := _wrong(work / "jars", jars):
        missing = [name for name in wrong if not (work / "jars" / name).exists()]
        cause = f"could not fetch {_some(missing)}" if missing else f"{_some(wrong)} has not the recorded SHA-256 sum"
        raise JarsUnavailable(of.jar_set, cause, [] if not missing else _errors(output))
    return work / "jars"


def run_ivy(work: Path, jars: Iterable[Jar], progress: TextIO, title: str, transitive: bool) -> list[str]:
    """Let Ivy fetch ``jars`` into ``work/jars`` and return the lines that it printed.

    Ivy's cache and its idea of the home directory are inside ``work``: nothing of this user's Maven or Ivy set-up
    leaks in, and nothing is left behind.
    """
    wanted = list(jars)
    (work / "ivy.xml").write_text(_ivy_module(wanted, transitive), encoding="utf-8")
    (work / "ivysettings.xml").write_text(SETTINGS, encoding="utf-8")
    settings = os.environ.get("AIRFLOW_MIRROR_IVY_SETTINGS") or ("" if transitive else str(work / "ivysettings.xml"))
    command = [
        str(find_java().executable), f"-Duser.home={work}", f"-Djava.io.tmpdir={work}", "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData", "-jar", str(_ivy_jar()), *(["-settings", settings] if settings else []),
        "-cache", str(work / "cache"), "-ivy", str(work / "ivy.xml"),
        "-retrieve", f"{work}/jars/[artifact]-[revision](-[classifier]).[ext]",
    ]  # fmt: skip
    lines: list[str] = []
    shown = _Progress(progress, title, 0 if transitive else len(wanted))
    with subprocess.Popen(
        leashed(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as ivy:
        try:
            assert ivy.stdout is not None
            for line in ivy.stdout:
                lines.append(line.rstrip())
                shown.see(line)
        except BaseException:
            ivy.kill()
            raise
    shown.end()
    return lines


class _Progress:
    """One line that counts what Ivy has found and then fetched; rewritten on a terminal, a line per quarter elsewhere."""

    def __init__(self, to: TextIO, title: str, total: int) -> None:
        self._to, self._title, self._total = to, title, total
        self._count = {"found": 0, "fetched": 0}

    def see(self, line: str) -> None:
        """Take in a line of Ivy's output."""
        event = "fetched" if "[SUCCESSFUL ]" in line else "found" if "\tfound " in line else None
        if event is None:
            return
        self._count[event] += 1
        count, terminal = self._count[event], self._to.isatty()
        if terminal or count % max(1, self._total // 4 or 20) == 0 or count == self._total:
            text = f"{self._title}: {count}{f'/{self._total}' if self._total else ''} {event} "
            print(f"\r{text:<60}" if terminal else text, end="" if terminal else "\n", file=self._to, flush=True)

    def end(self) -> None:
        """Leave the line."""
        if self._to.isatty() and any(self._count.values()):
            print(file=self._to, flush=True)


def _ivy_module(jars: Iterable[Jar], transitive: bool) -> str:
    dependencies = "\n".join(
        f"    <dependency org={quoteattr(j.group)} name={quoteattr(j.artifact)} rev={quoteattr(j.version)} "
        f'transitive="{str(transitive).lower()}">{_of_a_kind(j)}</dependency>'
        for j in jars
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">\n'
        '  <info organisation="airflow.mirror" module="sandbox"/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f'  <dependencies defaultconf="default->default">\n{dependencies}\n  </dependencies>\n</ivy-module>\n'
    )


def _of_a_kind(jar: Jar) -> str:
    """Return which of an artifact's files is meant, where it is not its jar."""
    if not jar.classifier:
        return ""
    kind = f"type={quoteattr(jar.extension)} ext={quoteattr(jar.extension)} m:classifier={quoteattr(jar.classifier)}"
    return f"<artifact name={quoteattr(jar.artifact)} {kind}/>"


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")  # found, not imported: importing PySpark takes a second and starts nothing we need
    for place in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(place, "jars").glob("ivy-*.jar")):
            return path
    raise JarsUnavailable(
        "broker", "PySpark, whose Ivy fetches them, is not installed; pip install 'airflow-mirror[spark]'"
    )


def _errors(output: Sequence[str]) -> list[str]:
    lines = without_addresses(output)
    return [line for line in lines if re.search(r"WARN|ERROR|[Ee]xception|not found|UNRESOLVED", line)][:8] or lines[-4:]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
