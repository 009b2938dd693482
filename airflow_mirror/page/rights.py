"""Who may see a mirror, and who may do something about it: Airflow's auth manager is asked, nobody else."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from sqlalchemy import select

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser


class Rights:
    """What one user may, as far as one request has to know.

    A mirror is its DAG's: the one that its ledger notes. One without is seen by who may read every DAG.
    """

    def __init__(self, user: BaseUser) -> None:
        self._user = user
        self._known: dict[tuple[str, str, str | None], bool] = {}
        self._starts: dict[str, bool | None] = {}

    def sees(self, dag: str | None) -> bool:
        """Return whether the user may see the mirror of a DAG; of None: one that notes no DAG."""
        return self.reads_all if dag is None else self._may("GET", dag)

    def sees_logs(self, dag: str | None) -> bool:
        """Return whether the user may read the logs of a mirror's jobs too."""
        return self.sees(dag) and (dag is None or self._may("GET", dag, DagAccessEntity.TASK_LOGS))

    def sees_approvals(self, dag: str) -> bool:
        """Return whether the user may see what runs of a DAG ask a person."""
        return self._may("GET", dag, DagAccessEntity.HITL_DETAIL)

    def starts(self, dag: str) -> bool | None:
        """Return of a DAG whose runs the user may start whether it is turned off; None: he may not, or there is none."""
        if dag not in self._starts:
            found = DagModel.get_dagmodel(dag) if self._may("POST", dag, DagAccessEntity.RUN) else None
            self._starts[dag] = None if found is None else bool(found.is_paused)
        return self._starts[dag]

    @cached_property
    def reads_all(self) -> bool:
        """Whether the user may read every DAG, those of other teams too."""
        manager: Any = get_auth_manager()
        if not manager.is_authorized_dag(method="GET", user=self._user):
            return False
        with create_session() as session:
            every = set(session.scalars(select(DagModel.dag_id)))
        return bool(every <= manager.get_authorized_dag_ids(user=self._user, method="GET"))

    def _may(self, method: str, dag: str, entity: DagAccessEntity | None = None) -> bool:
        key = method, dag, None if entity is None else entity.name
        if key not in self._known:
            manager: Any = get_auth_manager()
            details = DagDetails(id=dag, team_name=DagModel.get_team_name(dag))
            self._known[key] = bool(
                manager.is_authorized_dag(method=method, access_entity=entity, details=details, user=self._user)
            )
        return self._known[key]
