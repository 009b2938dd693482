"""Make ``jars.sha256`` anew: ``python -m sandbox.lock``. Needed only when a version below changes.

Ivy resolves the direct dependencies named here with all that they need; the sums are those of the files that came. Read
the difference before it is committed: this is the moment when trust is given.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from sandbox.errors import JarsUnavailable
from sandbox.jars import LOCK_FILE, Jar, run_ivy, sha256_of
from sandbox.versions import APICURIO_VERSION, HADOOP_VERSION, RELEASES, TOOLS_VERSION, Release

RELOAD4J_VERSION = "1.2.26"
# The last SLF4J whose bindings fit what Kafka uses, 1.7.
SLF4J_VERSION = "1.7.36"
# All that MiniYARNCluster needs besides the jars of PySpark; its POM names four times as much.
YARN = (
    f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP_VERSION}",
    *(f"org.bouncycastle:{name}-jdk18on:1.82" for name in ("bcpkix", "bcprov", "bcutil")),
    "org.junit.jupiter:junit-jupiter-api:5.13.4",
    "org.junit.platform:junit-platform-commons:1.13.4",
    "org.opentest4j:opentest4j:1.3.0",
)
# A directory as a store for tiered storage, of the last release that has it in a registry.
TIERED = tuple(f"org.apache.kafka:{name}:{TOOLS_VERSION}:test" for name in ("kafka-clients", "kafka-storage"))
REGISTRY = f"io.apicurio:apicurio-registry-app:{APICURIO_VERSION}:all:tar.gz"


def roots(release: Release, jar_set: str) -> list[Jar]:
    """Return the direct dependencies of a set; all others follow from their POMs."""

    def jar(group: str, artifact: str, version: str) -> Jar:
        return Jar("", release.version, jar_set, group, artifact, version)

    if jar_set == "tools":
        return [jar("org.apache.kafka", name, release.version) for name in ("kafka-tools", "connect-mirror")]
    found = [jar("org.apache.kafka", f"kafka_{release.scala}", release.version)]
    # Kafka's POMs name no logging back end, but for the oldest. Before 4.0 some classes use log4j 1.2 itself.
    if release.number >= (4,):
        names = ("log4j-api", "log4j-core", "log4j-slf4j-impl")
        version = "2.25.5" if release.number >= (4, 4) else "2.25.4"  # that of its own POMs
        found += [jar("org.apache.logging.log4j", name, version) for name in names]
    elif release.number >= (1,):
        found += [jar("ch.qos.reload4j", "reload4j", RELOAD4J_VERSION), jar("org.slf4j", "slf4j-reload4j", SLF4J_VERSION)]
    else:
        found += [jar("javax.xml.bind", "jaxb-api", "2.3.1")]  # used by the broker, gone from Java 11
    return found


def resolve(wanted: list[Jar], transitive: bool = True) -> list[Jar]:
    """Return ``wanted``, all of one set, and everything that they need, with the sums of the files that came.

    :param transitive: False: nothing but ``wanted``.
    :raises JarsUnavailable: when one of ``wanted`` did not come.
    """
    of = wanted[-1]
    with tempfile.TemporaryDirectory(prefix="sandbox-lock-") as directory:
        work = Path(directory)
        run_ivy(work, wanted, sys.stderr, f"resolving {of.kafka} {of.jar_set}", transitive=transitive)
        files = work / "jars"
        found = [] if transitive else [replace(one, sha256=sha256_of(files / one.file_name) or "") for one in wanted]
        for path in work.glob("cache/*/*/*/*.jar") if transitive else ():
            group, artifact = path.parts[-4:-2]
            version = path.stem.removeprefix(f"{artifact}-")
            # Ivy's cache also holds versions that lost a conflict; the retrieved directory has the winners.
            if (files / path.name).exists() and (digest := sha256_of(path)):
                found.append(Jar(digest, of.kafka, of.jar_set, group, artifact, version))
    if missing := {jar.file_name for jar in wanted} - {jar.file_name for jar in found if jar.sha256}:
        raise JarsUnavailable(of.jar_set, f"could not resolve {', '.join(sorted(missing))} of {of.product}")
    return found


def main() -> None:
    """Resolve every release's sets and write the list."""
    jars: list[Jar] = []
    for release in RELEASES.values():
        broker = resolve(roots(release, "broker"))
        jars += broker
        if release.version == TOOLS_VERSION:
            have = {jar.file_name for jar in broker}
            tools = resolve(roots(release, "broker") + roots(release, "tools"))
            jars += [jar for jar in tools if jar.file_name not in have]
    jars += resolve([Jar("", HADOOP_VERSION, "yarn", *gav.split(":")) for gav in YARN], transitive=False)
    jars += resolve([Jar("", TOOLS_VERSION, "tiered", *gav.split(":")) for gav in TIERED], transitive=False)
    jars += resolve([Jar("", APICURIO_VERSION, "registry", *REGISTRY.split(":"))], transitive=False)
    places = {HADOOP_VERSION: len(RELEASES), APICURIO_VERSION: len(RELEASES) + 1} | {
        version: place for place, version in enumerate(RELEASES)
    }
    jars.sort(key=lambda jar: (places[jar.kafka], jar.jar_set, jar.group, jar.artifact))
    lines = [f"{jar.sha256} {jar.kafka} {jar.jar_set} {jar.coordinates}" for jar in jars]
    header = "# The jars of Kafka, YARN and Apicurio: SHA-256, version, set, coordinates. Made by: python -m sandbox.lock"
    LOCK_FILE.write_text("\n".join([header, *lines, ""]), encoding="utf-8")
    print(f"{LOCK_FILE.name}: {len(jars)} jars of {len(RELEASES)} releases, of YARN and of Apicurio")


if __name__ == "__main__":
    main()
