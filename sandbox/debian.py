"""Debian's packages, unpacked into the user's cache and not installed.

``apt-get download`` and ``dpkg -x`` need no rights and change nothing of the machine. apt gets lists of its own: those of
the machine may be missing, as in a container image, or old.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sandbox.errors import KerberosUnavailable, without_addresses


def unpack(work: Path, roots: Sequence[str], wanted: re.Pattern[str]) -> Path:
    """Unpack packages into a directory inside ``work``, as if it was the root of the file system; return it.

    Names end in numbers that differ from release to release, so apt is asked for them.

    :param roots: the packages from which others are found.
    :param wanted: of all that these depend on, the names to unpack; the others are expected on the machine.
    :raises KerberosUnavailable: there is no apt, or it can't fetch them.
    """
    missing = [name for name in ("apt-get", "apt-cache", "dpkg") if shutil.which(name) is None]
    if missing:
        raise KerberosUnavailable(
            f"something is missing on this machine, and there is no {', '.join(missing)} to fetch it"
        )
    packages, lists, root = work / "packages", work / "lists", work / "root"
    for directory in (packages, lists / "partial", root):
        directory.mkdir(parents=True)
    # Not as the user _apt, who may not write here.
    apt = ["-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={work / 'cache'}", "-o", "APT::Sandbox::User=root"]
    _run(["apt-get", *apt, "-qq", "update"], work)
    needless = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]
    needed = _run(["apt-cache", *apt, "depends", "--recurse", *needless, *roots], work)
    names = sorted({line for line in needed if wanted.match(line)})
    _run(["apt-get", *apt, "-qq", "download", *names], packages)
    for package in sorted(packages.glob("*.deb")):
        _run(["dpkg", "-x", str(package), str(root)], work)
    _turn_inwards(root)
    return root


def _turn_inwards(root: Path) -> None:
    """Make absolute links relative, if what they name was unpacked too; the directory is moved to its place later."""
    for path in root.rglob("*"):
        if path.is_symlink() and (target := os.readlink(path)).startswith("/"):
            inside = root / target.lstrip("/")
            if os.path.lexists(inside):
                path.unlink()
                path.symlink_to(os.path.relpath(inside, path.parent))


def _run(command: Sequence[str], directory: Path) -> list[str]:
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, errors="replace", env={**os.environ, "LC_ALL": "C"}
    )
    if done.returncode:
        lines = [line for line in without_addresses((done.stdout + done.stderr).splitlines()) if line]
        raise KerberosUnavailable(f"'{command[0]}' failed with status {done.returncode}", lines[-4:])
    return done.stdout.splitlines()
