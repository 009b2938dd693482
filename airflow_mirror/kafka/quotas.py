"""Client quotas of one cluster (KIP-546, brokers from 2.6 on): read them, set and remove values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_mirror.kafka.permit import Permit
from airflow_mirror.kafka.session import AdminSession, Reply


@dataclass(frozen=True)
class QuotaEntity:
    """Whom a quota is for.

    :param parts: (``user``, ``client-id`` or ``ip``; its name, None for the default), sorted by the type.
    """

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, **names: str | None) -> QuotaEntity:
        """Return the entity of these parts; ``client_id`` is ``client-id``, and None the default."""
        return cls(tuple(sorted((kind.replace("_", "-"), name) for kind, name in names.items())))

    @property
    def user(self) -> str | None:
        """The user's name; None for the default, or if it is for no user."""
        return dict(self.parts).get("user")

    @property
    def has_default(self) -> bool:
        """Whether a part of it is a default."""
        return any(name is None for _, name in self.parts)

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name!r}" if name is not None else f"{kind} <default>" for kind, name in self.parts)

    def may_apply(self, user: str | None) -> bool:
        """Return whether it may limit a mirror. Which client ids its connections have is not asked.

        :param user: the mirror's user; None if it is not known.
        """
        parts = dict(self.parts)
        return "ip" not in parts and ("user" not in parts or parts["user"] in (None, user))


Quotas = dict[QuotaEntity, dict[str, float]]


def describe_quotas(session: AdminSession) -> Quotas:
    """Return all quotas, by entity and key (``producer_byte_rate``, ``request_percentage``, ...).

    Needs DESCRIBE_CONFIGS on the cluster, and brokers from 2.6 on.
    """
    from kafka.protocol.admin import DescribeClientQuotasRequest as Request

    def ask() -> Reply[str, Quotas]:
        answer = session.newest(session.anywhere(), Request, (0, 1), components=[], strict=False)
        found = {_entity(entry.entity): {v.key: float(v.value) for v in entry.values} for entry in answer.entries or []}
        return Reply("", answer.error_code, answer.error_message, found)

    return session.one("describe client quotas", ask, "DescribeConfigs")


def limits_of(found: Quotas, user: str | None) -> Quotas:
    """Return the quotas that may limit a mirror: its user's own ones, or else those that are for everybody."""
    may = {one: values for one, values in found.items() if one.may_apply(user)}
    own = {one: values for one, values in may.items() if user is not None and one.user == user}
    return own or may


def alter_quotas(
    session: AdminSession, changes: Mapping[QuotaEntity, Mapping[str, float | None]], permit: Permit
) -> None:
    """Set values by entity and key; None removes one. Other keys stay as they are. Needs ALTER_CONFIGS on the cluster."""
    from kafka.protocol.admin import AlterClientQuotasRequest as Request

    def ask(some: list[QuotaEntity]) -> Iterator[Reply[QuotaEntity, bool]]:
        entry: Any = Request.EntryData
        entries = [
            entry(
                entity=[entry.EntityData(entity_type=kind, entity_name=name) for kind, name in one.parts],
                ops=[
                    entry.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                    for key, value in sorted(changes[one].items())
                ],
            )
            for one in some
        ]
        answer = session.newest(session.anywhere(), Request, (0, 1), permit, entries=entries, validate_only=False)
        for result in answer.entries:
            yield Reply(_entity(result.entity), result.error_code, result.error_message, True)

    entities = sorted(changes, key=str)
    session.each(lambda one: f"alter client quotas of {one}", entities, ask, "AlterConfigs")


def _entity(parts: Iterable[Any]) -> QuotaEntity:
    return QuotaEntity(tuple(sorted((part.entity_type, part.entity_name) for part in parts)))
