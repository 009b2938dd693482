"""Where a command keeps its files on this host: ``<home>/<mirror name>/``, as the operators do below Airflow's."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


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
    try:
        from airflow_mirror.hooks.home import home as airflows
    except ImportError:
        return own_home()
    return airflows()


def configured(name: str) -> str:
    """Return what Airflow's section [mirror] says, ``alarm`` or ``report_key``; "": nothing, or there is no Airflow."""
    try:
        from airflow_mirror.hooks import home as of_airflow
    except ImportError:
        return ""
    return str(getattr(of_airflow, name)())


def own_home() -> Path:
    """Return the home of what runs without Airflow."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state", "airflow-mirror")


def runs_of(arguments: argparse.Namespace) -> Path | None:
    """Return the directory of the mirror's runs on this host; None if it has none."""
    runs = home_of(arguments) / arguments.mirror / "runs"
    return runs if runs.is_dir() else None
