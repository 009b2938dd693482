"""What the site has beside the pages: README, changelog and contributing, a list of the decisions, and each page's first
use of a word of the glossary as a link to what it means. MkDocs calls the functions ``on_...`` by their names.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import TYPE_CHECKING

from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
GLOSSARY, DECISIONS = "glossary.md", "adr/index.md"
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
# Not what leads elsewhere, or into the page itself.
_LINK = re.compile(r"\[([^\]\[]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_ROW = re.compile(r"^\| ([a-z ,]+) \|(?= [^-])", re.MULTILINE)
_TAG = re.compile(r"(<[^>]+>)")
# Ordinary English, too: a link from another sense would explain the wrong thing, so that nouns are linked, or none.
_NOUNS, _BEFORE_NOUNS = {"check", "cut", "hold", "pass", "proof", "split"}, {"a", "each", "every", "its", "on", "the"}
_EVERYDAY = {"level", "open"}
_NO_PROSE = {"a", "code", "pre", "h1", "h2", "h3", "h4", "th", "svg", "script", "style"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies beside docs/ and is read with it, and a page that lists the decisions."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    files.append(File.generated(config, DECISIONS, content=decisions()))
    return files


def decisions() -> str:
    """Return the page that lists the decisions, the newest first."""
    found = sorted((ROOT / "docs" / "adr").glob("*.md"), reverse=True)
    titles = {path: path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for path in found}
    return "# Decisions\n\n" + "".join(f"- [{title}]({path.name})\n" for path, title in titles.items())


def links_on_site(markdown: str, at: str) -> str:
    """Return a page with its links as they are from there: of what is no page of the site the path is left.

    :param at: where the page is on the site, ``adr/0001-x.md``. A generated one has its links from the repository's root.
    """
    here = "." if at in PAGES.values() else str(PurePosixPath("docs") / PurePosixPath(at).parent)

    def link(found: re.Match[str]) -> str:
        text, path, anchor = found.groups(default="")
        there = normpath(f"{here}/{path}")  # in the repository
        page = PAGES.get(there) or (DECISIONS if there == "docs/adr" else there.removeprefix("docs/"))
        if there.startswith("docs/") or there in PAGES:
            return f"[{text}]({relpath(page, PurePosixPath(at).parent)}{anchor})"
        return f"{text} (`{there}`)"

    return _LINK.sub(link, markdown)


def words() -> list[str]:
    """Return the words that the glossary explains."""
    text = (ROOT / "docs" / GLOSSARY).read_text(encoding="utf-8")
    return [word for row in _ROW.findall(text) if row != "word" for word in row.split(", ")]


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Have links lead to pages of the site, and let each word of the glossary be a place that one can lead to."""
    markdown = links_on_site(markdown, page.file.src_uri)
    return _ROW.sub(_anchored, markdown) if page.file.src_uri == GLOSSARY else markdown


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link a page's first use of each word."""
    glossary = files.get_file_from_path(GLOSSARY)
    if glossary is None or page.file == glossary:
        return html
    return linked(html, get_relative_url(glossary.url, page.url))


def linked(html: str, glossary: str) -> str:
    """Return a page with a link to the glossary, whose address is given, at its first use of each word, in prose."""
    left, inside = set(words()) - _EVERYDAY, list[str]()
    parts = _TAG.split(html)
    for at, part in enumerate(parts):
        if part.startswith("<"):
            name = part.strip("</>").split(maxsplit=1)[0].lower()
            if name in _NO_PROSE:
                inside = inside[:-1] if part.startswith("</") else [*inside, name]
        elif left and not inside and part.strip():
            parts[at] = _linked(part, left, glossary)
    return "".join(parts)


def _anchored(row: re.Match[str]) -> str:
    if row[1] == "word":  # the table's head
        return row[0]
    return "| " + ", ".join(f'<span id="{_id(word)}">{word}</span>' for word in row[1].split(", ")) + " |"


def _linked(text: str, left: set[str], glossary: str) -> str:
    def link(use: re.Match[str]) -> str:
        word, before = use[1].lower(), text[: use.start()].split()[-1:]
        if word not in left or (word in _NOUNS and not _BEFORE_NOUNS.intersection(before)):
            return use[0]
        left.discard(word)
        return f'<a class="word" href="{glossary}#{_id(word)}">{use[0]}</a>'

    either = "|".join(sorted(map(re.escape, left), key=len, reverse=True))
    return re.sub(rf"(?<![\w-])({either})s?(?![\w-])", link, text, flags=re.IGNORECASE)


def _id(word: str) -> str:
    return word.replace(" ", "-")
