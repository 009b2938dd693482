"""Client quotas: entities with and without names, values that are set and removed, and errors by entity."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.admin import AlterClientQuotasResponse, DescribeClientQuotasResponse

from airflow_mirror.errors import MissingRight, RequestRefused
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.kafka.quotas import QuotaEntity
from airflow_mirror.wire.errors import ApiNotServed
from tests.unit.kafka.world import ALTER_QUOTAS, DESCRIBE_QUOTAS, world

of = QuotaEntity.of


def described(request: Any) -> Any:
    entry = DescribeClientQuotasResponse.EntryData
    return DescribeClientQuotasResponse(
        error_code=0, error_message=None, entries=[
            entry(
                entity=[entry.EntityData(entity_type="user", entity_name=None),
                        entry.EntityData(entity_type="client-id", entity_name="x")],
                values=[entry.ValueData(key="producer_byte_rate", value=1.5)],
            )
        ],
    )  # fmt: skip


def altered(*codes: int) -> Any:
    def answer(request: Any) -> Any:
        entry = AlterClientQuotasResponse.EntryData
        return AlterClientQuotasResponse(entries=[
            entry(error_code=code, error_message="so says the broker", entity=[
                entry.EntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in asked.entity
            ])
            for code, asked in zip(codes, request.entries, strict=True)
        ])  # fmt: skip

    return answer


def test_default_of_an_entity_is_told_from_a_name() -> None:
    with world() as w:
        w.answer(DESCRIBE_QUOTAS, described)
        (one,) = found = w.admin.quotas()
        assert found[one] == {"producer_byte_rate": 1.5} and one == of(client_id="x", user=None)
        assert (str(one), one.user, one.has_default) == ("client-id 'x', user <default>", None, True)
        (request,) = w.asked(DESCRIBE_QUOTAS)
        assert not request.components and not request.strict  # all of them


def test_values_are_set_and_removed_by_entity_and_key() -> None:
    with world() as w:
        w.answer(ALTER_QUOTAS, altered(0, 0))
        w.admin.alter_quotas({of(user="a"): {"x": 1.0, "y": None}, of(ip=None): {"z": 2.0}}, unfenced)
        (request,) = w.asked(ALTER_QUOTAS)
        asked = {(part.entity_type, part.entity_name): [(op.key, op.remove) for op in one.ops]
                 for one in request.entries for part in one.entity}  # fmt: skip
        assert asked == {("ip", None): [("z", False)], ("user", "a"): [("x", False), ("y", True)]}
        assert not request.validate_only


def test_quota_that_is_refused_is_named_among_others() -> None:
    with world() as w:
        w.answer(ALTER_QUOTAS, altered(0, 42))
        with pytest.raises(RequestRefused, match="alter client quotas of user 'b'.*INVALID_REQUEST.*so says"):
            w.admin.alter_quotas({of(user="a"): {"x": 1.0}, of(user="b"): {"x": 1.0}}, unfenced)
        w.answer(ALTER_QUOTAS, altered(31))
        with pytest.raises(MissingRight, match="lacks AlterConfigs on cluster"):
            w.admin.alter_quotas({of(user="a"): {"x": 1.0}}, unfenced)


def test_brokers_that_do_not_tell_quotas_are_named() -> None:
    with world() as w:
        del w.broker.served[DESCRIBE_QUOTAS]
        with pytest.raises(ApiNotServed, match="DescribeClientQuotas"):
            w.admin.quotas()
