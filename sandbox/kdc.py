"""A Kerberos realm on this machine: a KDC with a database of its own, and keytabs for whom a test wants.

    with Realm("ONE.TEST") as realm:
        os.environ["KRB5_CONFIG"] = str(realm.config)
        keytab = realm.keytab("mirror")

The KDC is a child process, as brokers are, and can be killed, restarted and frozen as they can. Several realms in one
process: ``KRB5_CONFIG`` takes their configurations joined by colons.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from airflow_mirror.errors import InputError
from sandbox.errors import KerberosUnavailable
from sandbox.home import Home
from sandbox.krb5 import Krb5, krb5
from sandbox.ports import HOST, ReservedPort, reserve
from sandbox.process import Child, Started, stands_still
from sandbox.program import log_lines

_READY_S = 30.0
SERVICE = f"kafka/{HOST}"  # who the brokers of a sandbox's cluster are


class Realm(Started):
    """One realm and its KDC; start it with ``with`` or :meth:`start`.

    :param name: such as ``ONE.TEST``.
    :param max_life_s: the longest life of a ticket, in seconds; a principal may have a shorter one.
    :raises InputError: for a name that can't be.
    """

    def __init__(self, name: str = "SANDBOX.TEST", max_life_s: int = 36_000) -> None:
        if not re.fullmatch(r"[A-Z0-9.-]{1,60}", name):
            raise InputError(f"realm {name!r}: use 1 to 60 capital letters, digits, '.' and '-'.")
        self.name, self._max_life_s = name, max_life_s
        self._home: Home | None = None
        self._port: ReservedPort | None = None
        self._krb5: Krb5 | None = None
        self._child: Child | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Make the database and start the KDC. It knows nobody but the brokers' :data:`SERVICE`.

        :raises KerberosUnavailable: there is no KDC to be had, or it does not start; with the end of its log.
        """
        if self._home is not None:
            return self
        self._krb5 = krb5()
        self._home, self._port = Home(self.name.lower()), reserve(self.name)
        try:
            self._write()
            self._run("kdb5_util", "-r", self.name, "create", "-s", "-P", "master")
            self.add(SERVICE)
            self.resume_or_restart()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the KDC and delete everything. Safe to call twice."""
        self.kill()
        if self._port is not None:
            self._port.release()
        if self._home is not None:
            self._home.release()
        self._home, self._port = None, None

    def kill(self) -> None:
        """End the KDC with SIGKILL; :meth:`resume_or_restart` starts it again."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def pause(self) -> None:
        """Freeze the KDC (SIGSTOP): it is connected to, and answers nothing."""
        if self._child is not None:
            self._child.send(signal.SIGSTOP)
            while not stands_still(self._child.pid):
                time.sleep(0.01)

    def resume_or_restart(self) -> None:
        """Let a frozen KDC go on, or start one that was killed, and wait until it takes connections."""
        if self._child is not None and self._child.alive():
            self._child.send(signal.SIGCONT)
            return
        self._child = Child(
            [str(self._of("krb5kdc")), "-n", "-r", self.name], self._log, self.directory, self._programs_env
        )
        deadline = time.monotonic() + _READY_S
        while not self._answers():
            if not self._child.alive() or time.monotonic() > deadline:
                raise KerberosUnavailable(f"the KDC of realm {self.name} did not start", log_lines(self._log, 6))
            time.sleep(0.02)

    # --- principals ---------------------------------------------------------------------------------------------------

    def add(self, principal: str, max_life_s: int | None = None) -> None:
        """Add a principal with a random key.

        :param principal: without its realm.
        :param max_life_s: the longest life of its tickets, in seconds.
        """
        life = [] if max_life_s is None else ["-maxlife", f"{max_life_s} seconds"]
        self._admin("addprinc", "-randkey", *life, principal)

    def remove(self, principal: str) -> None:
        """Remove a principal; tickets that it has stay valid until they end."""
        self._admin("delprinc", "-force", principal)

    def keytab(self, principal: str, name: str = "") -> Path:
        """Write a keytab of a principal that exists and return its path; its keys stay the same.

        :param name: of the file.
        """
        path = self.directory / f"{name or principal.replace('/', '-')}.keytab"
        path.unlink(missing_ok=True)
        self._admin("ktadd", "-norandkey", "-k", str(path), principal)
        return path

    def change_key(self, principal: str) -> None:
        """Give a principal another key: a keytab that was written before is wrong from now on."""
        self._admin("cpw", "-randkey", principal)

    def log_in(self, principal: str, cache: Path, life_s: int | None = None) -> None:
        """Write a ticket cache, as ``kinit`` does.

        :param life_s: how long the ticket lives, in seconds.
        """
        life = [] if life_s is None else ["-l", f"{life_s}s"]
        keytab = self.keytab(principal, "kinit")
        self._run("kinit", *life, "-k", "-t", str(keytab), "-c", str(cache), f"{principal}@{self.name}")

    # --- what clients need --------------------------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """The realm's directory while it is started."""
        if self._home is None:
            raise InputError(f"realm {self.name} is not started; use it in a 'with' block or call start().")
        return self._home.path

    @property
    def config(self) -> Path:
        """The ``krb5.conf`` of clients."""
        return self.directory / "krb5.conf"

    @property
    def pid(self) -> int | None:
        """The KDC's process id, or None when it is down."""
        return self._child.pid if self._child is not None and self._child.alive() else None

    # --- inside -------------------------------------------------------------------------------------------------------

    @property
    def _log(self) -> Path:
        return self.directory / "kdc.log"

    @property
    def _programs_env(self) -> dict[str, str]:
        assert self._krb5 is not None
        own = {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf"), "LC_ALL": "C"}
        return {**os.environ, **self._krb5.environment, **own}

    def _write(self) -> None:
        assert self._krb5 is not None and self._port is not None
        # DNS is asked for nothing: it would be a realm of this machine's owner. TCP alone, because a port is reserved so.
        libraries = self._krb5.libraries
        modules = f"[dbmodules]\n db_module_dir = {libraries}/krb5/plugins/kdb\n" if libraries is not None else ""
        self.config.write_text(
            f"[libdefaults]\n default_realm = {self.name}\n udp_preference_limit = 1\n dns_lookup_kdc = false\n"
            " dns_lookup_realm = false\n dns_canonicalize_hostname = false\n rdns = false\n"
            f"[realms]\n {self.name} = {{\n  kdc = {self._port.address}\n }}\n{modules}"
        )
        (self.directory / "kdc.conf").write_text(
            f"[realms]\n {self.name} = {{\n  database_name = {self.directory}/db\n"
            f"  key_stash_file = {self.directory}/stash\n  max_life = {self._max_life_s}s\n"
            f'  kdc_listen = ""\n  kdc_tcp_listen = {self._port.address}\n }}\n{modules}'
        )

    def _answers(self) -> bool:
        assert self._port is not None
        try:
            socket.create_connection((HOST, self._port.number), timeout=1).close()
        except OSError:
            return False
        return True

    def _of(self, program: str) -> Path:
        assert self._krb5 is not None
        return self._krb5.programs[program]

    def _admin(self, *command: str) -> None:
        said = self._run("kadmin.local", "-r", self.name, *command)
        # Its status is 0 for most failures.
        if re.search(r"^\w+: .*(while|not|denied)", said, re.MULTILINE):
            raise InputError(f"realm {self.name}: {said.strip().splitlines()[-1]}.")

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(self._of(program)), *arguments],
            cwd=self.directory,
            env=self._programs_env,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise KerberosUnavailable(f"{program} failed with status {done.returncode}", done.stderr.splitlines()[-4:])
        return done.stdout + done.stderr
