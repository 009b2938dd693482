"""Pages for people: one file each, no script, nothing from elsewhere, one style (``page.html.jinja``).

Names of topics, groups and principals are whatever their owners chose: every value is escaped.
"""

from __future__ import annotations

import functools
import re
import time
from typing import TYPE_CHECKING

from airflow_mirror.common.names import LONGEST, pieces

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

MOST_ROWS = 500  # of a table; what it leaves out it counts


@functools.cache
def template(path: str) -> Template:
    """Return a template of this package."""
    from jinja2 import Environment, PackageLoader

    loader = PackageLoader("airflow_mirror", "")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["when"] = _when
    environment.filters["n"] = lambda number: f"{number:,}"
    environment.filters["wrap"] = _wrap
    return environment.get_template(path)


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _wrap(text: object) -> Markup:
    """Return a text in which a long word, as a topic's name, may go on in the next line, behind its separators."""
    from markupsafe import Markup

    words = re.split(r"(\s+)", str(text))
    return Markup("").join(Markup("<wbr>").join(pieces(word)) if len(word) > LONGEST else word for word in words)
