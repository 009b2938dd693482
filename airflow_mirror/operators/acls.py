"""SyncAclsOperator: who may read and write on the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mirror.errors import InvalidField
from airflow_mirror.hooks.home import report_dir
from airflow_mirror.jobs.runner.directory import write_json
from airflow_mirror.operators.base import PlannedOperator, flag
from airflow_mirror.operators.summaries import compact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from airflow_mirror.mirror import Mirror

__all__ = ["SyncAclsOperator"]

_ROLES = ("source", "target")


class SyncAclsOperator(PlannedOperator):
    """Lets ACLs follow a mirror: those of readers early, those of writers at the cutover.

    Nobody gets more rights than on the source. The whole verdict goes to ``acls.<phase>.json`` in the run's directory.

    :param phase: ``early``, at any time before the cutover; ``cutover``, once the target is open (templated).
    :param dry_run: only report (templated).
    :param remove: also remove ACLs that are gone on the source and that this mirror could have written (templated).
    :param cluster_wide: also copy ACLs of the cluster, of delegation tokens and of users (templated).
    :param open_by_default: whether resources without any ACL are open to everybody on the target
        (``allow.everyone.if.no.acl.found``); None asks its brokers, which seldom say it (templated).
    :param own_principals: the mirror's own principal by role, such as ``{"target": "User:CN=mirror"}``, where brokers
        make it of a certificate or a token (templated).
    """

    template_fields: Sequence[str] = (
        *PlannedOperator.template_fields,
        "phase",
        "dry_run",
        "remove",
        "cluster_wide",
        "open_by_default",
        "own_principals",
    )

    def __init__(
        self,
        *,
        phase: str = "early",
        dry_run: bool | str = False,
        remove: bool | str = False,
        cluster_wide: bool | str = False,
        open_by_default: bool | str | None = None,
        own_principals: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # It shadows BaseOperator's method of that name, which prints rendered templates and which Airflow never calls.
        self.dry_run: bool | str = dry_run  # type: ignore[assignment]
        self.phase, self.remove, self.cluster_wide = phase, remove, cluster_wide
        self.open_by_default, self.own_principals = open_by_default, own_principals

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Compare, apply, read back.

        :raises NoAuthorizer: the target has none.
        :raises NotKept: a change is not visible when read back.
        :raises InvalidField: the map of principals is ambiguous, or nobody knows the mirror's own principal.
        """
        from airflow_mirror.hooks.kafka import admins_of
        from airflow_mirror.sync.acls import sync_acls

        dry_run = flag("dry_run", self.dry_run)
        options = {name: flag(name, getattr(self, name)) for name in ("remove", "cluster_wide")}
        stated = None if self.open_by_default is None else flag("open_by_default", self.open_by_default)
        plan, own = self.stored_plan(mirror), own_principals(self.own_principals)
        with admins_of(mirror) as (source, target):
            report = sync_acls(
                plan, source, target, phase=self.phase, open_to_all=stated, own=own, dry_run=dry_run, **options
            )
        directory = report_dir(mirror, context["ti"].run_id)
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"acls.{self.phase}{'.dry-run' if dry_run else ''}.json"
        verdict = report.to_dict()
        write_json(path, verdict)
        for line in report.lines():
            self.log.info("%s", line)
        for note in report.notes:
            self.log.warning("%s", note)
        return compact({**verdict, "kept": len(verdict["kept"]), "path": str(path)}, full=str(path))


def own_principals(value: object) -> dict[str, str]:
    """Return the mirror's own principals by role.

    :raises InvalidField: a role does not exist, or a principal is none.
    """
    given = {} if value is None else value
    ok = isinstance(given, dict) and all(role in _ROLES and ":" in str(name) for role, name in given.items())
    if not ok:
        raise InvalidField(
            "own_principals", value, "not principals by role", 'Give {"target": "User:..."}, "source", or both.'
        )
    assert isinstance(given, dict)
    return {str(role): str(name) for role, name in given.items()}
