"""The package as one zip for ``spark-submit --py-files``: ``python -m airflow_mirror.jobs.runner.package OUT.zip``.

Executors then run the driver's version without an installation of their own, and its compiled heart where it was built
for their system (:mod:`airflow_mirror.wire.heart`); the packages that it imports must be installed on the executors
(:mod:`airflow_mirror.jobs.driver.executors`).
"""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from airflow_mirror.common.files import replace_file

NAME = "airflow_mirror"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the zip format's first day: equal code gives an equal file


def build(out: str | Path) -> Path:
    """Write the zip, replacing ``out`` atomically; return its path."""
    path = Path(out)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(_contents(files(NAME), NAME)):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text)
    replace_file(path, content.getvalue(), durable=False, mode=0o644)
    return path


def _contents(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for item in folder.iterdir():
        if item.is_dir():
            if item.name != "__pycache__":
                yield from _contents(item, f"{name}/{item.name}")
        else:
            yield f"{name}/{item.name}", item.read_bytes()


def main(argv: Sequence[str]) -> int:
    """Build the zip named by the one argument; return the exit status."""
    if len(argv) != 1 or argv[0].startswith("-"):
        print("usage: python -m airflow_mirror.jobs.runner.package OUT.zip", file=sys.stderr)
        return 0 if argv in (["-h"], ["--help"]) else 2
    print(build(argv[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
