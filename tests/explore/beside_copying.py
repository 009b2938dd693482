"""What a driver has beside its copy, where schedules are about the copy: nothing is followed, shown, or wished for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from airflow_mirror.jobs.driver import rounds
from airflow_mirror.wire.cluster import WireCluster

LISTEN_EVERY_S = 1.0


class _Quiet:
    """What shows and follows, and has no part in copying."""

    report_to = None

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: None

    @property
    def table(self) -> _Quiet:
        """Its table is as quiet."""
        return self

    def rows(self) -> list[Any]:
        """It has none."""
        return []


QUIET = _Quiet()


class Ear(rounds.Ear):
    """Hears no wishes, and withdraws the lease all the same."""

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._look()
                self._hear(self.wishes)
            except Exception as e:
                self._complaints.of(e)
            self._ended.wait(LISTEN_EVERY_S)


class LeaseAdmin:
    """An admin of which a lease's keeper needs little."""

    def __init__(self, config: Any) -> None:
        self.wire = WireCluster(config)

    def __enter__(self) -> LeaseAdmin:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()

    def broker_configs(self) -> dict[int, Any]:
        """The default: a week."""
        return {1: {"transactional.id.expiration.ms": SimpleNamespace(value="604800000")}}
