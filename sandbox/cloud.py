"""Brokers that take the tokens of clouds: OAUTHBEARER with a validator of our own (``java/CloudTokens.java``).

It reads the tokens of Amazon MSK with IAM and of Google's Managed Kafka. It proves nobody's identity: there is no cloud.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from airflow_mirror.errors import InputError
from airflow_mirror.jobs.runner.java import find_java
from sandbox import jars
from sandbox.settings import SASL_LISTENER
from sandbox.versions import DEFAULT_VERSION

VALIDATOR = Path(__file__).with_name("java") / "CloudTokens.java"
_LISTENER = f"listener.name.{SASL_LISTENER.lower()}"
_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
REGION = "eu-west-1"


def compiled(
    directory: Path, sources: Sequence[Path] = (VALIDATOR,), version: str = DEFAULT_VERSION, *options: str
) -> Path:
    """Compile classes for brokers of a release into ``directory``, and return it.

    :param sources: default: the validator.
    :raises InputError: there is no compiler, or it refuses them.
    """
    javac = find_java().home / "bin" / "javac"
    command = [str(javac), *options, "-cp", jars.classpath("broker", version=version), "-d", str(directory)]
    if not javac.exists():
        raise InputError(
            "classes for brokers can't be compiled", f"{javac} is missing", "Install a JDK, not only a runtime."
        )
    done = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True)
    if done.returncode:
        raise InputError("classes for brokers can't be compiled", done.stderr)
    return directory


def overrides(session_s: float, region: str = REGION) -> dict[str, str]:
    """Return the settings of brokers with an authorizer whose listener for users takes such tokens besides passwords.

    :param session_s: after which a client has to log in again (KIP-368). :param region: which tokens of MSK must be for.
    """
    # The module wants a claim, although brokers never log in this way.
    module = f'{_MODULE} required unsecuredLoginStringClaim_sub="broker" region="{region}";'
    return {
        f"{_LISTENER}.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        f"{_LISTENER}.oauthbearer.sasl.jaas.config": module,
        f"{_LISTENER}.oauthbearer.sasl.server.callback.handler.class": VALIDATOR.stem,
        f"{_LISTENER}.oauthbearer.connections.max.reauth.ms": str(int(session_s * 1000)),
    }
