"""What signal handlers do."""

from __future__ import annotations

import threading

from airflow_mirror.common.signals import set_in_handler


def test_event_is_set_though_its_lock_is_held_meanwhile() -> None:
    """As by the main thread, which was about to wait for it when the signal came."""
    event = threading.Event()

    def interrupted() -> None:
        with event._cond:  # type: ignore[attr-defined]
            set_in_handler(event)

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive() and event.wait(30)
