"""What the site has beside the pages: the README as its first one. MkDocs calls these functions by their names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README, with its links as they are from here."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = (
        text.replace("](docs/", "](")
        .replace("](CONTRIBUTING", "](../CONTRIBUTING")
        .replace("](CHANGELOG", "](../CHANGELOG")
    )
    files.append(File.generated(config, "index.md", content=text))
    return files
