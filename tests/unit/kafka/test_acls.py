"""Rules: each keeps its own error, and a broker without patterns is never told a prefix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.admin import CreateAclsResponse, DeleteAclsResponse, DescribeAclsResponse

from airflow_mirror.errors import MissingRight, RequestRefused
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.errors import ApiNotServed
from tests.builders import rule
from tests.unit.kafka.world import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS, LOST, world

WITHOUT_PATTERNS = {DESCRIBE_ACLS: (0, 0), CREATE_ACLS: (0, 0), DELETE_ACLS: (0, 0)}
DENY = rule("orders", "WRITE", "DENY")
READ = rule("orders", "READ", "ALLOW", "User:alice")
PREFIX = rule("ord", "READ", "ALLOW", "User:alice", pattern="PREFIXED")


def created(*codes: int) -> Callable[[Any], Any]:
    result = CreateAclsResponse.AclCreationResult
    return lambda request: CreateAclsResponse(
        results=[result(error_code=code, error_message="so says the broker") for code in codes]
    )


def described(*rules: tuple[int, str, int, str, int, int], code: int = 0) -> Callable[[Any], Any]:
    resource = DescribeAclsResponse.DescribeAclsResource
    resources = [
        resource(
            resource_type=kind, resource_name=name, pattern_type=pattern,
            acls=[resource.AclDescription(principal=who, host="*", operation=op, permission_type=allow)],
        )
        for kind, name, pattern, who, op, allow in rules
    ]  # fmt: skip
    return lambda request: DescribeAclsResponse(error_code=code, error_message="because", resources=resources)


def test_rule_that_could_not_be_added_is_named_among_many() -> None:
    with world() as w:
        w.answer(CREATE_ACLS, created(0, 0, 42))
        with pytest.raises(
            RequestRefused,
            match="create ACL ALLOW READ for User:alice from [*] on TOPIC 'orders'.*INVALID_REQUEST.*so says",
        ):
            w.admin.create_acls([DENY, READ, PREFIX], unfenced)


def test_every_field_of_a_rule_reaches_the_broker() -> None:
    with world() as w:
        w.answer(CREATE_ACLS, created(0))
        w.admin.create_acls([PREFIX], unfenced)
        (request,) = w.asked(CREATE_ACLS)
        (one,) = request.creations
        assert (one.resource_type, one.resource_name, one.resource_pattern_type) == (2, "ord", 4)
        assert (one.principal, one.host, one.operation, one.permission_type) == ("User:alice", "*", 3, 3)


@pytest.mark.repeats
def test_a_request_holds_no_more_rules_than_brokers_do_in_time() -> None:
    many = [rule(f"t{i}", "READ", "ALLOW", "User:alice") for i in range(2500)]
    result = DeleteAclsResponse.DeleteAclsFilterResult
    with world() as w:
        w.answer(CREATE_ACLS, lambda request: created(*[0] * len(request.creations))(request))
        w.answer(DELETE_ACLS, lambda request: DeleteAclsResponse(
            filter_results=[result(error_code=0, matching_acls=[]) for _ in request.filters]
        ))  # fmt: skip
        w.admin.create_acls(many, unfenced)
        w.admin.delete_acls(many, unfenced)
        assert [len(request.creations) for request in w.asked(CREATE_ACLS)] == [500] * 5
        assert [len(request.filters) for request in w.asked(DELETE_ACLS)] == [200] * 12 + [100]


def test_refusal_to_tell_rules_is_no_empty_list() -> None:
    with world() as w:
        w.answer(DESCRIBE_ACLS, described(code=31))
        with pytest.raises(MissingRight, match="describe ACLs.*lacks Describe on cluster"):
            w.admin.describe_acls(resource_type="TOPIC")
        w.answer(DESCRIBE_ACLS, described(code=54))
        with pytest.raises(RequestRefused, match="SECURITY_DISABLED.*because") as e:
            w.admin.describe_acls(resource_type="TOPIC")
        assert e.value.code == 54


def test_kinds_that_only_newer_brokers_know_are_called_unknown() -> None:
    with world() as w:
        w.answer(DESCRIBE_ACLS, described((99, "x", 3, "User:a", 98, 3)))
        assert w.admin.describe_acls() == [rule("x", "UNKNOWN", "ALLOW", "User:a", kind="UNKNOWN")]


def test_prefix_is_not_sent_to_brokers_without_patterns() -> None:
    """Such a broker would take it for a name."""
    with world(WITHOUT_PATTERNS) as w:
        with pytest.raises(ApiNotServed, match="CreateAcls version 3"):
            w.admin.create_acls([READ, PREFIX], unfenced)
        with pytest.raises(ApiNotServed, match="DeleteAcls version 3"):
            w.admin.delete_acls([PREFIX], unfenced)
        assert not w.asked(CREATE_ACLS) and not w.asked(DELETE_ACLS)


def test_broker_without_patterns_is_searched_like_newer_ones() -> None:
    with world(WITHOUT_PATTERNS) as w:
        w.answer(DESCRIBE_ACLS, described(
            (2, "orders", 3, "User:*", 4, 2), (2, "*", 3, "User:b", 3, 3), (2, "other", 3, "User:c", 3, 3),
        ))  # fmt: skip
        everyone = rule("*", "READ", "ALLOW", "User:b")
        assert w.admin.describe_acls(name="orders", pattern_type="MATCH") == sorted([DENY, everyone])
        assert w.admin.describe_acls(resource_type="TOPIC", name="orders", pattern_type="LITERAL") == [DENY]
        assert w.admin.describe_acls(resource_type="TOPIC", name="orders") == [DENY]
        assert w.admin.describe_acls(resource_type="TOPIC", name="orders", pattern_type="PREFIXED") == []
        assert len(w.admin.describe_acls(resource_type="TOPIC")) == 3


def test_deleted_rules_are_returned_and_inner_failures_raised() -> None:
    result = DeleteAclsResponse.DeleteAclsFilterResult

    def deleted(code: int, inner: int) -> Callable[[Any], Any]:
        rule = result.DeleteAclsMatchingAcl(
            error_code=inner, error_message="inside", resource_type=2, resource_name="orders", pattern_type=3,
            principal="User:*", host="*", operation=4, permission_type=2,
        )  # fmt: skip
        return lambda request: DeleteAclsResponse(
            filter_results=[result(error_code=code, error_message="outside", matching_acls=[rule])]
        )

    with world() as w:
        w.answer(DELETE_ACLS, LOST, deleted(0, 0))
        assert w.admin.delete_acls([DENY], unfenced) == [DENY]
        w.answer(DELETE_ACLS, deleted(31, 0))
        with pytest.raises(MissingRight, match="delete ACL DENY WRITE for User:[*].*lacks Alter on cluster"):
            w.admin.delete_acls([DENY], unfenced)
        w.answer(DELETE_ACLS, deleted(0, 54))
        with pytest.raises(RequestRefused, match="SECURITY_DISABLED.*inside"):
            w.admin.delete_acls([DENY], unfenced)
