"""How the demo ends when it is interrupted."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from demo import __main__ as demo


@pytest.fixture(autouse=True)
def _nobody_stops_it() -> Iterator[None]:
    yield
    demo._asked_to_stop.clear()


def test_interrupt_that_c_code_turned_into_error_ends_the_demo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        except KeyboardInterrupt:
            raise ValueError("config name to be unicode string") from None

    monkeypatch.setattr(demo, "_demo", interrupted)
    assert demo.main([]) == 130
    assert "stopped" in capsys.readouterr().out


def test_any_other_error_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(demo, "_demo", broken)
    with pytest.raises(ValueError, match="a bug"):
        demo.main([])
