"""A broker's "no", on its way to an answer."""

from __future__ import annotations

from airflow_mirror.wire.error_codes import ErrorCode


class Refused(Exception):
    """A broker's "no" to one partition or transactional id; a handler puts ``code`` into its answer."""

    def __init__(self, code: ErrorCode, message: str | None = None, records: tuple[tuple[int, str], ...] = ()) -> None:
        self.code, self.message, self.records = code, message, records
        super().__init__(f"{code.name}: {message}")


class HungUp(Exception):  # noqa: N818 - it is no error of ours
    """A request is so wrong that the broker closes the connection."""
