"""MirrorOutageTrigger: an event when a mirror's source is lost, for DAGs that are started by it. It only looks.

An outage is told once. What was told is kept with the watched asset in Airflow's database, so that another triggerer
knows of it as well; whoever starts something by such an event still has its identity (:func:`run_id_of`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetWatcher
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_mirror.errors import InputError, InvalidField
from airflow_mirror.jobs.runner.active import SILENCE_S
from airflow_mirror.triggers.base import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable

    from airflow_mirror.cutover.failover.outage import Told
    from airflow_mirror.hooks.outage import OutageProbe

__all__ = ["MirrorOutageTrigger", "outage_asset", "outages_in", "run_id_of"]

_TOLD = "told"  # in the asset's store; renaming it tells outages that go on a second time


class MirrorOutageTrigger(BaseEventTrigger):
    """Fires once for each outage of a mirror: when nobody has seen its source for a while, by the failover's own rule.

    The target's ledger is asked, and its tail listened for; nothing else. A target that can't be reached is no outage:
    it is logged once. The event has ``mirror``, ``target``, ``what``, ``since_ms`` and ``evidence``.

    :param target: connection of the mirror's target.
    :param mirror_name: the mirror's name.
    :param unhealthy: also fire when its tail is lost, has failed, or says for ``lost_after_s`` that something is wrong.
    :param interval_s: seconds between two looks.
    :param lost_after_s: for how many seconds nobody may have seen the source, at least 30: then a failover is no more
        refused.
    :raises InvalidField: ``lost_after_s`` is less.
    """

    def __init__(
        self, target: str, mirror_name: str, unhealthy: bool = False, interval_s: float = 30.0, lost_after_s: float = 60.0
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if not lost_after_s >= SILENCE_S:
            cause = "a failover would be refused"
            raise InvalidField("lost_after_s", lost_after_s, cause, f"Give seconds from {SILENCE_S:g} on.")
        self.target, self.mirror_name, self.unhealthy = target, mirror_name, unhealthy
        self.interval_s, self.lost_after_s = interval_s, lost_after_s
        self._kept: dict[str, int | None] = {}
        self._unkept = ""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments."""
        names = ("target", "mirror_name", "unhealthy", "interval_s", "lost_after_s")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look for ever; yield an event for each outage."""
        from airflow_mirror.hooks.outage import OutageProbe

        told, probe, said = await self._told(), None, ""
        try:
            while True:
                try:
                    if probe is None:
                        given = (self.target, self.mirror_name, self.lost_after_s, self.unhealthy)
                        probe = await in_thread(OutageProbe, *given)
                    found = await in_thread(probe.look)
                except Exception as e:  # any: a watch that ended with an error would tell of no outage any more
                    if said != type(e).__name__:
                        said = type(e).__name__
                        self.log.warning("mirror %s can't be watched for now: %s: %s", self.mirror_name, said, e)
                    _closed(probe)
                    probe = None
                else:
                    said = ""
                    if (news := told.news(found, int(time.time() * 1000))) is not None:
                        payload = {"mirror": self.mirror_name, "target": self.target, **asdict(news)}
                        yield TriggerEvent(payload)  # type: ignore[no-untyped-call]
                    # Behind the event: a triggerer that dies in between tells it twice, and not never.
                    await self._keep(told)
                await asyncio.sleep(self.interval_s)
        finally:
            _closed(probe)

    async def _told(self) -> Told:
        from airflow_mirror.cutover.failover.outage import Told

        kept: Any = None
        is_read = True
        try:
            kept = await self.asset_state_store.aget(_TOLD) if self.asset_state_store is not None else None
        except Exception as e:  # Airflow's, which may be away for a moment; of several assets there is no one store
            self.log.warning("which outages of mirror %s were told is not known: %s", self.mirror_name, e)
            is_read = False
        told = Told.of(kept if isinstance(kept, dict) else {}, self.lost_after_s, int(time.time() * 1000))
        # What was not read may be an outage that is over by now: the first look overwrites it, also with none.
        self._kept = told.kept() if is_read else {}
        return told

    async def _keep(self, told: Told) -> None:
        """Keep it if it has changed since it was kept last: what failed once is tried with each look."""
        now: dict[str, Any] = {**told.kept()}
        if now == self._kept:
            return
        try:
            if self.asset_state_store is not None:
                await self.asset_state_store.aset(_TOLD, now)
        except Exception as e:  # as above: a triggerer before it works tells it again, and run_id_of has that do nothing
            if self._unkept != type(e).__name__:
                self.log.warning("that an outage of mirror %s was told is not kept: %s", self.mirror_name, e)
            self._unkept = type(e).__name__
        else:
            self._kept, self._unkept = now, ""


def _closed(probe: OutageProbe | None) -> None:
    if probe is not None:
        probe.close()


def outage_asset(target: str, mirror_name: str, **how: Any) -> Asset:
    """Return the asset of a mirror's outages, watched by the trigger: for the ``schedule`` of a DAG.

    :param how: further arguments of :class:`MirrorOutageTrigger`. DAGs that watch the same mirror give the same.
    """
    name = f"kafka_outage.{target}.{mirror_name}"
    trigger = MirrorOutageTrigger(target, mirror_name, **how)
    return Asset(name, watchers=[AssetWatcher(name=name, trigger=trigger)])


def outages_in(events: Iterable[Any], watched: Collection[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return what the trigger has told by these events of assets, each outage once.

    Whoever may create events of assets can say anything in one: it counts only what names a mirror that is watched.

    :param events: those that have started a run. :param watched: targets' connections and names of mirrors.
    :raises InputError: there are events, and none of them is the trigger's.
    """
    extras = [event.extra for event in events]
    found = [
        one["payload"] for one in extras if one.get("from_trigger") is True and _is_told(one.get("payload"), watched)
    ]
    if extras and not found:
        shown = ", ".join(sorted(f"{name} on {target}" for target, name in watched))
        raise InputError(
            "the event that has started this run tells of no outage",
            f"it is not MirrorOutageTrigger's, or not of a mirror that this DAG watches ({shown}). Nothing was done",
            "Trigger the DAG with its form instead.",
        )
    return list({run_id_of(one): one for one in found}.values())


def _is_told(payload: Any, watched: Collection[tuple[str, str]]) -> bool:
    if not isinstance(payload, dict):
        return False
    named = payload.get("target"), payload.get("mirror")
    return named in tuple(watched) and isinstance(payload.get("what"), str) and isinstance(payload.get("since_ms"), int)


def run_id_of(outage: dict[str, Any]) -> str:
    """Return the id of the one DAG run that an outage starts, however often it is told."""
    named = [outage[name] for name in ("target", "mirror", "what", "since_ms")]
    digest = hashlib.sha256(json.dumps(named).encode()).hexdigest()
    return f"outage__{outage['mirror']}__{outage['since_ms']}__{digest[:12]}"
