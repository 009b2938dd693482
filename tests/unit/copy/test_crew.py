"""The loop's threads: what goes wrong in one of them ends the loop, whatever it was."""

from __future__ import annotations

import selectors
from collections.abc import Iterator
from typing import NoReturn

import pytest

from airflow_mirror.copy.loop.clusters import Clusters
from airflow_mirror.copy.loop.crew import Crew, Dialler
from airflow_mirror.copy.loop.mailbox import Mailbox
from airflow_mirror.errors import InvalidField, TryAgain
from airflow_mirror.wire.cluster import WireCluster


class _Cluster:
    """A cluster that nobody asks anything."""

    def __enter__(self) -> _Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def hurry(self) -> None:
        pass


@pytest.fixture
def selector() -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as selector:
        yield selector


@pytest.fixture
def mailbox(selector: selectors.BaseSelector) -> Iterator[Mailbox]:
    mailbox = Mailbox(selector)
    yield mailbox
    mailbox.close()


def _opens(_client_id: str) -> WireCluster:
    return _Cluster()  # type: ignore[return-value]


def _refuses(_client_id: str) -> WireCluster:
    raise InvalidField("ssl.ca.location", "/ca.pem", "there is no such file on this host", "Put it there.")


@pytest.mark.parametrize("clusters", [Clusters(_refuses, _opens), Clusters(_opens, _refuses)], ids=["source", "target"])
def test_a_cluster_that_cannot_be_opened_ends_the_loop(
    clusters: Clusters, selector: selectors.BaseSelector, mailbox: Mailbox
) -> None:
    """As on an executor that lacks a file which the driver has: a loop that is not told waits for ever."""
    crew = Crew(clusters, "mirror", mailbox, size=1)
    crew.submit(lambda source, target: None)
    assert selector.select(10), "the loop is never told"
    with pytest.raises(InvalidField, match=r"ssl\.ca\.location"):
        mailbox.receive()
    crew.close()


def test_an_error_of_a_job_ends_the_loop(selector: selectors.BaseSelector, mailbox: Mailbox) -> None:
    crew = Crew(Clusters(_opens, _opens), "mirror", mailbox, size=1)

    def fails(source: WireCluster, target: WireCluster) -> None:
        raise ValueError("a bug")

    crew.submit(fails)
    assert selector.select(10)
    with pytest.raises(ValueError, match="a bug"):
        mailbox.receive()
    crew.close()
    mailbox.receive()
    assert not crew.busy


def test_a_job_has_no_further_effect_once_the_copy_ends(mailbox: Mailbox) -> None:
    crew = Crew(Clusters(_opens, _opens), "mirror", mailbox, size=1)
    crew.check_wanted()
    crew.close()
    with pytest.raises(TryAgain, match="the copy ends"):
        crew.check_wanted()


def test_an_unexpected_error_of_a_dial_ends_the_loop(selector: selectors.BaseSelector, mailbox: Mailbox) -> None:
    def connect() -> NoReturn:
        raise ValueError("a bug")

    Dialler(mailbox).dial(connect, lambda found: None)
    assert selector.select(10)
    with pytest.raises(ValueError, match="a bug"):
        mailbox.receive()
