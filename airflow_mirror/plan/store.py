"""Plans by hash. A plan never changes once it is stored, so its hash identifies it.

Tasks pass the hash to each other. A name would not be enough: two runs of one mirror plan at different times, and one
must not copy what the other planned.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from airflow_mirror.common.files import replace_file
from airflow_mirror.errors import InputError
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.markdown import render
from airflow_mirror.plan.model import Plan

KEEP = 200  # plans of a mirror; an hourly window makes 8,760 a year
_HASH = re.compile(r"[0-9a-f]{64}")
# No plan depends on them (rate and batch sizes of a copy, names of principals and registries, what follows a tail how
# often): a task may have other values than its plan.
_TUNING = frozenset(
    {
        "acl_interval_s", "checkpoint_interval_s", "config_interval_s", "group_interval_s", "heartbeat_interval_s",
        "log_start_delay_s", "max_bytes_per_second", "merge_below", "own_principals", "principals", "remove_acls",
        "schema_interval_s", "source_registry", "sync_acls", "sync_configs", "sync_groups", "sync_log_starts",
        "sync_schemas", "sync_topics", "target_alias",
        "target_registry", "topic_interval_s", "trace_replication_factor", "traces",
    }
)  # fmt: skip


def is_hash(text: str) -> bool:
    """Return whether a text looks like a plan's hash."""
    return _HASH.fullmatch(text) is not None


def write(plan: Plan, path: Path) -> None:
    """Write ``path`` and the same as Markdown next to it. A reader sees an old or a new file, never half of one."""
    replace_file(path, plan.to_json())
    replace_file(path.with_suffix(".md"), render(plan))


class PlanDirectory:
    """Plans as files ``<hash>.json``, each with a readable ``<hash>.md``; the last :data:`KEEP` are kept.

    They are what this host has made or asked for: those that may be carried out are on the target (:mod:`.ledger_store`).
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, plan_hash: str) -> Path:
        """Return the file of a plan.

        :raises InputError: ``plan_hash`` is not a hash.
        """
        if not is_hash(plan_hash):
            raise InputError(
                f"{plan_hash!r} is not a plan's hash",
                "one has 64 hexadecimal digits",
                "Pass the 'hash' that PlanMirrorOperator returned.",
            )
        return self._directory / f"{plan_hash}.json"

    def save(self, plan: Plan) -> Path:
        """Write a plan and return its file. Writing the same plan again changes nothing."""
        path = self.path(plan.hash)
        write(plan, path)
        for old in self._oldest():
            for file in self._directory.glob(f"{old.stem}.*"):  # and what was written beside it
                file.unlink(missing_ok=True)
        return path

    def load(self, plan_hash: str) -> Plan | None:
        """Return the plan with this hash; None if it is not here.

        :raises InputError: the file was changed.
        """
        path = self.path(plan_hash)
        if not path.exists():
            return None
        plan = Plan.load(path)
        if plan.hash != plan_hash:
            raise InputError(str(path), f"it holds plan {plan.hash}", "Make the plan again with PlanMirrorOperator.")
        return plan

    def _oldest(self) -> list[Path]:
        plans = dict[Path, float]()
        for path in (p for p in self._directory.glob("*.json") if is_hash(p.stem)):
            with suppress(FileNotFoundError):  # another task, which saves a plan as well, has removed it
                plans[path] = path.stat().st_mtime
        return sorted(plans, key=lambda p: plans[p])[:-KEEP]


def require_plan_of(plan: Plan, mirror: Mirror) -> None:
    """Refuse a plan that must not be executed for ``mirror``.

    :raises InputError: names the fields in which the plan's Mirror differs.
    :raises InputError: with every block.
    """
    if differing := differing_fields(plan.mirror, mirror):
        fields = "; ".join(f"{key}: planned {was!r}, now {now!r}" for key, (was, now) in differing.items())
        raise InputError(
            f"plan {plan.hash:.12} was made for another mirror ({fields})", "",
            "Give all tasks of a run the same mirror, and plan again when it changes.",
        )  # fmt: skip
    plan.raise_if_blocked()


def differing_fields(planned: Mirror, asked: Mirror) -> dict[str, tuple[object, object]]:
    """Return the fields on which plans depend and in which two mirrors differ, with both values."""
    ours, theirs = planned.to_dict(), asked.to_dict()
    return {key: (ours[key], theirs[key]) for key in theirs if ours[key] != theirs[key] and key not in _TUNING}
