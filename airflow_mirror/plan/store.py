"""Plans by hash. A plan never changes once it is stored, so its hash identifies it.

Tasks pass the hash to each other. A name would not be enough: two runs of one mirror plan at different times, and one
must not copy what the other planned.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from airflow_mirror.errors import InputError, PlanOfAnother
from airflow_mirror.files import replace_file
from airflow_mirror.plan.markdown import render
from airflow_mirror.plan.model import Plan

if TYPE_CHECKING:
    from airflow_mirror.mirror import Mirror

KEEP = 200  # plans per directory; an hourly window makes 8,760 a year
_HASH = re.compile(r"[0-9a-f]{64}")
# These set the rate and batch sizes of a copy, not its content: a task may have other values than the plan.
_TUNING = frozenset({"max_bytes_per_second", "merge_below"})


def write(plan: Plan, path: Path) -> None:
    """Write ``path`` and the same as Markdown next to it. A reader sees an old or a new file, never half of one."""
    replace_file(path, plan.to_json())
    replace_file(path.with_suffix(".md"), render(plan))


class PlanStore(Protocol):
    """The store of plans."""

    def save(self, plan: Plan) -> str:
        """Store a plan and return its hash. Storing the same plan again changes nothing."""

    def load(self, plan_hash: str) -> Plan:
        """Return the plan with this hash.

        :raises InputError: it is not stored here, or was changed.
        """

    def last(self) -> Plan | None:
        """Return the last stored plan that was not blocked; the next plan continues from it."""


class PlanDirectory:
    """Plans as files ``<hash>.json``, each with a readable ``<hash>.md``; the last :data:`KEEP` are kept."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, plan_hash: str) -> Path:
        """Return the file of a plan.

        :raises InputError: ``plan_hash`` is not a hash.
        """
        if not _HASH.fullmatch(plan_hash):
            raise InputError(f"{plan_hash!r} is not a plan's hash. Pass the 'hash' that PlanMirrorOperator returned.")
        return self._directory / f"{plan_hash}.json"

    def save(self, plan: Plan) -> str:
        """See :class:`PlanStore`."""
        path = self.path(plan.hash)
        write(plan, path)
        if not plan.blocks:
            replace_file(self._directory / "last", plan.hash)
        needed = {plan.hash, self._last()}
        for old in self._oldest():
            if old.stem not in needed:
                old.unlink(missing_ok=True)
                old.with_suffix(".md").unlink(missing_ok=True)
        return plan.hash

    def load(self, plan_hash: str) -> Plan:
        """See :class:`PlanStore`."""
        path = self.path(plan_hash)
        plan = Plan.load(path)
        if plan.hash != plan_hash:
            raise InputError(f"{path} holds plan {plan.hash}. Make the plan again with PlanMirrorOperator.")
        return plan

    def last(self) -> Plan | None:
        """See :class:`PlanStore`."""
        plan_hash = self._last()
        return self.load(plan_hash) if plan_hash else None

    def _last(self) -> str:
        try:
            return (self._directory / "last").read_text(encoding="utf-8").strip()
        except OSError:
            return ""

    def _oldest(self) -> list[Path]:
        plans = [p for p in self._directory.glob("*.json") if _HASH.fullmatch(p.stem)]
        return sorted(plans, key=lambda p: p.stat().st_mtime)[:-KEEP]


def require_plan_of(plan: Plan, mirror: Mirror) -> None:
    """Refuse a plan that must not be executed for ``mirror``.

    :raises PlanOfAnother: names the fields in which the plan's Mirror differs.
    :raises PlanBlocked: with every block.
    """
    planned, asked = plan.mirror.to_dict(), mirror.to_dict()
    differing = {key: (planned[key], asked[key]) for key in asked if planned[key] != asked[key] and key not in _TUNING}
    if differing:
        raise PlanOfAnother(plan.hash, differing)
    plan.raise_if_blocked()
