"""drill.json and drill.html: what a drill found. The page is one file, without a script or anything from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from airflow_mirror.common.files import replace_file
from airflow_mirror.common.page import template
from airflow_mirror.extras.drill.store import Drill
from airflow_mirror.extras.drill.trend import MOST, charts
from airflow_mirror.wording import minute

JSON_NAME, HTML_NAME = "drill.json", "drill.html"


def write(directory: Path, drill: Drill, drills: Sequence[Drill]) -> Path:
    """Write both files; return the JSON one. See :func:`render`."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / JSON_NAME
    replace_file(path, json.dumps(drill.to_dict(), indent=1))
    replace_file(directory / HTML_NAME, render(drill, drills))
    return path


def render(drill: Drill, drills: Sequence[Drill]) -> str:
    """Return a drill as one HTML page, with the trend of those that are kept; every value is escaped.

    :param drills: all that are kept, oldest first; ``drill`` itself may be among them as it was before.
    """
    all_of_them = [*(one for one in drills if one.run != drill.run), drill]
    all_of_them.sort(key=lambda one: one.at_ms)
    return template("extras/drill/drill.html.jinja").render(
        d=drill,
        f=drill.figures,
        g=drill.groups,
        b=drill.failback,
        drills=all_of_them[::-1],
        charts=charts(all_of_them),
        most=MOST,
        when=_when,
    )


def _when(at_ms: int) -> str:
    return minute(at_ms / 1000)
