"""Client quotas follow a mirror: of users (by the map of principals), client ids, IP addresses and their defaults.

``diff`` decides; ``sync_quotas`` applies and reads back. Quotas know no topics, so all of a cluster's are the mirror's,
but for those of its own user: the source's would throttle the copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_mirror.common.policy import Principals
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.kafka.quotas import QuotaEntity, Quotas
from airflow_mirror.sync.topics import settle

_USER = "User:"  # quotas are for names; authorizers have the type before them


@dataclass(frozen=True, kw_only=True)
class QuotaDiff:
    """What to change on the target.

    :param set: values to write.
    :param before: what they replace; for display.
    :param kept: number of values that are equal.
    :param drift: values of the target that the source does not have.
    :param left_out: what is not copied, with the reason.
    :param notes: what to know.
    """

    set: Quotas
    before: Quotas
    kept: int
    drift: Quotas
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class QuotaReport:
    """What was (or, in a dry run, would be) changed."""

    diff: QuotaDiff
    removed: Quotas
    applied: bool

    @property
    def changes(self) -> int:
        """Number of values that are set and removed."""
        return sum(map(len, self.diff.set.values())) + sum(map(len, self.removed.values()))

    def lines(self) -> list[str]:
        """Return the changes, and what to know, as text."""
        added = [
            f"+ quota of {one}: {key} {self.diff.before.get(one, {}).get(key, '(none)')} -> {value}"
            for one, key, value in _each(self.diff.set)
        ]
        removed = [f"- quota of {one}: {key} {value}" for one, key, value in _each(self.removed)]
        return added + removed + [f"! {note}" for note in self.diff.notes]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "applied": self.applied, "changes": self.changes, "lines": self.lines(), "kept": self.diff.kept,
            "drift": [f"{one}: {key} {value}" for one, key, value in _each(self.diff.drift)],
            "left_out": list(self.diff.left_out), "notes": list(self.diff.notes),
        }  # fmt: skip


def diff(
    source: Mapping[QuotaEntity, Mapping[str, float]],
    target: Mapping[QuotaEntity, Mapping[str, float]],
    principals: Principals,
    own_source: str,
    own_target: str,
) -> QuotaDiff:
    """Return what brings the target's quotas in line with the source's.

    :param own_source: the principal of the mirror itself on the source; ``own_target``: on the target.
    :raises InvalidField: the map of principals is ambiguous.
    """
    wanted: dict[QuotaEntity, dict[str, set[float]]] = {}
    left_out = []
    for one, values in sorted(source.items(), key=lambda item: str(item[0])):
        there, reason = _renamed(one, principals, own_source, own_target)
        if there is None:
            left_out.append(f"{one}: {reason}")
            continue
        for key, value in values.items():
            wanted.setdefault(there, {}).setdefault(key, set()).add(value)
    agreed: Quotas = {}
    for one, found in wanted.items():
        for key, several in found.items():
            if len(several) > 1:
                shown = ", ".join(str(value) for value in sorted(several))
                left_out.append(f"{one}: {key}: users of the source that become this one have {shown}; set it by hand")
            else:
                agreed.setdefault(one, {})[key] = next(iter(several))
    to_set = _without(agreed, target)
    extra = {one: {k: v for k, v in of.items() if k not in wanted.get(one, {})} for one, of in target.items()}
    ours = {one: of for one, of in extra.items() if of and _could_be_ours(one, principals, own_target)}
    return QuotaDiff(
        set=to_set,
        before={one: {k: target[one][k] for k in of if k in target[one]} for one, of in to_set.items() if one in target},
        kept=sum(map(len, agreed.values())) - sum(map(len, to_set.values())),
        drift=ours,
        left_out=tuple(left_out),
        notes=tuple(_notes(to_set, target, own_target)),
    )


def sync_quotas(
    source: ClusterAdmin,
    target: ClusterAdmin,
    principals: Principals,
    own_source: str,
    own_target: str,
    permit: Permit,
    *,
    remove: bool = False,
    dry_run: bool = False,
) -> QuotaReport:
    """Bring the target's quotas in line with the source's, and read them back.

    :param permit: asked before a change; what it raises is raised.
    :param remove: also remove values that the source does not have.
    :param dry_run: only report.
    :raises NotKept: a change is not visible when read back.
    :raises ApiNotServed: brokers before 2.6 do not tell quotas.
    """
    found = diff(source.quotas(), target.quotas(), principals, own_source, own_target)
    removed = found.drift if remove else {}
    if not dry_run and (found.set or removed):
        changes: dict[QuotaEntity, dict[str, float | None]] = {one: dict(of) for one, of in found.set.items()}
        for one, key, _ in _each(removed):
            changes.setdefault(one, {})[key] = None
        target.alter_quotas(changes, permit)
        settle(lambda: _wrong(target, changes), "client quotas")
    return QuotaReport(diff=found, removed=removed, applied=not dry_run or not (found.set or removed))


def _renamed(
    one: QuotaEntity, principals: Principals, own_source: str, own_target: str
) -> tuple[QuotaEntity | None, str]:
    """Return the entity on the target, or None and why there is none."""
    if one.user is None:
        return one, ""
    principal = principals.target(_USER + one.user)
    if _USER + one.user == own_source or principal == own_target:
        return None, "it is about the mirror's own user"
    if not principal.startswith(_USER):
        return None, f"it becomes {principal}, and quotas are for users"
    parts = dict(one.parts) | {"user": principal.removeprefix(_USER)}
    return QuotaEntity(tuple(sorted(parts.items()))), ""


def _could_be_ours(one: QuotaEntity, principals: Principals, own_target: str) -> bool:
    return one.user is None or (_USER + one.user != own_target and principals.yields(_USER + one.user))


def _notes(to_set: Quotas, target: Mapping[QuotaEntity, Mapping[str, float]], own_target: str) -> Iterator[str]:
    limits = sorted(str(one) for one in to_set if one.has_default)
    if limits and QuotaEntity.of(user=own_target.removeprefix(_USER)) not in target:
        yield f"{'; '.join(limits)}: limits the mirror as well, as its own user has no quota on the target"


def _without(wanted: Quotas, there: Mapping[QuotaEntity, Mapping[str, float]]) -> Quotas:
    missing = {one: {k: v for k, v in of.items() if there.get(one, {}).get(k) != v} for one, of in wanted.items()}
    return {one: of for one, of in missing.items() if of}


def _wrong(target: ClusterAdmin, changes: Mapping[QuotaEntity, Mapping[str, float | None]]) -> list[str]:
    there = target.quotas()
    return [
        f"{one}: {key} is {there.get(one, {}).get(key)}, not {value}"
        for one, of in changes.items()
        for key, value in of.items()
        if there.get(one, {}).get(key) != value
    ]


def _each(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> Iterable[tuple[QuotaEntity, str, float]]:
    return [(one, key, quotas[one][key]) for one in sorted(quotas, key=str) for key in sorted(quotas[one])]
