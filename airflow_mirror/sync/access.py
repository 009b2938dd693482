"""ACLs, quotas and users of a mirror in one go: what :class:`SyncAclsOperator` does, without Airflow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from airflow_mirror.common.policy import Principals
from airflow_mirror.errors import InvalidField
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.kafka.principal import own_principal
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.acl_rules import CUTOVER
from airflow_mirror.sync.acls import PHASES, AclOptions, AclReport, Kept, OfFence, sync_acls
from airflow_mirror.sync.quotas import QuotaReport, sync_quotas
from airflow_mirror.sync.users import SecretOf, UsersReport, sync_users

ACLS, QUOTAS, USERS = "acls", "quotas", "users"
PARTS = (ACLS, QUOTAS, USERS)


@dataclass(frozen=True, kw_only=True)
class Options(AclOptions):
    """What to do with ACLs, and with which other parts.

    :param parts: any of ``acls``, ``quotas`` and ``users``. :param keeps_quotas: quotas are only looked at.
    :raises InvalidField: there is no such part or phase.
    """

    parts: tuple[str, ...] = (ACLS,)
    keeps_quotas: bool = False

    def __post_init__(self) -> None:
        for part in self.parts:
            if part not in PARTS:
                raise InvalidField("parts", part, "no such part", f"Use any of {', '.join(PARTS)}.")
        if not self.parts:
            raise InvalidField("parts", [], "nothing to do", f"Use any of {', '.join(PARTS)}.")
        if self.phase not in PHASES:
            raise InvalidField("phase", self.phase, "unknown", f"Use one of {', '.join(PHASES)}.")

    @property
    def gives_write(self) -> bool:
        """Whether applications get rights to write to the target's topics."""
        return ACLS in self.parts and self.phase == CUTOVER

    @property
    def limits(self) -> bool:
        """Whether quotas are set as those of a cutover: once behind an opening, for what is open."""
        return QUOTAS in self.parts and self.phase == CUTOVER and not self.keeps_quotas


@dataclass(frozen=True, kw_only=True)
class AccessReport:
    """What each part did (or, in a dry run, would do); None for a part that was not asked for."""

    acls: AclReport | None = None
    quotas: QuotaReport | None = None
    users: UsersReport | None = None

    def _parts(self) -> Iterable[tuple[str, AclReport | QuotaReport | UsersReport]]:
        found = ((ACLS, self.acls), (QUOTAS, self.quotas), (USERS, self.users))
        return [(name, report) for name, report in found if report is not None]

    def lines(self) -> list[str]:
        """Return the changes, and who loses access, as text."""
        return [line for _, report in self._parts() for line in report.lines()]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values, by part."""
        return {name: report.to_dict() for name, report in self._parts()}

    def summary(self) -> dict[str, Any]:
        """Return the same, with ``<part>_`` before the names and the number of ACLs that stay instead of their list."""
        values = {f"{name}_{key}": value for name, of in self.to_dict().items() for key, value in of.items()}
        return values | ({"acls_kept": len(values["acls_kept"])} if self.acls else {})


def sync_access(
    plan: Plan, source: ClusterAdmin, target: ClusterAdmin, options: Options, permit: Permit,
    secret_of: SecretOf = lambda user: None, fence: Callable[[], OfFence] = OfFence,
    kept: Kept | None = None,
) -> AccessReport:  # fmt: skip
    """Bring the target's users, quotas and ACLs in line with the source's, in this order, and read them back.

    :param permit: asked before each change; what it raises is raised.
    :param secret_of: the new secret of a SCRAM user of the target, or None.
    :param fence: as of :func:`.acls.sync_acls`; ``kept`` likewise.
    :raises InvalidField: the map of principals is ambiguous, or nobody knows the mirror's own principal.
    :raises NoAuthorizer: the target has none.
    :raises NotKept: a change is not visible when read back.
    """
    principals = Principals(plan.mirror.principals)
    own = own_principal(source, options.own), own_principal(target, options.own)
    dry_run, remove = options.dry_run, options.remove
    users = quotas = acls = None
    if USERS in options.parts:
        users = sync_users(source, target, principals, *own, permit, secret_of=secret_of, dry_run=dry_run)
    if QUOTAS in options.parts:
        looks = dry_run or options.keeps_quotas
        quotas = sync_quotas(source, target, principals, *own, permit, remove=remove, dry_run=looks)
    if ACLS in options.parts:
        acls = sync_acls(plan, source, target, options, granted=lambda: nullcontext(permit), fence=fence, kept=kept)
    return AccessReport(acls=acls, quotas=quotas, users=users)
