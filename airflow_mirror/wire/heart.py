"""Which heart runs: the compiled module (`_heart.pyx`), or the same functions in Python.

The module is optional, and never an error: it lacks where nothing could compile it, and where it was built for another
system. Executors get the package as a zip. Python loads no extension from there, but Linux does from a file in memory.
"""

from __future__ import annotations

import logging
import os
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pkgutil import get_data
from types import ModuleType
from typing import Any

log = logging.getLogger(__name__)

_NAME = "airflow_mirror.wire._heart"
_INTERFACE = 4  # of `_heart.pyx`: one that was built from an older state of it is left alone
# What is copied in larger batches: in Python, the work on a batch costs more than the fewer batches save.
_PURE_MERGE_BELOW = 1024


def _load() -> ModuleType | None:
    try:
        try:
            from airflow_mirror.wire import _heart as module
        except ImportError:
            module = _from_zip()
    except Exception as e:  # none, another system's, no right to run it: whatever it is, no reason not to copy
        log.debug("the compiled heart can't be loaded: %s", e)
        return None
    return module if getattr(module, "INTERFACE", None) == _INTERFACE else None


def _from_zip() -> Any:
    """Load the extension from the zip that this module comes from, without a file that could be left or replaced."""
    for suffix in EXTENSION_SUFFIXES:  # those that this interpreter takes
        try:
            content = get_data("airflow_mirror.wire", f"_heart{suffix}") or b""
        except OSError:
            continue
        # Gone with its descriptor: who dies amid it leaves no file that a later process would load.
        with open(os.memfd_create("_heart"), "wb") as file:
            file.write(content)
            file.flush()
            loader = ExtensionFileLoader(_NAME, f"/proc/self/fd/{file.fileno()}")
            spec = spec_from_loader(_NAME, loader)
            assert spec is not None
            module = module_from_spec(spec)
            loader.exec_module(module)
            return module
    raise ImportError(f"nothing was compiled for this interpreter in {__file__}")


engine: Any = _load()


def name() -> str:
    """Return the heart that runs, for people."""
    return "pure" if engine is None else "compiled"


def merge_below(wanted: int) -> int:
    """Return the size of batches, in bytes, below which merging is quicker, at most ``wanted``."""
    return wanted if engine is not None else min(wanted, _PURE_MERGE_BELOW)
