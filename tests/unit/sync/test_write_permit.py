"""The right to write: confirmed before, held meanwhile, and gone when somebody ends it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from airflow_mirror.errors import LeaseLost
from airflow_mirror.sync import write_permit as rights
from airflow_mirror.sync.write_permit import Stopped, WritePermit


class Proof:
    """The lease is ours as long as ``holds``."""

    holds = True

    def __init__(self, target: Any, token: str) -> None:
        self.token = token

    def confirm(self) -> None:
        self.check()

    def check(self) -> None:
        if not Proof.holds:
            raise LeaseLost(self.token, 1, "epoch 2")


def test_right_is_confirmed_and_held_while_something_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "LeaseProof", Proof)
    right, target = WritePermit(lambda: cast("Any", "token")), cast("Any", None)
    with right.granted(target):
        assert right.writing.locked()  # `end` waits
    assert not right.writing.locked()
    monkeypatch.setattr(Proof, "holds", False)
    with pytest.raises(LeaseLost), right.granted(target):
        pytest.fail("nothing may be written")
    monkeypatch.setattr(Proof, "holds", True)
    right.end()
    with pytest.raises(Stopped), right.granted(target):
        pytest.fail("nothing may be written")
