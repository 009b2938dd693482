"""SCRAM users: told without their secrets, created with a salted password, and never with the password itself."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from kafka.protocol.admin import AlterUserScramCredentialsResponse, DescribeUserScramCredentialsResponse

from airflow_mirror.errors import MissingRight, RequestRefused
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.kafka.users import ScramCredential
from tests.unit.kafka.world import ALTER_USERS, DESCRIBE_USERS, world

SECRET = "a-secret-of-hers"
NEW = [ScramCredential(mechanism=f"SCRAM-SHA-{bits}", iterations=4096, password=SECRET) for bits in (256, 512)]


def described(*codes: int, code: int = 0) -> Any:
    result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
    results = [
        result(
            user=f"user-{i}", error_code=one, error_message="because",
            credential_infos=[result.CredentialInfo(mechanism=m, iterations=4096 + m) for m in (1, 2, 9)],
        )
        for i, one in enumerate(codes)
    ]  # fmt: skip
    return lambda request: DescribeUserScramCredentialsResponse(
        error_code=code, error_message="no", results=[] if code else results
    )


def altered(code: int) -> Any:
    result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    return lambda request: AlterUserScramCredentialsResponse(results=[
        result(user=user, error_code=code, error_message="because") for user in {one.name for one in request.upsertions}
    ])  # fmt: skip


def test_users_are_told_with_mechanisms_and_iterations() -> None:
    with world() as w:
        w.answer(DESCRIBE_USERS, described(0, 91))  # the second one was deleted meanwhile
        assert w.admin.scram_users() == {"user-0": {"SCRAM-SHA-256": 4097, "SCRAM-SHA-512": 4098, "UNKNOWN": 4105}}
        w.answer(DESCRIBE_USERS, described(0, 42))
        with pytest.raises(RequestRefused, match="describe SCRAM users.*INVALID_REQUEST"):
            w.admin.scram_users()
        w.answer(DESCRIBE_USERS, described(code=31))
        with pytest.raises(MissingRight, match="lacks Describe on cluster"):
            w.admin.scram_users()


def test_salted_password_of_each_mechanism_is_sent_and_not_the_password() -> None:
    with world() as w:
        w.answer(ALTER_USERS, altered(0))
        w.admin.create_scram_users({"alice": NEW}, unfenced)
        (request,) = w.asked(ALTER_USERS)
        for one, kind, number in zip(request.upsertions, ("sha256", "sha512"), (1, 2), strict=True):
            assert (one.name, one.mechanism, one.iterations, len(one.salt)) == ("alice", number, 4096, 32)
            assert one.salted_password == hashlib.pbkdf2_hmac(kind, SECRET.encode(), one.salt, 4096)
        assert request.upsertions[0].salt != request.upsertions[1].salt and not request.deletions
        assert SECRET not in str(request) and SECRET not in repr(NEW)


def test_user_that_is_refused_is_named_without_its_secret() -> None:
    with world() as w:
        w.answer(ALTER_USERS, altered(42))
        with pytest.raises(RequestRefused, match="create SCRAM user 'alice'.*INVALID_REQUEST.*because") as e:
            w.admin.create_scram_users({"alice": NEW}, unfenced)
        assert SECRET not in str(e.value)
