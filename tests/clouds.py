"""What stands in for a cloud's servers: HTTP on loopback that notes what is asked, and answers as it is told."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_mirror.common.oauth import tokens
from tests import loopback

if TYPE_CHECKING:
    import pytest

Answer = tuple[int, str]


class Server:
    """A server.

    :ivar asked: the form of each request. :ivar answers: what is answered, or makes it of a form; the last one for ever.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[dict[str, str]] = []
        self.answers: list[Answer | Callable[[dict[str, str]], Answer]] = []


@contextmanager
def serving() -> Iterator[Server]:
    """Yield a server that runs for the block."""

    class Handler(loopback.Quiet):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
            served.asked.append(dict(urllib.parse.parse_qsl(body)))
            answer = served.answers.pop(0) if len(served.answers) > 1 else served.answers[0]
            status, text = answer if isinstance(answer, tuple) else answer(served.asked[-1])
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

    with loopback.serving(Handler) as url:
        served = Server(url)
        yield served


def assumed(key: str, end: str, session: str = "session") -> str:
    """Return STS's answer: a key of a role's session, which ends at ``end`` (ISO 8601), and its token."""
    return f"""<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
      <AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/r/s</Arn><AssumedRoleId>A:s</AssumedRoleId></AssumedRoleUser>
      <Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>
      <SessionToken>{session}</SessionToken><Expiration>{end}</Expiration></Credentials>
      </AssumeRoleResult></AssumeRoleResponse>"""


def refused(code: str, message: str) -> str:
    """Return STS's answer to who may not."""
    error = f"<Type>Sender</Type><Code>{code}</Code><Message>{message}</Message>"
    return f"<ErrorResponse><Error>{error}</Error></ErrorResponse>"


def own_key(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """Leave nothing of this machine's AWS but a key in the environment, and no tokens of another test."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "s3cr3t-key",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(directory / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(directory / "credentials"),
    }.items():
        monkeypatch.setenv(name, value)
    tokens._forget()
