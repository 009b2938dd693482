"""Make ``jars.sha256`` anew: ``python -m sandbox.lock``. Needed only when a version below changes.

Ivy resolves the direct dependencies named here with all that they need; the sums are those of the files that came. Read
the difference before it is committed: this is the moment when trust is given.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from sandbox.jars import KAFKA_VERSION, LOCK_FILE, Jar, run_ivy, sha256_of

LOG4J_VERSION = "2.25.4"
# Kafka's POMs name no logging back end. The binding is the one for SLF4J 1.7, which Kafka still uses.
_LOGGING = [
    Jar("", "broker", "org.apache.logging.log4j", name, LOG4J_VERSION)
    for name in ("log4j-api", "log4j-core", "log4j-slf4j-impl")
]
ROOTS = {
    "broker": [Jar("", "broker", "org.apache.kafka", "kafka_2.13", KAFKA_VERSION), *_LOGGING],
    "tools": [Jar("", "tools", "org.apache.kafka", name, KAFKA_VERSION) for name in ("kafka-tools", "connect-mirror")],
}


def resolve(roots: list[Jar], jar_set: str) -> list[Jar]:
    """Return ``roots`` and everything that they need, with the sums of the files that came."""
    with tempfile.TemporaryDirectory(prefix="sandbox-lock-") as directory:
        work = Path(directory)
        run_ivy(work, roots, sys.stderr, f"resolving {jar_set}", transitive=True)
        found = []
        for path in work.glob("cache/*/*/*/*.jar"):
            group, artifact = path.parts[-4:-2]
            version = path.stem.removeprefix(f"{artifact}-")
            # Ivy's cache also holds versions that lost a conflict; the retrieved directory has the winners.
            if (work / "jars" / path.name).exists() and (digest := sha256_of(path)):
                found.append(Jar(digest, jar_set, group, artifact, version))
    return found


def main() -> None:
    """Resolve both sets and write the list."""
    broker = resolve(ROOTS["broker"], "broker")
    have = {jar.file_name for jar in broker}
    tools = [jar for jar in resolve(ROOTS["broker"] + ROOTS["tools"], "tools") if jar.file_name not in have]
    jars = sorted(broker + tools, key=lambda jar: (jar.jar_set, jar.group, jar.artifact))
    lines = [f"{jar.sha256} {jar.jar_set} {jar.group}:{jar.artifact}:{jar.version}" for jar in jars]
    header = f"# The jars of Kafka {KAFKA_VERSION}: SHA-256, set, coordinates. Made by: python -m sandbox.lock"
    LOCK_FILE.write_text("\n".join([header, *lines, ""]), encoding="utf-8")
    print(f"{LOCK_FILE.name}: {len(broker)} + {len(tools)} jars")


if __name__ == "__main__":
    main()
