"""The actors of a cutover: each runs the project's own code, on views of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mirror.cutover.context import Limits
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.kept import Kept
from airflow_mirror.cutover.lifting import lift_leftover_fence, lift_unexplained, unexplained
from airflow_mirror.cutover.run import run_cutover
from airflow_mirror.cutover.swap import swap_fence
from airflow_mirror.errors import FenceGone, FenceLeaks, FenceUnproven, TransactionsOpen, TryAgain
from airflow_mirror.failover import run as failing_over
from airflow_mirror.failover.returned import fence_returned
from airflow_mirror.rollback.run import roll_back, way_back
from tests.explore.scheduler import Actor
from tests.explore.world import GROUP, MIRROR, OWN, PLAN, REVERSE, TPS
from tests.memory.applications import Consumer, Producer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.explore.world import World

LIMITS = Limits(poll_s=1.0, quiet_s=1.0, quiet_at_most_s=0.0, max_fence_s=60.0)
_GIVES_UP_S = 150.0


def owner(w: World, name: str, run: str, *, keep_fence: bool = True, opens: Callable[[], object] | None = None,
          **when: Any) -> Actor:  # fmt: skip
    """A call of `run_cutover`, which starts a guard."""

    def body() -> Any:
        on = w.platform()
        return run_cutover(
            on, MIRROR, PLAN, fence=AclFence(on.source.admin, clock=on.clock), keep_fence=keep_fence,
            kept=Kept(on.target.reports(MIRROR.name), MIRROR.name, run, None), verify=lambda _: [], limits=LIMITS,
            stop=actor.stop, open_target=opens,  # type: ignore[arg-type]
        )  # fmt: skip

    actor = Actor(name, body, stop=w.s.event(), **when)
    return w.s.add(actor)


def guard(w: World, name: str, **when: Any) -> Actor:
    """A guard that nobody's cutover has started, as that beside a tail."""
    return w.guard(name, w.source, w.target, MIRROR.name, None, **when).actor


def lift(w: World, name: str, *, run: str = "", kept_too: bool = False, **when: Any) -> Actor:
    """`airflow-mirror lift-fence`."""
    return w.s.add(
        Actor(name, lambda: lift_leftover_fence(w.platform(), MIRROR.name, run=run, kept_too=kept_too), **when)
    )


def lift_what_nothing_explains(w: World, name: str, **when: Any) -> Actor:
    """`airflow-mirror lift-fence --unexplained`, by a person who says yes."""

    def body() -> Any:
        on = w.platform()
        return [str(one) for one in lift_unexplained(on, MIRROR.name, unexplained(on, MIRROR.name))]

    return w.s.add(Actor(name, body, **when))


def swap(w: World, name: str, *, run: str = "", **when: Any) -> Actor:
    """The fence of a finished cutover is swapped for one that spares the mirror."""

    def body() -> list[str]:
        return swap_fence(w.platform(), MIRROR.name, OWN, run=run, copied_by=REVERSE.mirror.name)

    return w.s.add(Actor(name, body, **when))


def rollback(w: World, name: str, run: str, **when: Any) -> Actor:
    """A cutover whose way back was armed is rolled back."""

    def body() -> Any:
        on, back = w.platform(), REVERSE.mirror.name
        return roll_back(
            way_back(MIRROR.name, on), on, kept=Kept(on.source.reports(back), back, run, None),
            fence=AclFence(on.target.admin, clock=on.clock), verify=lambda _: [], limits=LIMITS, stop=actor.stop,
        )  # fmt: skip

    actor = Actor(name, body, stop=w.s.event(), **when)
    return w.s.add(actor)


def failover(w: World, name: str, *, force: bool = False, **when: Any) -> Actor:
    """`airflow-mirror failover`."""
    return w.s.add(Actor(name, lambda: failing_over.run(w.platform().target, MIRROR.name, force=force), **when))


def returned(w: World, name: str, **when: Any) -> Actor:
    """What stands by after a failover does once the source answers, until it is done."""

    def body() -> Any:
        until = w.s.now + _GIVES_UP_S
        while True:
            on = w.platform()
            try:
                return fence_returned(on, MIRROR.name, AclFence(on.source.admin, clock=on.clock), limits=LIMITS)
            except (TryAgain, FenceUnproven, FenceLeaks, FenceGone, TransactionsOpen):
                if w.s.now > until:
                    raise
                w.s.clock.sleep(3.0)

    return w.s.add(Actor(name, body, **when))


def producer(w: World, name: str, role: str, *, times: int = 1, every_s: float = 1.0, **when: Any) -> Actor:
    """An application that writes to one side, as long as its authorizer lets it."""
    cluster = w.source if role == "source" else w.target
    app = Producer(cluster, ask=w.s.ask)

    def body() -> str:
        for n in range(times):
            app.write(TPS[0], b"%s-%d" % (name.encode(), n))
            w.s.clock.sleep(every_s)
        return "wrote"

    return w.s.add(Actor(name, body, fragile=False, **when))


def consumer(
    w: World, name: str, role: str, *, member: str = "", times: int = 1, every_s: float = 1.0, **when: Any
) -> Actor:
    """An application that reads on one side: as a member of the group, or standalone; it leaves at last."""
    cluster = w.source if role == "source" else w.target
    one = Consumer(cluster, GROUP, member, w.s.ask, reset="earliest")

    def body() -> int:
        if member:
            one.join()
        at = 0
        for _ in range(times):
            at = one.read(TPS[0])
            w.s.clock.sleep(every_s)
        if member:
            one.leave()
        return at

    return w.s.add(Actor(name, body, fragile=False, **when))
