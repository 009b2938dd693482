"""Files of text that people write or save, by whatever editor."""

from __future__ import annotations

import codecs
from pathlib import Path

from airflow_mirror.errors import InputError


def read_text(path: Path, what: str, remedy: str = "Check the path.", encoding: str = "utf-8") -> str:
    """Return the text of a file that a person may have written or saved, without an editor's byte order mark.

    :param what: how errors call the file. :param remedy: where it can't be read.
    :raises InputError: it can't be read, or is in another encoding.
    """
    try:
        content = path.read_bytes()
    except OSError as e:
        raise InputError(f"{what} can't be read: {e.strerror or e}. {remedy}") from None
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in content[:2]:
        raise InputError(what, "it is in UTF-16, as editors and PowerShell of Windows write it", "Save it as UTF-8.")
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode(encoding)
    except UnicodeDecodeError:
        raise InputError(f"{what} is no text in UTF-8. Save it as UTF-8.") from None
