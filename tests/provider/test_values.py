"""Values say what they hold where they are made: nobody counts commas."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import airflow_mirror
from airflow_mirror.errors import MirrorError

MOST = 4  # fields that may be given by their position
DOORS = ("airflow_mirror.copy.spark.tail",)  # they import pyspark, and hold no values of their own

# Class -> why its fields may be given by position.
EXEMPT = {
    "Finding": "level, check, object, evidence, remedy: checks are read as tables",
    "Measured": "the catalogue of figures is a table, with a line for each",
    "Kind": "key, about, writer, split, retire: the records of the ledger are a table",
    "Follow": "name, wanted, interval, make: followers are a table",
    "Right": "side, on, operation, roles, why: the rights are a table, with a line for each",
    # Named tuples: made or taken apart for each batch or record of a copy, where a keyword or a dataclass costs.
    "BatchHeader": "unpacked from a struct for each batch",
    "Encoded": "for each batch that is merged or encoded again",
    "Send": "for each batch",
    "FetchSpec": "for each partition of a fetch",
    "FetchedPartition": "for each partition of an answer",
    "Record": "for each record",
    "_Entry": "for each record of an old format",
    "Checkpoint": "for each group and partition of a pass of traces",
    "ProducerState": "for each producer of an answer",
    "Tally": "for each batch that is compared",
    "Delays": "for each partition of a task's report, where it is a list",
}


_OWN = {"__dataclass_fields__", "_fields"}  # not inherited: operators of Airflow are dataclasses, too


def values() -> Iterator[type]:
    """Every dataclass and named tuple of the package."""
    for found in pkgutil.walk_packages(airflow_mirror.__path__, "airflow_mirror."):
        if found.name in DOORS:
            continue
        module = importlib.import_module(found.name)
        for one in vars(module).values():
            if isinstance(one, type) and issubclass(one, MirrorError):
                continue  # raised once, next to its class; its fields say themselves what they are
            if isinstance(one, type) and one.__module__ == found.name and _OWN & vars(one).keys():
                yield one


def by_position(one: type) -> int:
    if dataclasses.is_dataclass(one):
        return sum(field.init and not field.kw_only for field in dataclasses.fields(one))
    return len(one._fields)  # type: ignore[attr-defined]


@pytest.mark.parametrize("one", list(values()), ids=lambda one: one.__name__)
def test_values_with_many_fields_are_made_by_name(one: type) -> None:
    assert (by_position(one) > MOST) == (one.__name__ in EXEMPT), "say kw_only=True, or why not"


def test_every_exemption_is_of_a_value_that_there_is() -> None:
    assert EXEMPT.keys() <= {one.__name__ for one in values()}
