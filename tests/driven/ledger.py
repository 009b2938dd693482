"""A target with a ledger: the package's own, over loopback, on a driven cluster.

    def test_a_tail_is_known(ledger_target: LedgerCluster) -> None:
        with presence(replace(job, target=ledger_target.reference), ...):
            assert active_tail(ledger_target.ledger.values(), "m") is not None

Whoever is told where the target is (a path, as jobs and commands are given one) opens it, finds its ledger and reads its
state there by itself: nothing of that is stood in for. Opening and reading takes ten milliseconds.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING

from airflow_mirror.common.policy import DECISIONS, STATE, WISHES
from airflow_mirror.errors import MirrorError
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import MAP, kind_of
from airflow_mirror.ledger.state import State, state_of
from tests.driven.cluster import DrivenCluster
from tests.driven.validation import TopicConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class LedgerCluster(DrivenCluster):
    """A driven cluster with the three topics of a ledger; :meth:`begin` makes it one.

    In the end it asks whether each key has a row in the table of records. Like an admin facade, :attr:`ledger` and
    :attr:`state` belong to the test's thread.

    :param home: where the file with its settings goes.
    :ivar reference: that file, as `config.load` takes it.
    """

    def __init__(self, home: Path, role: str = "target", brokers: int = 1) -> None:
        super().__init__(role, brokers)
        self._open = ExitStack()
        file = home / f"{role}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self.config.properties.items()), encoding="utf-8")
        self.reference = str(file)
        self.create(DECISIONS, config=TopicConfig(append_time=True))
        for topic in (WISHES, STATE):
            self.create(topic, config=TopicConfig(append_time=True, cleanup_policy="compact"))

    def begin(self) -> None:
        """Write the ledger's first decision, as a plan does."""
        self.ledger.create()

    @cached_property
    def admin(self) -> ClusterAdmin:
        """The test's own connections."""
        return self._open.enter_context(ClusterAdmin(self.config))

    @cached_property
    def ledger(self) -> Ledger:
        """What is decided there."""
        return Ledger(self.admin)

    @cached_property
    def state(self) -> State:
        """All that has one writer."""
        return state_of(self.admin, "")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        keys = [] if kind else list(self._kept())
        self._open.close()
        super().__exit__(kind, error, tb)
        unknown = [key for key in keys if "/" in key and not kind_of(key) and not MAP.match(key)]
        assert not unknown, f"no row for {unknown} in airflow_mirror/ledger/records.py"

    def _kept(self) -> Iterator[str]:
        """Yield what is decided or was said, by key."""
        with suppress(MirrorError):  # a test may have lost the ledger
            yield from self.ledger.peek()
        for topic in (self.topics[name] for name in (WISHES, STATE) if name in self.topics):
            yield from ((row.key or b"").decode() for row in topic.logs[0].rows() if row.value is not None)
