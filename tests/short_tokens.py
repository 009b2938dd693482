"""A function that a connection may name as ``oauth_cb``: tokens of MSK with IAM that last for seconds."""

from __future__ import annotations

import os
from pathlib import Path


def token(config: str) -> tuple[str, float]:
    """Return a token and its end.

    :param config: its life in seconds, a blank, and a file that gets a line with the process's id for each token.
    """
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Signer

    life_s, _, noted = config.partition(" ")
    Signer.DEFAULT_TOKEN_EXPIRY_SECONDS = int(life_s)
    made, end_ms = Signer.generate_auth_token("eu-west-1")
    with Path(noted).open("a") as file:
        file.write(f"{os.getpid()}\n")
    return made, end_ms / 1000
