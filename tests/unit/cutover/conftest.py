"""What tests of whole cutovers share."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from airflow_mirror.cutover.platform import Platform


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no target that would hear signs of life, or could be asked by a guard."""
    monkeypatch.setattr(Platform, "signs_of_life", lambda *_: nullcontext())
    monkeypatch.setattr(Platform, "guarded", lambda *_: nullcontext(lambda: None))
