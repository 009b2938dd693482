"""A real MirrorMaker 2 for tests of what it leaves behind."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks import mirrormaker
from sandbox import Cluster
from sandbox.process import Child

# Where plugins are listed in their jars none is looked for in all classes, which is most of the work of a start.
LISTED = "plugin.discovery", "service_load"


def settings_of(
    alias: str, topic: str, source: Cluster, target: Cluster, to: str = mirrormaker.TARGET, **more: str
) -> dict[str, str]:
    """Return the file of one flow. :param to: alias of the target. :param more: keys, with ``__`` for a dot."""
    here, there = ({"bootstrap.servers": cluster.bootstrap} for cluster in (source, target))
    key, value = LISTED
    return {
        **mirrormaker.settings(alias, topic, here, there, (1, 1), to),
        "refresh.topics.interval.seconds": "1",
        f"{alias}->{to}.sync.topic.configs.enabled": "false",
        **dict.fromkeys((key, f"{alias}.{key}", f"{to}.{key}"), value),
        **{key.replace("__", "."): value for key, value in more.items()},
    }


def write_file(settings: Mapping[str, str], directory: Path) -> Path:
    file = directory / "connect-mirror-maker.properties"
    file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    return file


@contextmanager
def running(file: Path, *options: str, log: str = "mirrormaker.log") -> Iterator[Child]:
    """MirrorMaker 2, killed at the latest at the end. :param log: a file beside its own."""
    child = Child([*mirrormaker.command(file, file.parent), *options], file.parent / log, file.parent)
    try:
        yield child
    finally:
        if child.alive():
            child.kill()


def stop(child: Child) -> None:
    """Stop it as its script is stopped."""
    child.send(signal.SIGTERM)
    assert child.wait(240) is not None
