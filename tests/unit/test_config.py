"""Client settings, read from files that somebody may just be writing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_mirror.config import Handover, load
from airflow_mirror.errors import InputError, MissingSetting

WRITTEN = {"dst.properties": "bootstrap.servers=a:1\n", "dst.json": '{"bootstrap.servers": "a:1"}'}


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[float]]:
    """Let something happen while a file is waited for; return the seconds of each pause."""

    def set_up(what: Callable[[], object]) -> list[float]:
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            what()

        monkeypatch.setattr("airflow_mirror.config.time.sleep", pause)
        return pauses

    return set_up


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("half", [None, 0, 5], ids=["absent", "empty", "cut"])
def test_a_file_that_is_just_written_counts_when_it_is(
    tmp_path: Path, meanwhile: Callable[..., list[float]], name: str, half: int | None
) -> None:
    """What follows for months reads it at any moment: an editor empties a file before it writes it."""
    file = tmp_path / name
    if half is not None:
        file.write_text(WRITTEN[name][:half])
    pauses = meanwhile(lambda: file.write_text(WRITTEN[name]))
    assert Handover.of(str(file)).settings == {str(file): {"bootstrap.servers": "a:1"}}
    assert len(pauses) == 1


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        (None, InputError, "can't be read: No such file"),
        ("", MissingSetting, "'bootstrap.servers' is not set"),
        ("bootstrap.servers", InputError, "line 1 is no 'key=value'"),
    ],
)
def test_one_that_stays_wrong_is_named_within_a_second(
    tmp_path: Path, meanwhile: Callable[..., list[float]], text: str | None, error: type[InputError], says: str
) -> None:
    file = tmp_path / "dst.properties"
    if text is not None:
        file.write_text(text)
    pauses = meanwhile(lambda: None)
    with pytest.raises(error, match=says) as caught:
        load(str(file), "target")
    assert str(caught.value).startswith("target settings: ") and str(file) in str(caught.value)
    assert 0 < sum(pauses) < 1
