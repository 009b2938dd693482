"""What triggers share."""

from __future__ import annotations

from typing import Any


async def in_thread(call: Any, *args: Any) -> Any:
    """Run a blocking call, for which the triggerer's loop can't wait, where Airflow's connection look-ups work."""
    from asgiref.sync import sync_to_async

    return await sync_to_async(call, thread_sensitive=False)(*args)
