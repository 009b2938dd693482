"""Libraries that only some logins need."""

from __future__ import annotations

import importlib
from typing import Any

from airflow_mirror.errors import InputError


def library(module: str, package: str, extra: str, needs: str, more: str = "") -> Any:
    """Return an installed module.

    :param package: that brings it, by ``extra``. :param needs: what needs it, for the error. :param more: on installing.
    :raises InputError: it can't be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as e:
        raise InputError(
            f"{needs} needs the Python package {package}",
            f"it can't be imported ({e})",
            f"Install it where the mirror runs, and on executors: pip install 'airflow-mirror[{extra}]'.{more}",
        ) from None
