"""The extra of an Airflow connection, which may be text that is no JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_mirror.errors import InputError

if TYPE_CHECKING:
    from airflow.sdk import Connection


def extra_of(connection: Connection, where: str) -> dict[str, Any]:
    """Return the extra of a connection, empty if it has none; Airflow masks its secrets in this process from now on.

    Airflow takes text that it can't read for an empty extra, so that a login by it becomes another one.

    :param where: names the connection in errors.
    :raises InputError: it is no JSON object. The error does not quote it.
    """
    text = connection.extra
    if not text:
        return {}
    try:
        is_object = isinstance(json.loads(text), dict)
    except ValueError:
        is_object = False
    if not is_object:
        cause = "its extra is no JSON object, so nobody can tell what it says (not shown)"
        raise InputError(
            where, cause, 'Correct it: one object, such as {"a": "b"}, without a comma behind the last entry.'
        )
    return dict(connection.extra_dejson)
