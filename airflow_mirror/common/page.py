"""Pages for people: one file each, no script, nothing from elsewhere, one style (``page.html.jinja``).

Names of topics, groups and principals are whatever their owners chose: every value is escaped.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Template

MOST_ROWS = 500  # of a table; what it leaves out it counts


@functools.cache
def template(path: str) -> Template:
    """Return a template of this package."""
    from jinja2 import Environment, PackageLoader

    loader = PackageLoader("airflow_mirror", "")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["when"] = _when
    environment.filters["n"] = lambda number: f"{number:,}"
    return environment.get_template(path)


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
