"""``python -m sandbox.gssapi COMMAND``: run the command that builds the Python package gssapi, and try what it built.

There is no wheel of it for Linux. It is compiled against Kerberos's headers: those of the system where there are any
(``krb5-config``), else those of Debian's packages in the user's cache, whose libraries it then uses as well. So nothing
has to be installed, and no Kerberos of the machine is touched. A machine without a C compiler gets one from PyPI (zig).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

from airflow_mirror.errors import MirrorError
from sandbox.errors import KerberosUnavailable
from sandbox.krb5 import Krb5, unpacked

_TRY = "import gssapi; gssapi.Name('kafka@localhost', gssapi.NameType.hostbased_service)"


def build_environment(krb5: Krb5) -> dict[str, str]:
    """Return what gssapi's build needs in its environment to find unpacked headers and libraries.

    The path of the libraries goes into what is built, for them and for what they load in turn (RPATH, not RUNPATH).
    """
    libraries = krb5.libraries
    if krb5.root is None or libraries is None:
        return {}
    return {
        "GSSAPI_COMPILER_ARGS": f"-I{krb5.root}/usr/include -DHAS_GSSAPI_EXT_H",
        "GSSAPI_LINKER_ARGS": f"-L{libraries} -lgssapi_krb5 -Wl,--disable-new-dtags -Wl,-rpath,{libraries}",
        "GSSAPI_MAIN_LIB": str(libraries / "libgssapi_krb5.so.2"),
        # The build loads the library to see what it can do, and with it the others of the same version.
        "LD_LIBRARY_PATH": str(libraries),
    }


def _compiler(environment: Mapping[str, str]) -> dict[str, str]:
    if environment.get("CC") or shutil.which("cc") or shutil.which("gcc"):
        return {}
    raise KerberosUnavailable("there is no C compiler (cc, gcc)")


def main(command: Sequence[str]) -> int:
    """Run the command; return its status, or 1 if what it built does not work."""
    try:
        environment = {} if shutil.which("krb5-config") else build_environment(unpacked())
        environment |= _compiler(os.environ)
    except MirrorError as e:
        print(e, file=sys.stderr)
        return 1
    done = subprocess.run(command, env={**os.environ, **environment}, check=False)
    return done.returncode or subprocess.run([sys.executable, "-c", _TRY], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
