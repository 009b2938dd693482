"""Files of text that people write or save, by whatever editor."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

from airflow_mirror.errors import InputError

_MERGE = "tag:yaml.org,2002:merge"


def read_text(path: Path, what: str, remedy: str = "Check the path.", encoding: str = "utf-8") -> str:
    """Return the text of a file that a person may have written or saved, without an editor's byte order mark.

    :param what: how errors call the file. :param remedy: where it can't be read.
    :raises InputError: it can't be read, or is in another encoding.
    """
    try:
        content = path.read_bytes()
    except OSError as e:
        raise InputError(f"{what} can't be read", str(e.strerror or e), remedy) from None
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in content[:2]:
        raise InputError(what, "it is in UTF-16, as editors and PowerShell of Windows write it", "Save it as UTF-8.")
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode(encoding)
    except UnicodeDecodeError:
        raise InputError(what, "it is no text in UTF-8", "Save it as UTF-8.") from None


def json_of(text: str) -> Any:
    """Return what a JSON text holds.

    :raises ValueError: it is no JSON, or a key of an object stands twice. :raises RecursionError: as of ``json.loads``.
    """
    return json.loads(text, object_pairs_hook=_once)


def yaml_of(text: str) -> Any:
    """Return what a YAML text holds; ``<<`` merges what its own keys may replace.

    :raises ValueError: it is no YAML, or a key of a mapping stands twice. :raises RecursionError: as of PyYAML.
    """
    import yaml  # takes 20 ms, wherever files of text are read

    class Loader(yaml.SafeLoader):
        # As it is written: what is constructed has its merged keys beside its own.
        def compose_mapping_node(self, anchor: Any) -> Any:
            node = super().compose_mapping_node(anchor)
            known = set[tuple[str, str]]()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                    if (key.tag, key.value) in known:
                        raise ValueError(f"{_twice(key.value)} (line {key.start_mark.line + 1})")
                    known.add((key.tag, key.value))
            return node

    try:
        return yaml.load(text, Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as e:
        raise ValueError(str(e)) from e


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that stands twice: readers differ in which of the two counts."""
    found = dict[str, Any]()
    for key, value in pairs:
        if key in found:
            raise ValueError(_twice(key))
        found[key] = value
    return found


def _twice(key: str) -> str:
    return f"the key {key!r} stands twice"
