"""The command for one mirror's rights prints those of that mirror, without its file."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from airflow_mirror.console import main
from airflow_mirror.jobs.driver.arguments import mirror_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.rights import COMMANDS, FAILOVER, SIDES, TARGET, rights_of
from airflow_mirror.plan.rights_command import rights_command

WHO = "User:CN=on call,OU=x"


def a_mirror(**fields: Any) -> Mirror:
    return Mirror(**{"name": "m", "source": "dc1", "target": "dc2", **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"topics": ["orders", "pay[.].*"], "exclude_topics": ["pay.x"], "groups": ["it's `me`", "g.*"]},
        {"policy": "prefix"},
        {"policy": "prefix", "source_alias": "eu", "separator": "-", "topics": ["a"]},
        {"internal_topics": True, "policy": "prefix", "topics": ["__x"]},
        {"offsets": "mapped"}, {"offsets": "identical", "groups": ["g"]},
    ],
)  # fmt: skip
def test_it_prints_the_rights_of_the_mirror_as_it_is_shown(fields: dict[str, Any]) -> None:
    mirror = a_mirror(**fields)
    for role in COMMANDS:
        program, command, *words = shlex.split(rights_command(mirror, role, TARGET, WHO))
        assert (program, command) == ("airflow-mirror", "rights")
        asked = main.parser("rights").parse_args(words)
        assert (asked.name, asked.principal, asked.role, asked.side) == ("m", WHO, [role], TARGET)
        for side in SIDES:
            found = rights_of(mirror_of(asked), side, WHO, roles=asked.role)
            assert found == rights_of(mirror, side, WHO, roles=[role])


def test_what_no_option_says_is_told() -> None:
    command = rights_command(a_mirror(sync_acls=True), FAILOVER, TARGET, None)
    assert "--principal User:NAME " in command and "what sync_acls need is told by --mirror FILE" in command
    many = a_mirror(topics=[f"topic-{i}" for i in range(500)], sync_acls=True)
    for mirror in (many, a_mirror(groups=[])):
        command = rights_command(mirror, FAILOVER, TARGET, WHO)
        assert command.startswith("airflow-mirror rights --mirror FILE --principal ") and command.endswith(
            "--side target"
        )
