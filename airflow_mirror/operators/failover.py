"""FailoverOperator and FenceReturnedSourceOperator: promote a target, and shut a source that returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from airflow.sdk.exceptions import AirflowFailException, AirflowTaskTimeout

from airflow_mirror.hooks.outcomes import task_outcome
from airflow_mirror.operators.base import NativeOperator, flag, name_of, number, pulled_from
from airflow_mirror.operators.cutover import report_signer
from airflow_mirror.operators.summaries import compact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

__all__ = ["FailoverOperator", "FenceReturnedSourceOperator"]


class FailoverOperator(NativeOperator):
    """Promotes the target of a mirror whose source is gone, from what the target's own ledger knows.

    It takes no Mirror and no source: an Airflow that has never seen the mirror can run it. What an earlier try, or
    another host, left unfinished is completed; a finished failover changes nothing. Returns the report, as values and as
    ``text``.

    :param target: connection (type ``kafka``) of the cluster that is promoted (templated).
    :param mirror_name: the mirror's name (templated).
    :param check_only: only say what would be lost and done (templated).
    :param force: also if a tail has just seen the source, or a cutover is at work: what the source takes from then on is
        lost (templated).
    :param unattended: nobody has approved it: without ``force`` also refused unless a tail has missed the source.
        One that died says nothing of it (templated).
    :param approval_valid_s: how old it may be what a FailoverOperator upstream has seen with ``check_only``, unless
        ``force`` is given, nobody has approved it, or the failover is begun already (templated).
    """

    template_fields: Sequence[str] = (
        "target", "mirror_name", "check_only", "force", "unattended", "approval_valid_s",
    )  # fmt: skip
    checks_failover = True

    def __init__(
        self, *, target: str, mirror_name: str, check_only: bool | str = False, force: bool | str = False,
        unattended: bool | str = False, approval_valid_s: float | str = 3600.0, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.target, self.mirror_name, self.check_only, self.force = target, mirror_name, check_only, force
        self.unattended, self.approval_valid_s = unattended, approval_valid_s

    def execute(self, context: Context) -> dict[str, Any]:
        """Check, or fail over; a refusal fails the task without a retry."""
        with task_outcome():
            return self._run(context)

    def _run(self, context: Context) -> dict[str, Any]:
        from airflow_mirror.cutover.failover.check import check
        from airflow_mirror.cutover.failover.run import run
        from airflow_mirror.cutover.platform import Side
        from airflow_mirror.hooks.kafka import MirrorKafkaHook

        name, force = str(name_of("mirror_name", self.mirror_name)), flag("force", self.force)
        unattended, valid_s = flag("unattended", self.unattended), number("approval_valid_s", self.approval_valid_s)
        with MirrorKafkaHook(str(self.target), "target").admin() as target:
            if flag("check_only", self.check_only):
                checked = check(Side(target), name, unattended=unattended)
                for line in checked.lines():
                    self.log.info("%s", line)
                return compact(checked.to_dict())
            report = run(
                Side(target), name, force=force, unattended=unattended,
                shown_at=None if unattended else self._shown_at(name, context), approval_valid_s=valid_s,
                log=cast("Any", self.log),
            )  # fmt: skip
        for line in report.lines():
            self.log.info("%s", line)
        return compact(report.to_dict())

    def _shown_at(self, name: str, context: Context) -> float | None:
        """Return when the checks of the mirror upstream were made, the first of them; None: there is none."""
        checks = pulled_from(self, "checks_failover", context)
        return min((float(r["at"]) for r in checks if r.get("mirror") == name and "at" in r), default=None)


class FenceReturnedSourceOperator(NativeOperator):
    """Asks the source of a mirror that was failed over every second, and fences it when it answers.

    It holds a worker's slot for as long as the source is away: a fence within seconds can't wait for a scheduler. Give it
    ``execution_timeout``, behind which it fails without a retry, and ``retries``; each try goes on where the one before
    ended. Once the fence is proven it lists what the source took after the last copied offset, here and in the
    failover's report, and the task ends. A task that is run again only looks whether the fence is up.

    :param target: connection (type ``kafka``) of the cluster that was promoted (templated).
    :param source: connection of the source that may return (templated).
    :param mirror_name: the mirror's name (templated).
    :param fence: ``acl``, or the dotted path of a function, as for CutoverOperator (templated).
    :param open_by_default: as for CutoverOperator (templated).
    """

    template_fields: Sequence[str] = ("target", "source", "mirror_name", "fence", "open_by_default")

    def __init__(
        self, *, target: str, source: str, mirror_name: str, fence: str = "acl",
        open_by_default: bool | str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.target, self.source, self.mirror_name = target, source, mirror_name
        self.fence, self.open_by_default = fence, open_by_default

    def execute(self, context: Context) -> dict[str, Any]:
        """Stand by, and fence; what a person has to decide fails the task without a retry.

        :raises AirflowFailException: its time is over as well.
        """
        try:
            with task_outcome():
                return self._run()
        except AirflowTaskTimeout:
            # Airflow would try again, and each of the retries would hold a slot for as long.
            raise AirflowFailException(
                f"the source of mirror {self.mirror_name!r} was not fenced within {self.execution_timeout}: it has not "
                "returned, or not come to rest. Clear this task to stand by again."
            ) from None

    def _run(self) -> dict[str, Any]:
        from airflow_mirror.cutover.failover.returned import watch
        from airflow_mirror.hooks.kafka import MirrorKafkaHook

        known = None if self.open_by_default is None else flag("open_by_default", self.open_by_default)
        source = MirrorKafkaHook(str(self.source), "source").config()
        with MirrorKafkaHook(str(self.target), "target").admin() as target:
            found = watch(
                source, target, str(name_of("mirror_name", self.mirror_name)), fence=str(self.fence),
                open_by_default=known, signer=report_signer(), log=cast("Any", self.log),
            )  # fmt: skip
        for line in found.lines():
            self.log.info("%s", line)
        return compact(found.to_dict())
