"""Names on the target: of topics by a policy, of principals by their own name or a pattern of all of it."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import (
    Policy,
    Principals,
    lease_id,
    marker_id,
    own_ids,
    progress_group,
    starts_group,
)
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.errors import InvalidField
from airflow_mirror.mirror import Mirror

BY_CERTIFICATE = {r"/User:CN=([^,]+),OU=.*/": r"User:\1", "User:CN=old.app,OU=x": "User:app"}


@pytest.mark.parametrize(
    ("principal", "becomes"),
    [
        ("User:CN=orders,OU=x", "User:orders"),
        ("User:CN=old.app,OU=x", "User:app"),  # its name wins over the pattern
        ("User:CN=old-app,OU=x", "User:old-app"),  # a name is no pattern: its dot is a dot
        ("User:alice", "User:alice"),
        ("User:*", "User:*"),
    ],
)
def test_principal_becomes_what_its_name_or_pattern_says(principal: str, becomes: str) -> None:
    assert Principals(BY_CERTIFICATE).target(principal) == becomes


def test_two_principals_may_become_one() -> None:
    both = Principals({"User:a": "User:app", "User:b": "User:app"})
    assert both.target("User:a") == both.target("User:b") == "User:app"


def test_principal_of_which_two_patterns_disagree_is_refused() -> None:
    torn = Principals({"/User:CN=(.*)/": r"User:\1", "/User:(CN.*)/": r"User:x-\1"})
    with pytest.raises(InvalidField, match="patterns disagree: User:app, User:x-CN=app.*by name"):
        torn.target("User:CN=app")


def test_nobody_becomes_everybody_by_a_pattern() -> None:
    """``User:CN=*`` is somebody with a strange certificate."""
    with pytest.raises(InvalidField, match="everybody"):
        Principals({"/User:CN=(.*)/": r"User:\1"}).target("User:CN=*")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"/User:(/": "User:a"}, "not a valid regular expression"),
        ({"/User:CN=.*/": r"User:\1"}, "invalid group reference"),
        ({"/User:CN=.*/": r"User:\g<name>"}, "unknown group name"),
        ({"User:a": "User:*"}, "names everybody"),
        ({"User:*": "User:a"}, "names everybody"),
        ({"alice": "User:alice"}, "not a principal"),
        ({"User:alice": "alice"}, "not a principal"),
        ({"User:alice": 7}, "not text"),
        (["User:alice"], "not a mapping"),
    ],
)
def test_mirror_refuses_a_map_that_can_not_be(names: Any, message: str) -> None:
    with pytest.raises(InvalidField, match=message) as e:
        Mirror(name="m", source="s", target="t", principals=names)
    assert e.value.field == "principals"
    assert e.value.cause.startswith("not a valid regular expression: ") == str(next(iter(names))).startswith("/")


def test_map_survives_being_written_down() -> None:
    mirror = Mirror(name="m", source="s", target="t", principals=BY_CERTIFICATE)
    assert Mirror.from_dict(mirror.to_dict()) == mirror
    assert hash(mirror) == hash(Mirror.from_dict(mirror.to_dict()))


def test_names_that_the_map_takes_away_are_not_its_own() -> None:
    """A rule for such a name on the target was written by somebody else."""
    principals = Principals({"User:a": "User:app"})
    assert [principals.yields(f"User:{name}") for name in ("app", "b", "a")] == [True, True, False]


# --- topics -------------------------------------------------------------------------------------------------------------


class Upper:
    """A policy of one's own, as a user writes it."""

    def target_topic(self, source_topic: str) -> Any:
        return {"none": None, "slash": "a/b", "ledger": "airflow-mirror.ledger"}.get(source_topic, source_topic.upper())


class Demanding(Upper):
    def __init__(self, alias: str) -> None:
        self.alias = alias


UPPER = f"{__name__}:Upper"


