"""Functions that a setting, or an argument, names by their dotted path."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from typing import Any


def function_at(path: str) -> Callable[..., Any]:
    """Return the function that ``package.module.function`` names.

    :raises ImportError: there is none; its text is the cause, and may quote the path.
    """
    try:
        found: Callable[..., Any] = pkgutil.resolve_name(path)
    except (AttributeError, ValueError) as e:
        raise ImportError(str(e)) from e
    if not callable(found):
        raise ImportError(f"{path} is no function")
    return found
