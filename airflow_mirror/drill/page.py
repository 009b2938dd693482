"""drill.json and drill.html: what a drill found. The page is one file, without a script or anything from elsewhere."""

from __future__ import annotations

import functools
import json
import time
from importlib.resources import files
from typing import TYPE_CHECKING

from airflow_mirror.files import replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from jinja2 import Template

    from airflow_mirror.drill.kept import Drill

JSON_NAME, HTML_NAME = "drill.json", "drill.html"


def write(directory: Path, drill: Drill) -> Path:
    """Write both files; return the JSON one."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / JSON_NAME
    replace_file(path, json.dumps(drill.to_dict(), indent=1))
    replace_file(directory / HTML_NAME, render(drill))
    return path


def render(drill: Drill) -> str:
    """Return a drill as one HTML page; every value is escaped."""
    return _template().render(d=drill, f=drill.figures, g=drill.groups)


@functools.cache
def _template() -> Template:
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["when"] = _when
    environment.filters["n"] = lambda number: f"{number:,}"
    return environment.from_string(files(__package__).joinpath("drill.html.jinja").read_text(encoding="utf-8"))


def _when(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at_ms / 1000))