def test_a_prefix_is_alias_separator_and_name() -> None:
    policy = Mirror(name="m", source="dc1", target="t", policy="prefix", separator="_").naming
    assert (policy.target_topic("orders"), policy.target_prefix("o")) == ("dc1_orders", "dc1_o")
    assert Policy().target_topic("a.b") == Policy().target_prefix("a.b") == "a.b"
    assert Policy("prefix", "dc1_", "").target_topic("test") == "dc1_test"


@pytest.mark.parametrize("alias", ["dc1/", "{{ env }}", "a b", "d\u00e9"])
def test_an_alias_that_no_topic_may_begin_with_is_refused(alias: str) -> None:
    """Brokers say of such a name that the principal has no right to it, and a person grants it."""
    mirror = Mirror(name="m", source="dc1", target="t", source_alias=alias)
    assert mirror.naming.target_topic("orders") == "orders", "it stands in traces alone, which look for themselves"
    with pytest.raises(InvalidField, match="source_alias=.*no topic may be called so. Use letters"):
        Mirror(name="m", source="dc1", target="t", source_alias=alias, policy="prefix")
    with pytest.raises(InvalidField, match="source_alias="):
        Mirror(name="m", source=alias, target="t", policy="prefix")


def test_a_class_of_ones_own_names_topics() -> None:
    policy = Mirror(name="m", source="s", target="t", policy=UPPER).naming
    assert (policy.target_topic("orders"), policy.target_prefix("o")) == ("ORDERS", None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"policy": "upper"}, "no such naming policy"),
        ({"policy": "upper:"}, "no such naming policy"),
        ({"policy": "a b:C"}, "no such naming policy"),
        ({"separator": ""}, "separator='': not usable"),
        ({"separator": "/"}, "separator='/': not usable"),
        ({"separator": 1}, "separator=1: not usable"),
    ],
)
def test_a_policy_that_can_not_be_is_refused_at_once(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidField, match=message):
        Mirror(name="m", source="s", target="t", **fields)


@pytest.mark.parametrize(
    ("policy", "topic", "message"),
    [
        ("no_such_package.naming:Upper", "orders", "can't be loaded: ModuleNotFoundError.*'no_such_package'"),
        (f"{__name__}:Missing", "orders", "can't be loaded: AttributeError.*Missing"),
        (f"{__name__}:Demanding", "orders", "can't be loaded: TypeError.*alias"),
        (f"{__name__}:Principals", "orders", r"target_topic\('orders'\) failed: AttributeError"),
        (UPPER, "none", "'none' would be called None"),
        (UPPER, "slash", "'slash' would be called 'a/b', which is no name"),
        (UPPER, "ledger", "'ledger' would be called 'airflow-mirror.ledger', which is internal"),
        ("prefix", "x" * 248, "which is no name of a topic"),
    ],
)
def test_a_name_that_can_not_be_given_says_why(policy: str, topic: str, message: str) -> None:
    """Only when a name is asked for: whoever carries out a plan does not need the class."""
    mirror = Mirror(name="m", source="s", target="t", policy=policy)
    assert Mirror.from_dict(mirror.to_dict()) == mirror
    with pytest.raises(InvalidField, match=message) as caught:
        mirror.naming.target_topic(topic)
    assert caught.value.field == "policy"


def test_ids_of_one_mirror_are_never_those_of_another() -> None:
    """Names of mirrors and topics may have dots: a lease that is taken, or a padding, would fence another one's."""
    names, topics = ("a", "a.b", "a.b.0", "a.starts", "starts", "lease"), ("b.c", "c", "b", "0", "lease", "starts", "t")
    ids = [f(name) for name in names for f in (lease_id, progress_group, starts_group)]
    ids += [marker_id(name, TopicPartition(topic, p)) for name in names for topic in topics for p in (0, 1)]
    assert len(set(ids)) == len(ids)
    assert not any("/" in one for one in [*ids, name_of("a.b", "run", "1")]), "brokers with ZooKeeper keep no rule for it"
    for name in names:
        assert sum(one.startswith(own_ids(name)) for one in ids) == 3 + 2 * len(topics), "what a rule by prefix covers"
