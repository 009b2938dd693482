"""MIT Kerberos for the sandbox: what is installed on this machine, else Debian's packages in the user's cache."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from airflow_mirror.jobs.runner.java import cache_dir
from sandbox.debian import unpack
from sandbox.errors import KerberosUnavailable
from sandbox.store import keep

PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_ROOTS = ("krb5-kdc", "krb5-admin-server", "krb5-user", "libkrb5-dev", "libgssapi-krb5-2")
# Of all that these depend on. The C library and what else every Debian has stays the machine's own.
_OURS = re.compile(
    "krb5-(kdc|admin-server|user|multidev)|comerr-dev|"
    "lib(krb5|gssapi|gssrpc|k5crypto|kadm5|kdb5|verto1|verto-libev|ev4|com-err|ss2|keyutils|lmdb)"
)
_INSTALLED = ("/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/lib/mit/sbin")  # not on every user's PATH


@dataclass(frozen=True)
class Krb5:
    """MIT Kerberos on this machine.

    :param programs: name -> path, for :data:`PROGRAMS`.
    :param root: where Debian's packages were unpacked; None: the system's own.
    """

    programs: dict[str, Path]
    root: Path | None = None

    @property
    def libraries(self) -> Path | None:
        """Directory of the unpacked libraries."""
        return None if self.root is None else next(self.root.glob("usr/lib/*-linux-gnu*"))

    @property
    def environment(self) -> dict[str, str]:
        """What its programs need in their environment."""
        return {} if self.libraries is None else {"LD_LIBRARY_PATH": str(self.libraries)}


def krb5(progress: TextIO | None = None) -> Krb5:
    """Return the system's Kerberos if its programs are there, else the one in the user's cache, fetching it if need be.

    :raises KerberosUnavailable: neither is to be had.
    """
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_INSTALLED])
    found = {name: Path(where) for name in PROGRAMS if (where := shutil.which(name, path=path))}
    return Krb5(found) if len(found) == len(PROGRAMS) else unpacked(progress)


def unpacked(progress: TextIO | None = None) -> Krb5:
    """Return Debian's Kerberos from the user's cache: programs, libraries and headers. Fetches it if need be.

    :raises KerberosUnavailable: there is no apt, or it can't fetch them.
    """
    root, progress = cache_dir() / "krb5", progress or sys.stderr
    try:
        keep(root, lambda: _is_whole(root), lambda work: _fetch(work, progress), progress)
    except OSError as e:
        raise KerberosUnavailable(f"it can't be kept in {root}: {e}") from e
    return Krb5(_programs(root), root)


def _programs(root: Path) -> dict[str, Path]:
    return {
        name: path for name in PROGRAMS for path in (root / "usr/sbin" / name, root / "usr/bin" / name) if path.exists()
    }


def _is_whole(root: Path) -> bool:
    return len(_programs(root)) == len(PROGRAMS) and (root / "usr/include/gssapi/gssapi_ext.h").exists()


def _fetch(work: Path, progress: TextIO) -> Path:
    print("fetching Debian's Kerberos (2 MB) ...", file=progress, flush=True)
    root = unpack(work, _ROOTS, _OURS)
    (root / "usr/bin/ksu").unlink(missing_ok=True)  # the one program that would have a bit of root's
    if not _is_whole(root):
        raise KerberosUnavailable(f"Debian's packages do not hold {', '.join(PROGRAMS)} and the headers")
    return root
