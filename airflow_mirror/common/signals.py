"""What a signal handler may do: set an event, and nothing else.

A handler runs in the main thread, between any two of its instructions. An exception that it raises can appear inside a
loop that tries again after errors of that type, and is lost there. ``Event.set`` needs a lock that the main thread may
hold at that moment, because it was about to wait for this event: then it would wait for itself for ever.
"""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_asked_to_stop = threading.Event()


def set_in_handler(event: threading.Event) -> None:
    """Set an event without waiting for its lock. To be called by handlers of signals.

    :mod:`_thread`, because starting a ``threading.Thread`` needs locks, too.
    """
    _thread.start_new_thread(event.set, ())


def stop_by_signals(event: threading.Event) -> None:
    """Let SIGTERM and SIGINT set an event from now on, and end each :func:`pause`. To be called by the main thread.

    One that came to another event before sets this one, too.
    """

    def stop(*_: object) -> None:
        set_in_handler(_asked_to_stop)
        set_in_handler(event)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    if _asked_to_stop.is_set():
        event.set()


def pause(seconds: float) -> bool:
    """Wait; return False at once if a signal has asked this process to stop, before or meanwhile."""
    return not _asked_to_stop.wait(seconds)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore SIGINT, SIGTERM and SIGALRM while something is undone: a second Ctrl-C must not leave half of it.

    The first signal has already ended what is undone, so later ones can be dropped. SIGKILL can't be held.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only
        return
    held = [signal.SIGINT, signal.SIGTERM, signal.SIGALRM]
    before = {number: signal.getsignal(number) for number in held}
    for number in held:
        signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
