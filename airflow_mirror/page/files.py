"""What is served of ``[mirror] home``: reports, plans, and what jobs say of themselves; no other file."""

from __future__ import annotations

import re
from pathlib import Path

_REPORT = r"[^/]+\.(?:html|json|md)"
_SERVED = re.compile(rf"[^/]+/(?:runs/[^/]+/{_REPORT}|plans/{_REPORT}|jobs/[^/]+/\d+/(?:log\.txt|status\.json))")
TYPES = {".html": "text/html", ".json": "application/json", ".md": "text/plain", ".txt": "text/plain"}

HEAD_BYTES = 2_000


def head_of(file: Path) -> bytes:
    """Return what a page begins with; of another file nothing."""
    if file.suffix != ".html":
        return b""
    with file.open("rb") as opened:
        return opened.read(HEAD_BYTES)


def served(home: Path, path: str) -> Path | None:
    """Return the file that a path below ``home`` names; None: there is none that is served."""
    if not _SERVED.fullmatch(path) or {".", ".."} & {*path.split("/")}:
        return None
    whole = home.resolve()
    try:
        found = (whole / path).resolve(strict=True)
    except (OSError, ValueError):  # none, or no path at all
        return None
    return found if found.is_relative_to(whole) and found.is_file() else None  # a link may lead out of it


def reports_of(home: Path, mirror: str, most: int = 20) -> list[dict[str, object]]:
    """Return the pages of plans for the night, drills and cutovers of a mirror that this host has, the newest first."""
    found = [*(home / mirror).glob("runs/*/*.html"), *(home / mirror).glob("plans/*.html")]
    dated = sorted(((one.stat().st_mtime, one) for one in found if one.is_file()), reverse=True)[:most]
    return [{"path": one.relative_to(home).as_posix(), "at": at} for at, one in dated]
