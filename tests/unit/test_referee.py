"""What is sampled at random, and what is told of a record that differs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import hypothesis.strategies as st
import pytest
from hypothesis import given

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InputError, TryAgain
from airflow_mirror.jobs.driver.verify import against
from airflow_mirror.verify import referee
from airflow_mirror.verify.referee import (
    Place,
    SpotCheck,
    Stretch,
    _difference,
    _drawn,
    require_clients,
    second_look,
    spot_check,
)

TP = TopicPartition("orders", 0)


def stretch(partition: int, start: int, end: int) -> Stretch:
    tp = TopicPartition("orders", partition)
    return Stretch(source=tp, target=tp, start=start, end=end)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=5), st.integers(0, 40), st.integers(0, 9))
def test_places_lie_inside_and_each_stretch_has_one_a_round(
    bounds: list[tuple[int, int]], places: int, seed: int
) -> None:
    some = [stretch(p, start, start + length) for p, (start, length) in enumerate(bounds)]
    rounds = list(_drawn(some, places, random.Random(seed)))
    assert rounds == list(_drawn(some, places, random.Random(seed)))
    drawn = [(one, place) for each in rounds for one, place in each.items()]
    assert all(one.start <= place < one.end for one, place in drawn)
    assert len(drawn) == (places if any(length for _, length in bounds) else 0)


def test_a_long_stretch_has_more_places_than_a_short_one() -> None:
    rounds = _drawn([stretch(0, 0, 10), stretch(1, 0, 990)], 1000, random.Random(1))
    partitions = [one.source.partition for each in rounds for one in each]
    assert 0 < partitions.count(0) < 50


def test_what_differs_is_told_without_the_records_content() -> None:
    row = (b"key", b"a secret value", [("h", b"x")], 1000)
    assert _difference(TP, 7, row, row) == ""
    line = _difference(TP, 7, row, (b"key", b"another value", None, 1001))
    assert line.startswith("orders-0 offset 7: an independent client reads value 14 bytes ")
    assert "headers" in line and "timestamp 1000 on the source, 1001 on the target" in line and "key" not in line
    assert "secret" not in line and "another" not in line


def test_nothing_to_draw_from_asks_no_cluster() -> None:
    found = spot_check([stretch(0, 5, 5)], None, None, places=9, seed=3, isolation="read_committed")  # type: ignore[arg-type]
    assert found == SpotCheck(seed=3)


def test_damaged_batch_keeps_no_other_difference_from_being_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the reading of a client, with all that was asked together with it."""

    class Reader:
        def __init__(self, *_: object) -> None:
            pass

        def first(self, places: dict[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, object]:
            if TopicPartition("orders", 1) in places:
                raise TimeoutError("bad checksum")
            return {tp: (place, (b"key", b"value", None, 1)) for tp, (place, _) in places.items()}

        def close(self) -> None:
            pass

    monkeypatch.setattr(referee, "_Reader", Reader)
    tps = [TopicPartition("orders", p) for p in range(3)]
    places = [
        Place(source=tp, source_offset=7, target=tp, target_offset=7, corrupt=tp.partition == 1) for tp in tps
    ]  # fmt: skip
    same, bad, again = second_look(places, *[ClientConfig(NOBODY)] * 2, isolation="read_committed")
    assert same == again == "an independent client reads the same record on both sides"
    assert bad == "an independent client (librdkafka) could not read: bad checksum"


class Rest:
    """A client that has the rest of one partition's log in its queue, and hears nothing of the others."""

    def __init__(self, *_: object) -> None:
        self.polled = 0

    def assign(self, _places: object) -> None:
        pass

    incremental_unassign = assign

    def poll(self, _timeout_s: float) -> Rest:
        self.polled += 1
        assert self.polled < 1000, "it would never be given up"
        time.sleep(0.001)
        return self

    def close(self) -> None:
        pass

    def __getattr__(self, _name: str) -> Callable[[], Any]:
        return {"topic": lambda: "orders", "partition": lambda: 0, "offset": lambda: 5, "timestamp": lambda: (0, 1)}.get(
            _name, lambda: None
        )


def test_a_partition_that_is_silent_is_given_up_while_others_have_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent_kafka, "Consumer", Rest)
    monkeypatch.setattr(referee, "_SILENCE_S", 0.05)
    found = spot_check(
        [stretch(0, 5, 6), stretch(1, 5, 6)], *[ClientConfig(NOBODY)] * 2, places=9, seed=3, isolation="read_committed"
    )
    assert found.failed.endswith("no record and no end of the log of orders-1 in 0 s")


NOBODY = {"bootstrap.servers": "127.0.0.1:1"}
JAVAS = {"connections.max.idle.ms": "-1", "socket.timeout.ms": "600000", "client.dns.lookup": "default",
         "retry.backoff.ms": "0", "acks": "all", "fetch.max.wait.ms": "9", "ssl.endpoint.identification.algorithm": "",
         "schema.registry.url": "x", "reconnect.backoff.ms": "99999", "ssl.ca.pem": ""}  # fmt: skip


def test_settings_for_javas_clients_keep_nobody_from_a_second_opinion() -> None:
    """librdkafka refuses a name that it does not know, and these values."""
    require_clients(ClientConfig(NOBODY | JAVAS, "source"), ClientConfig(NOBODY, "target"))
    assert ClientConfig(NOBODY | JAVAS).common() == NOBODY | {"ssl.endpoint.identification.algorithm": "none"}


def test_settings_that_the_other_client_refuses_are_named_first_and_a_check_that_fell_out_fails() -> None:
    secret = {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "/s3cr3t"}
    wrong = ClientConfig(NOBODY | secret | {"security.protocol": "SASL_SSL", "ssl.ca.location": "/s3cr3t"}, "source")
    with pytest.raises(InputError, match="source settings: an independent client .* ssl.ca.location failed") as caught:
        require_clients(ClientConfig(NOBODY, "target"), wrong)
    found = spot_check([stretch(0, 0, 5)], wrong, wrong, places=9, seed=3, isolation="read_committed")
    assert found.records == 0 and not found.left_out
    refused = against(found)
    assert isinstance(refused, TryAgain) and "ssl.ca.location failed" in str(refused)
    assert "s3cr3t" not in str(refused) + str(caught.value) + str(found)
    assert against(SpotCheck(seed=1)) is None and against(SpotCheck(seed=1, differences=["x"])) is not None


def test_a_cluster_with_kerberos_goes_without_a_second_opinion() -> None:
    kerberos = ClientConfig(NOBODY | {"security.protocol": "SASL_PLAINTEXT"})
    require_clients(kerberos)
    found = spot_check([stretch(0, 0, 5)], kerberos, kerberos, places=9, seed=3, isolation="read_committed")
    assert "GSSAPI" in found.left_out[0] and against(found) is None
