"""Which ACLs spare the mirror, and which can't be worked around."""

from __future__ import annotations

import itertools

import pytest

from airflow_mirror.cutover.mirror_only_fence import Spared, spare
from airflow_mirror.errors import FenceNotSwapped
from airflow_mirror.kafka.acls import letting_write
from airflow_mirror.kafka.model import Acl
from tests.builders import rule
from tests.unit.cutover.authorizer import may_write

OWN = "User:mirror"
DENIED = rule("orders", "WRITE", "DENY")
GRANTED = rule("orders", "WRITE", "ALLOW", OWN)


def no(principal: str) -> Acl:
    return rule("orders", "WRITE", "DENY", principal)


@pytest.mark.parametrize(
    ("grant", "expected"),
    [
        (rule("orders", "WRITE", "ALLOW", "User:a"), [no("User:a")]),
        (rule("orders", "ALL", "ALLOW", "User:a"), [no("User:a")]),
        (rule("ord", "WRITE", "ALLOW", "User:a", pattern="PREFIXED"), [no("User:a")]),
        (rule("*", "ALL", "ALLOW", "User:a"), [no("User:a")]),
        (rule("orders", "READ", "ALLOW", "User:a"), []),
        (rule("orders2", "WRITE", "ALLOW", "User:a"), []),
        (rule("orders2", "WRITE", "ALLOW"), []),
    ],
)
def test_whoever_may_write_to_the_topic_is_denied_by_name(grant: Acl, expected: list[Acl]) -> None:
    assert spare([DENIED, grant], ["orders"], OWN, [DENIED]) == Spared(add=tuple(sorted([*expected, GRANTED])), remove=())


def test_only_literal_write_for_everybody_is_replaced() -> None:
    all_write = rule("orders", "WRITE", "ALLOW")
    kept = [rule("orders", "READ", "ALLOW"), rule("payments", "WRITE", "ALLOW")]
    assert spare([DENIED, all_write, *kept], ["orders"], OWN, [DENIED]) == Spared(add=(GRANTED,), remove=(all_write,))


@pytest.mark.parametrize(
    "wide",
    [
        rule("orders", "ALL", "ALLOW"),
        rule("ord", "WRITE", "ALLOW", pattern="PREFIXED"),
        rule("orders", "WRITE", "ALLOW", pattern="PREFIXED"),
        rule("*", "WRITE", "ALLOW"),
    ],
)
def test_wider_grant_for_everybody_refuses_the_swap(wide: Acl) -> None:
    with pytest.raises(FenceNotSwapped, match="covers more: allow it by name") as caught:
        spare([DENIED, wide], ["orders", "payments"], OWN, [DENIED])
    assert str(wide) in str(caught.value)


@pytest.mark.parametrize(
    "theirs", [rule("*", "ALL", "DENY"), rule("ord", "WRITE", "DENY", OWN, pattern="PREFIXED"), DENIED]
)
def test_somebody_elses_denial_of_the_mirror_refuses_the_swap(theirs: Acl) -> None:
    with pytest.raises(FenceNotSwapped, match="keeps the mirror from writing"):
        spare([theirs], ["orders"], OWN)


@pytest.mark.parametrize("own", ["User:ANONYMOUS", "User:*"])
def test_mirror_without_a_name_can_not_be_spared(own: str) -> None:
    with pytest.raises(FenceNotSwapped, match="give it a name"):
        spare([DENIED], ["orders"], own, [DENIED])


def test_right_of_the_mirror_that_is_there_is_not_granted_again() -> None:
    for there in (GRANTED, rule("*", "ALL", "ALLOW", OWN), rule("ord", "WRITE", "ALLOW", OWN, pattern="PREFIXED")):
        assert spare([DENIED, there], ["orders"], OWN, [DENIED]) == Spared(add=(), remove=())


GRANTS = [
    rule(name, operation, permission, principal, pattern=pattern)
    for name, pattern in (("orders", "LITERAL"), ("or", "PREFIXED"), ("*", "LITERAL"), ("other", "LITERAL"))
    for operation in ("WRITE", "ALL", "READ")
    for permission in ("ALLOW", "DENY")
    for principal in ("User:a", OWN, "User:*")
    if (name, operation, permission, principal) != ("orders", "WRITE", "DENY", "User:*")  # the fence itself
]


@pytest.mark.parametrize("is_open", [True, False])
def test_afterwards_only_the_mirror_may_write_whatever_was_there(is_open: bool) -> None:
    """All pairs of ACLs, by the rules of the authorizer. Another topic is what it was before."""
    swapped = 0
    for pair in itertools.combinations(GRANTS, 2):
        try:
            found = spare([*pair, DENIED], ["orders"], OWN, [DENIED])
        except FenceNotSwapped:
            continue
        swapped += 1
        now = {*pair, *found.add} - {*found.remove}
        assert may_write(now, OWN, "orders", open_by_default=is_open)
        assert not any(may_write(now, who, "orders", open_by_default=is_open) for who in ("User:a", "User:b"))
        assert letting_write(now, "orders", OWN) == []
        for who, topic in itertools.product(("User:a", "User:b", OWN), ("other", "orwell")):
            before = may_write(pair, who, topic, open_by_default=is_open)
            assert may_write(now, who, topic, open_by_default=is_open) == before
    assert swapped > 500
