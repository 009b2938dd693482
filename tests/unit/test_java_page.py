"""The page for Java clients shows the example that the tests run."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_shows_the_example_as_it_is() -> None:
    (shown,) = re.findall("```java\n(.*?)```", (DOCS / "java-clients.md").read_text(encoding="utf-8"), re.DOTALL)
    assert shown == (DOCS / "examples" / "FailOver.java").read_text(encoding="utf-8")
