"""The topologies of MirrorMaker 2's documentation: chain, fan-in, fan-out and mesh. None needs a filter against loops."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from airflow_mirror.errors import InputError
from sandbox import Cluster, clusters
from tests.integration.copying import read
from tests.integration.parity import applications as apps
from tests.integration.parity.flow import TOPICS_S, Flow, client, within
from tests.integration.parity.scenarios import TEN
from tests.integration.test_topologies import World

pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def sites() -> Iterator[dict[str, Cluster]]:
    with clusters(*"abcd", overrides={"broker.session.timeout.ms": "60000"}) as several:
        yield {cluster.name: cluster for cluster in several}


@pytest.fixture
def world(sites: dict[str, Cluster], topic_name: str) -> Iterator[World]:
    with ExitStack() as close:
        yield World(sites, topic_name, close)


def test_a_chain_of_four_keeps_every_offset(world: World) -> None:
    """The last cluster has the first one's log, and knows where it comes from: no way back begins."""
    world.fill("a", count=100)
    for here, there in ("ab", "bc", "cd"):
        world.flow(here, there)
    assert read(world.sites["d"], world.topic) == read(world.sites["a"], world.topic)
    assert world.upstream("d") == ["a", "b", "c"]
    for back in "abc":
        with pytest.raises(InputError, match="its records come from the target"):
            world.plan("d", back)


def test_fan_in_of_three_keeps_sources_apart(world: World) -> None:
    world.fill(*"abc", count=100)
    for here in "abc":
        world.flow(here, "d", policy="prefix")
    assert world.topics("d") == [f"{here}.{world.topic}" for here in "abc"]
    for here in "abc":
        assert read(world.sites["d"], f"{here}.{world.topic}") == read(world.sites[here], world.topic)


def test_fan_out_of_three_is_one_log_four_times(world: World) -> None:
    world.fill("a", count=100)
    for there in "bcd":
        world.flow("a", there)
        assert read(world.sites[there], world.topic) == read(world.sites["a"], world.topic)


def test_a_live_mesh_of_three_delivers_everything_and_returns_nothing(sites: dict[str, Cluster], tmp_path: Path) -> None:
    """Six tails, each of which selects everything of its source, copies as well. They come to rest by themselves.

    What came directly, and what came by way of the third cluster, is 100 records each; nothing is where it was written.
    """
    name = f"p{uuid.uuid4().hex[:8]}"
    topic, selected, mesh = f"{name}-orders", [f"(.*[.])?{name}-.*"], list(itertools.permutations("abc", 2))
    flows = {
        (here, there): Flow(
            (sites[here], sites[there]), tmp_path / f"{here}{there}", name=name, mirror=f"{name}-{here}{there}",
            topics=selected, policy="prefix", source=here, target=there,
        )
        for here, there in mesh
    }  # fmt: skip
    wanted = {site: {topic} for site in "abc"}
    for via, there in mesh:
        (third,) = {*"abc"} - {via, there}
        wanted[there] |= {f"{via}.{topic}", f"{via}.{third}.{topic}"}
    with ExitStack() as close:
        for flow in flows.values():
            close.enter_context(flow)
        for here in "abc":
            flow = next(flow for ends, flow in flows.items() if ends[0] == here)
            flow.create("orders")
            flow.append(topic, TEN)
        for flow in flows.values():
            flow.start()

        def arrived() -> bool:
            there = {site: topics_of(flows, site, name) for site in "abc"}
            return all(
                wanted[site] <= there[site]
                and all(sum(apps.ends(client(sites[site]), one).values()) == 100 for one in wanted[site])
                for site in "abc"
            )

        within(TOPICS_S, arrived, "everything is everywhere")
        # A topic that comes later goes the same ways: by then every tail has looked at all copies, and left them alone.
        flows["a", "b"].create("last", 1)
        later = f"{name}-last"
        within(TOPICS_S, lambda: f"b.a.{later}" in topics_of(flows, "c", name), "it went both ways to the third")
        within(TOPICS_S, lambda: f"c.a.{later}" in topics_of(flows, "b", name), "it went both ways to the third")
        for site in "abc":
            assert {one for one in topics_of(flows, site, name) if not one.endswith("last")} == wanted[site]
            for one in wanted[site]:
                origin = one.split(".")[-2] if "." in one else site
                log, first = apps.log_of(client(sites[site]), one), apps.log_of(client(sites[origin]), topic)
                assert log == first, f"{one} on {site}"


def topics_of(flows: dict[tuple[str, str], Flow], site: str, name: str) -> set[str]:
    flow = next(flow for ends, flow in flows.items() if ends[0] == site)
    return {topic for topic in flow.admins[0].topic_names() if name in topic}
