"""The rounds: each starts copiers, lets something happen to them, and kills at least one.

No cleverness after a kill: the next round starts a copier again, and it has to find out by itself where to go on.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable

from sandbox import Cluster
from sandbox.proxy import FaultProxy
from tests.faults import ProxiedCluster
from tests.soak.victims import Copier, Flow
from tests.soak.world import World

Round = Callable[[World], None]


def _random_moment(world: World, copier: Copier, flow: Flow | None = None) -> str:
    """Let some time pass: mostly until after the first write, sometimes no matter what it does. Returns what was seen."""
    if world.rng.random() < 0.2:
        time.sleep(world.rng.random() * 1.5)
        return "at any moment"
    if not world.await_move(copier, flow):
        return "ended"
    pause_s = world.rng.random() ** 2 * 0.8
    time.sleep(pause_s)
    return f"{pause_s:.2f} s after its first write"


def _kill(world: World, copier: Copier, situation: str, flow: Flow | None = None) -> None:
    if copier.ended:
        world.must_not_have_failed(copier)
        return
    copier.kill()
    (
        flow or world.main
    ).clean_end = True  # SIGKILL to its whole process group, and awaited: nothing is left that could write
    world.killed(situation, "task")


def alone(world: World) -> None:
    """Kill a copier."""
    copier = world.copier()
    when = _random_moment(world, copier)
    _kill(world, copier, "alone")
    world.say(f"task killed {when}")


def burst(world: World) -> None:
    """Kill copiers in quick succession over one backlog."""
    world.traffic.pause()
    world.traffic.backlog(world.rng.randint(30, 80))
    world.traffic.resume()
    for _ in range(3):
        copier = world.copier()
        world.await_move(copier)
        time.sleep(world.rng.random() * 0.25)
        _kill(world, copier, "backlog")
    world.say("task killed 3 times over a backlog")


def mapped(world: World) -> None:
    """Kill copiers with mapped offsets, delivering in transactions or not, over a backlog; or freeze one and thaw it."""
    flow = world.rng.choice(world.mapped)
    world.traffic.pause()
    world.traffic.backlog(world.rng.randint(30, 80))
    world.traffic.resume()
    name = f"mapped, {flow.options['delivery']}"
    copier = world.copier(flow)
    if world.rng.random() < 0.3:
        world.await_move(copier, flow)
        copier.signal(signal.SIGSTOP)
        second = world.copier(flow, wait=True)
        try:
            world.await_lease(second)
            world.await_move(second, flow)
        finally:
            copier.signal(signal.SIGCONT)
        world.must_have_lost(copier)
        world.events["frozen and thawed"] += 1
        copier = second
    for left in (1, 0):
        world.await_move(copier, flow)
        time.sleep(world.rng.random() * 0.4)
        _kill(world, copier, name, flow)
        if left:
            copier = world.copier(flow)
    world.say(f"task killed twice, offsets {name}")


def twin(world: World) -> None:
    """Start a second copier while the first runs: the first must say that it lost. Then kill the second."""
    first = world.copier()
    world.await_move(first)
    second = world.copier(wait=True)
    world.must_have_lost(first)
    world.await_move(second)
    _random_moment(world, second)
    _kill(world, second, "took over")
    world.events["second copiers"] += 1
    world.say("a second copier took over, the first said so; the second was killed")


def frozen(world: World) -> None:
    """Freeze a copier at a random moment, let a second take over, thaw the first: it must write nothing and say so."""
    first = world.copier()
    world.await_lease(first)  # before that it is nobody, and would take over in its turn once it is thawed
    _random_moment(world, first)
    first.signal(signal.SIGSTOP)
    second = world.copier(wait=True)
    try:
        world.await_lease(second)  # the target moves without it, too: what the first one sent may arrive late
        world.await_move(second)
        if world.rng.random() < 0.5:
            _kill(world, second, "zombie")
            world.main.clean_end = False
        else:
            time.sleep(world.rng.random() * 0.5)
    finally:
        first.signal(signal.SIGCONT)
    world.must_have_lost(first)
    _kill(world, second, "zombie") if not second.ended else None
    world.main.clean_end = True  # both are gone
    world.events["frozen and thawed"] += 1
    world.say("a frozen copier thawed after a second took over, and said that it lost")


def spark(world: World) -> None:
    """Kill parts of a real Spark job: a worker (Spark tries its task again), then JVM, driver or everything."""
    tail = world.rng.random() < 0.5
    world.traffic.pause()
    world.traffic.backlog(120)  # starting Spark takes ten seconds; the copy must outlast the wait for the right moment
    world.traffic.resume()
    job = world.spark_job(*(("streaming_tail.py", "--turn-s", "8") if tail else ("bulk_copy.py",)))
    name = "tail" if tail else "bulk"
    ports = _ports(world.target)
    killed = []
    if world.await_move(job) and world.rng.random() < 0.7:
        time.sleep(world.rng.random() * (0.3 if tail else 0.1))
        worker = job.find("worker", ports)
        if worker is not None:
            worker.kill()
            world.killed(f"Spark {name}", "Python worker")
            killed.append("worker")
            world.await_move(job)
    time.sleep(world.rng.random() * (0.8 if tail else 0.1))  # a bulk copy soon comes to its end
    victim = world.rng.choice(["jvm", "driver", "whole job"])
    tree = job.tree()
    world.graveyard.add(tree)
    process = job.find(victim, ports) if victim != "whole job" else None
    if job.ended:
        victim = "nobody: the job was over"
    elif process is not None:
        process.kill()
        world.killed(f"Spark {name}", {"jvm": "JVM", "driver": "Python driver"}[victim])
    else:
        victim = "whole job"
        job.signal(signal.SIGKILL)
        world.killed(f"Spark {name}", "whole job")
    try:
        job.popen.wait(60)
    except subprocess.TimeoutExpired:
        job.kill()
    world.say(f"Spark {name}: killed {', then '.join([*killed, victim])}")


def _ports(cluster: Cluster) -> set[int]:
    return {int(address.rpartition(":")[2]) for address in cluster.bootstrap.split(",")}


# --- brokers ----------------------------------------------------------------------------------------------------------


def broker(world: World) -> None:
    """Restart a node of either side, in order or not, while a copier runs; kill the copier some time later."""
    cluster = world.rng.choice([world.source, world.target])
    clean = world.rng.random() < 0.5
    copier = world.copier()
    _random_moment(world, copier)
    node_id = world.rng.randint(1, cluster.node_count)
    if not clean:
        cluster.kill(node_id)
        time.sleep(world.rng.random() * 2)
    cluster.restart(node_id)
    how = "restarted" if clean else "killed"
    world.events[f"{cluster.name} node {how}"] += 1
    if world.rng.random() < 0.7:
        world.await_move(copier)
    _kill(world, copier, "broker restart")
    world.say(f"node {node_id} of {cluster.name} {how} while copying, then the task killed")


def freeze_broker(world: World) -> None:
    """Freeze a node for some seconds, as a long pause of its garbage collector or its disk would."""
    cluster = world.rng.choice([world.source, world.target])
    copier = world.copier()
    world.await_move(copier)
    node_id, pause_s = world.rng.randint(1, cluster.node_count), world.rng.choice([1.0, 3.0, 12.0])
    cluster.pause(node_id)
    time.sleep(pause_s)
    cluster.resume(node_id)
    world.events[f"{cluster.name} node frozen"] += 1
    world.await_move(copier)
    _kill(world, copier, "broker frozen")
    world.say(f"node {node_id} of {cluster.name} frozen for {pause_s:.0f} s, then the task killed")


# --- network ----------------------------------------------------------------------------------------------------------


def network(world: World) -> None:
    """Let the network misbehave while a copier runs; kill the copier during it or after."""
    cluster = world.rng.choice([world.source, world.target])
    assert isinstance(cluster, ProxiedCluster)
    fault = world.rng.choice(_FAULTS)
    copier = world.copier()
    world.await_move(copier)
    fault(world, cluster.proxy)
    during = world.rng.random() < 0.5
    if during:
        _kill(world, copier, "network fault")
        world.main.clean_end = False  # bytes of it may still be on their way
    cluster.proxy.heal()
    if not during:
        world.await_move(copier)
        _kill(world, copier, "network fault")
    world.events[f"{cluster.name} network: {fault.__name__}"] += 1
    world.say(f"network of {cluster.name}: {fault.__name__}, task killed {'during it' if during else 'afterwards'}")


def cut(world: World, proxy: FaultProxy) -> None:
    for _ in range(world.rng.randint(1, 4)):
        proxy.cut()
        time.sleep(world.rng.random())


def cut_inside_a_frame(world: World, proxy: FaultProxy) -> None:
    for _ in range(world.rng.randint(1, 4)):
        proxy.cut_after(int(10 ** world.rng.uniform(1, 5)))
        time.sleep(world.rng.random())


def slow(world: World, proxy: FaultProxy) -> None:
    proxy.delay_s, proxy.bytes_per_s = world.rng.uniform(0.01, 0.15), world.rng.choice([None, 50_000, 500_000])
    time.sleep(3)


def silent(world: World, proxy: FaultProxy) -> None:
    proxy.hold()
    time.sleep(world.rng.choice([0.5, 3.0]))


def late(world: World, proxy: FaultProxy) -> None:
    """Requests arrive after their senders gave up."""
    proxy.hold()
    time.sleep(world.rng.random() * 0.3)
    proxy.cut_clients()
    time.sleep(world.rng.random() * 1.5)
    proxy.release()


_FAULTS = (cut, cut_inside_a_frame, slow, silent, late)


# --- three nodes ------------------------------------------------------------------------------------------------------


def leaders(world: World) -> None:
    """Let all leaders go where they should be (preferred election), after some had moved away by a restart."""
    from confluent_kafka import ElectionType
    from confluent_kafka.admin import AdminClient

    copier = world.copier()
    world.await_move(copier)
    for cluster in (world.source, world.target):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})  # the answer needs it to stay alive
        admin.elect_leaders(ElectionType.PREFERRED, None).result(240)
    world.events["preferred elections"] += 1
    world.await_move(copier)
    _kill(world, copier, "election")
    world.say("preferred leaders elected on both sides, then the task killed")
