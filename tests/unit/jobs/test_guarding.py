"""What the process that guards a fence is told."""

from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING

from airflow_mirror.config import ClientConfig, load
from airflow_mirror.jobs.runner.guarding import guarded

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_guard_of_a_tail_reads_the_settings_again_as_its_tail_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lives as long: with a password that was deleted since it could lift no fence."""
    told, file = bytearray(), tmp_path / "src.properties"
    pipe = SimpleNamespace(write=told.extend, flush=lambda: None, close=lambda: None)
    process = SimpleNamespace(stdin=pipe, stdout=pipe, wait=lambda timeout: 0)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: process)
    file.write_text("bootstrap.servers=s:1\nsasl.mechanism=PLAIN\nsasl.password=old\n")
    with guarded(load(str(file)), ClientConfig({"bootstrap.servers": "t:1"}), "m", every_s=1.0, wait_s=1.0):
        order = json.loads(told)
    source, target = (ClientConfig(role=role, **order[role]) for role in ("source", "target"))
    file.write_text("bootstrap.servers=s:1\nsasl.mechanism=PLAIN\nsasl.password=new\n")
    assert (source.properties["sasl.password"], source.as_now().properties["sasl.password"]) == ("old", "new")
    assert target.as_now() is target
