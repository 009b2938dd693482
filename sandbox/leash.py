"""Turn this process into another program that dies together with its parent. Run as a script, never imported.

    python -I -S leash.py PARENT_PID PROGRAM ARGUMENT...

Linux sends SIGKILL to this process when the thread that started it ends (PR_SET_PDEATHSIG), and keeps the order across
``exec``. It is set here, in a fresh single-threaded process, and not in ``preexec_fn``, which runs Python between fork
and exec of a process with many threads and can deadlock there. Where there is no prctl (macOS) the program just runs;
an orderly exit still stops it.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent = int(sys.argv[1])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # The parent may have died before the order was in place; then nobody would send the signal any more.
        if os.getppid() != parent:
            sys.exit(1)
    os.execv(sys.argv[2], sys.argv[2:])
