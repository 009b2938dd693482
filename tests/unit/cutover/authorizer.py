"""Who may write, as Kafka's StandardAuthorizer decides it: DENY wins, ALLOW opens, and no ACL at all may be open."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_mirror.kafka.model import Acl


def may_write(acls: Iterable[Acl], principal: str, topic: str, *, open_by_default: bool = False) -> bool:
    on_topic = [
        acl for acl in acls
        if (topic.startswith(acl.name) if acl.pattern_type == "PREFIXED" else acl.name in (topic, "*"))
    ]  # fmt: skip
    if not on_topic:
        return open_by_default
    about = [a for a in on_topic if a.operation in ("WRITE", "ALL") and a.principal in ("User:*", principal)]
    return "DENY" not in {a.permission for a in about} and "ALLOW" in {a.permission for a in about}
