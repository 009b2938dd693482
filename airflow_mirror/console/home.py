"""What a command takes from Airflow, where there is one: its home ``<home>/<mirror name>/``, settings, connections."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from pathlib import Path
from types import ModuleType

from airflow_mirror.errors import InputError

_DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
_NOT_FOR_TASKS = "airflow-db-not-allowed:"  # what a worker gives the processes of its tasks, and nothing can parse


def add_home(parser: argparse._ActionsContainer, what: str) -> None:
    """Add ``--home``. :param what: it is asked for."""
    parser.add_argument(
        "--home", type=Path, metavar="DIR",
        help=f"the directory of all mirrors on this host, for {what} (default: Airflow's [mirror] home; without Airflow "
        "airflow-mirror in the user's state directory)",
    )  # fmt: skip


def home_of(arguments: argparse.Namespace) -> Path:
    """Return ``--home``, or what stands for it."""
    if arguments.home is not None:
        return Path(arguments.home)
    hooks = hooks_of("home")
    return own_home() if hooks is None else Path(hooks.home())


def configured(name: str) -> str:
    """Return what Airflow's section [mirror] says, ``alarm`` or ``report_key``; "": nothing, or there is no Airflow."""
    hooks = hooks_of("home")
    return "" if hooks is None else str(getattr(hooks, name)())


def hooks_of(module: str) -> ModuleType | None:
    """Return a module of :mod:`airflow_mirror.hooks`; None without Airflow.

    Airflow sets up its log when it is imported, on standard output, where a command prints what may be JSON. From then on
    it goes to standard error.

    :raises InputError: there is one, and it can't be loaded as it is set up.
    """
    # Without a database it has its settings, connections of the environment and secrets backends all the same.
    if os.environ.get(_DATABASE, "").startswith(_NOT_FOR_TASKS):
        os.environ[_DATABASE] = "sqlite://"
    try:
        found = importlib.import_module(f"airflow_mirror.hooks.{module}")
    except Exception as e:
        if isinstance(e, ModuleNotFoundError) and str(e.name).partition(".")[0] == "airflow":
            return None
        raise InputError(
            "Airflow can't be loaded on this host",
            f"{type(e).__name__}: {e}",
            "Correct its settings (AIRFLOW_HOME, AIRFLOW__...), or run this in an environment without Airflow.",
        ) from e
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stdout:
            handler.setStream(sys.stderr)
    return found


def own_home() -> Path:
    """Return the home of what runs without Airflow. :raises InputError: the user has none, as in some containers."""
    try:
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state", "airflow-mirror")
    except RuntimeError as e:
        raise InputError(
            f"user {os.getuid()} has no home directory on this host", str(e), "Give --home, or set XDG_STATE_HOME."
        ) from e


def runs_of(arguments: argparse.Namespace) -> Path | None:
    """Return the directory of the mirror's runs on this host; None if it has none."""
    runs = home_of(arguments) / arguments.mirror / "runs"
    return runs if runs.is_dir() else None
