"""SyncAclsOperator: who may read and write on the target, how fast, and with which login."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk.log import mask_secret

from airflow_mirror.common.dotted import function_at
from airflow_mirror.errors import InvalidField
from airflow_mirror.hooks.home import report_dir
from airflow_mirror.jobs.runner.directory import write_json
from airflow_mirror.mirror import own_principals
from airflow_mirror.operators.base import PlannedOperator, flag, names
from airflow_mirror.operators.summaries import compact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from airflow_mirror.mirror import Mirror
    from airflow_mirror.sync.access import Options
    from airflow_mirror.sync.users import SecretOf

__all__ = ["SyncAclsOperator"]

_SHOWN = 200  # lines in the log; the file has all


class SyncAclsOperator(PlannedOperator):
    """Lets ACLs follow a mirror: those of readers early, those of writers at the cutover; on request quotas and users.

    Nobody gets more rights than on the source. The whole verdict goes to ``acls.<phase>.json`` in the run's directory.

    :param parts: any of ``acls``, ``quotas`` (client quotas) and ``users`` (SCRAM users) (templated).
    :param phase: ``early``, at any time before the cutover; ``cutover``, once the target is open (templated).
    :param dry_run: only report (templated).
    :param remove: also remove ACLs that are gone on the source and that this mirror could have written, and quotas that
        the source does not have (templated). Of a target in production nothing is, but for ``allow_production``.
    :param cluster_wide: also copy ACLs of the cluster, of delegation tokens and of users (templated).
    :param open_by_default: whether resources without any ACL are open to everybody on the target
        (``allow.everyone.if.no.acl.found``); None asks its brokers, which seldom say it (templated).
    :param own_principals: as the Mirror's field, over which it wins (templated).
    :param allow_production: a person's word that ``early``, and ``remove``, are meant although a cutover has opened the
        target: who may do what there is for its applications to change. Without it a task that is cleared behind an
        opening fails in phase ``early``; in phase ``cutover`` it removes nothing, and once writers were let in behind
        that opening it only tells what differs, as of quotas once they were set behind it (templated).
    :param secrets: where new secrets of SCRAM users come from: ``env:NAME``, an environment variable that holds a JSON
        object of user and secret, or the dotted path of a function that takes a user of the target and returns its
        secret or None. A reference and never a secret; not templated, because Airflow stores what it renders.
    """

    template_fields: Sequence[str] = (
        *PlannedOperator.template_fields,
        "parts",
        "phase",
        "dry_run",
        "remove",
        "cluster_wide",
        "open_by_default",
        "own_principals",
        "allow_production",
    )

    def __init__(
        self,
        *,
        parts: Sequence[str] | str = ("acls",),
        phase: str = "early",
        dry_run: bool | str = False,
        remove: bool | str = False,
        cluster_wide: bool | str = False,
        open_by_default: bool | str | None = None,
        own_principals: Mapping[str, str] | None = None,
        secrets: str | None = None,
        allow_production: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # It shadows BaseOperator's method of that name, which prints rendered templates and which Airflow never calls.
        self.dry_run: bool | str = dry_run  # type: ignore[assignment]
        self.phase, self.remove, self.cluster_wide = phase, remove, cluster_wide
        self.open_by_default, self.own_principals = open_by_default, own_principals
        self.parts, self.secrets, self.allow_production = parts, secrets, allow_production

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Compare, apply, read back.

        :raises InputError: rights to write were asked for, and the topics are not handed over yet; or those of readers,
            and they are. Or a connection leads to another cluster than the plan's.
        :raises TopicsOwned: topics belong to another mirror.
        :raises NoAuthorizer: the target has none.
        :raises NotKept: a change is not visible when read back.
        :raises InvalidField: the map of principals is ambiguous, or nobody knows the mirror's own principal.
        """
        from airflow_mirror.cutover.platform import Side
        from airflow_mirror.cutover.swap import of_fence
        from airflow_mirror.hooks.kafka import admins_of
        from airflow_mirror.ledger.decisions import Ledger
        from airflow_mirror.ledger.records import GRANTED, LIMITED
        from airflow_mirror.ledger.state import state_of
        from airflow_mirror.plan.owned import kept_topics, opened_beside, opening_of
        from airflow_mirror.plan.requirements import (
            require_active,
            require_opened,
            require_owned,
            require_planned_clusters,
        )
        from airflow_mirror.plan.standing import still_ours
        from airflow_mirror.sync.access import Options, sync_access
        from airflow_mirror.sync.acl_rules import CUTOVER
        from airflow_mirror.sync.seen_acls import once

        stated = None if self.open_by_default is None else flag("open_by_default", self.open_by_default)
        means_it, remove = flag("allow_production", self.allow_production), flag("remove", self.remove)
        behind = self.phase == CUTOVER  # an opening: what the target has beyond the source may be its applications' own
        if remove and behind and not means_it:
            self.log.warning("nothing is removed from a target in production without allow_production; see drift")
        options = Options(
            parts=tuple(names(self.parts)),
            phase=self.phase,
            remove=remove and (means_it or not behind),
            cluster_wide=flag("cluster_wide", self.cluster_wide),
            open_to_all=stated,
            own={**mirror.own_principals, **own_principals(self.own_principals)},
            dry_run=flag("dry_run", self.dry_run),
        )
        # A task may have another map of principals than its plan.
        plan, secret_of = replace(self.stored_plan(mirror), mirror=mirror), secrets_of(self.secrets)
        with admins_of(mirror) as (source, target):
            ledger = Ledger(target)
            if options.gives_write:
                permit = still_ours(ledger, plan, target, lambda ledger, plan, _: require_opened(ledger, plan))
            else:
                permit = still_ours(ledger, plan, target, require_owned if means_it or behind else require_active)
            if not options.dry_run:
                permit()
            require_planned_clusters(plan, source, target)
            fence = partial(of_fence, Side(target), mirror.name)
            state = state_of(target, GRANTED.key(mirror.name), LIMITED.key(mirror.name))
            is_once = (options.gives_write or options.limits) and not options.dry_run
            opening = opening_of(ledger, plan) if is_once else ""
            if opening and not means_it:
                options = self._not_again(options, mirror.name, opening, state.read())
            decided = ledger.peek()
            kept = partial(kept_topics, decided, plan)
            options = replace(options, beside_production=bool(opened_beside(decided, plan)))
            report = sync_access(plan, source, target, options, permit, secret_of, fence, kept)
            notes = once(GRANTED, mirror.name, opening) if options.gives_write else {}
            notes |= once(LIMITED, mirror.name, opening) if options.limits else {}
            if opening and notes and not options.dry_run:
                state.write(notes, permit)
        directory = report_dir(mirror, context["ti"].run_id)
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"acls.{self.phase}{'.dry-run' if options.dry_run else ''}.json"
        write_json(path, report.to_dict())
        lines = report.lines()
        for line in lines[:_SHOWN]:
            self.log.info("%s", line)
        if len(lines) > _SHOWN:
            self.log.info("and %d more, see %s", len(lines) - _SHOWN, path)
        return compact({**report.summary(), "path": str(path)}, full=str(path))

    def _not_again(self, options: Options, mirror: str, opening: str, noted: Mapping[str, bytes]) -> Options:
        """Return the options of a task that is cleared weeks later: what production has changed since was meant."""
        from airflow_mirror.ledger.records import GRANTED, LIMITED
        from airflow_mirror.sync.seen_acls import was_done

        if options.gives_write and was_done(GRANTED, mirror, opening, noted):
            self.log.warning("writers were let in behind this opening before: without allow_production nothing changes")
            return replace(options, dry_run=True)
        if options.limits and was_done(LIMITED, mirror, opening, noted):
            self.log.warning("quotas were set behind this opening before: without allow_production they stay")
            return replace(options, keeps_quotas=True)
        return options


def secrets_of(reference: str | None) -> SecretOf:
    """Return the function that a reference to users' secrets stands for. It masks each secret in this process's logs.

    :raises InputError: it is no reference, or leads nowhere; the error does not quote it: it might be a secret.
    """
    from airflow_mirror.sync.users import secrets_of_environment

    if reference is None:
        return lambda user: None
    if str(reference).startswith("env:"):
        find = secrets_of_environment(reference.removeprefix("env:"))
    else:
        try:
            find = function_at(str(reference))
        except ImportError:
            raise InvalidField(
                "secrets", "(hidden)", "neither env:NAME nor a function that can be imported",
                "Give a reference such as env:NEW_USERS or package.module.function, never a secret.",
            ) from None  # fmt: skip

    def masked(user: str) -> str | None:
        if secret := find(user):
            mask_secret(secret)
        return secret

    return masked
