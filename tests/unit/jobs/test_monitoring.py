"""The page about monitoring names the figures that a job has, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from airflow_mirror.jobs.metrics import catalogue
from airflow_mirror.jobs.metrics.catalogue import MEASURED, Figure
from airflow_mirror.jobs.metrics.collector import LISTED

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")


def rows() -> dict[str, str]:
    """The type that the page gives for each figure."""
    return dict(re.findall(r"^\| `(airflow_mirror_\w+)` \| (\w+) \|", PAGE, re.MULTILINE))


def test_the_page_has_every_figure_with_its_type_and_no_other() -> None:
    own = [value for value in vars(catalogue).values() if isinstance(value, Figure)]
    exported = [*own, *(one.for_partitions for one in MEASURED)]
    assert rows() == {figure.name: figure.kind for figure in exported}


def test_the_page_says_how_a_topics_figure_is_made() -> None:
    told = dict(re.findall(r"^\| `airflow_mirror_(\w+)` \| \w+ \| (\w+) \|", PAGE, re.MULTILINE))
    assert told == {one.name: one.of_topic for one in MEASURED}


def test_the_page_says_how_many_partitions_have_series() -> None:
    assert f"Up to {LISTED:,} partitions" in PAGE
