"""Files of Java clients that log in by Kerberos: real ones read and write with them, and then, unchanged, the mirror."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from sandbox import jars
from sandbox.java import java_for
from sandbox.versions import TOOLS_VERSION, release
from tests.integration.copying import assert_equal, create, ends, wait_until, write
from tests.integration.plain import Follow
from tests.integration.realms import Side, World

pytestmark = pytest.mark.kerberos
PARTITIONS = 2
MODULE = "com.sun.security.auth.module.Krb5LoginModule"


def file_of(side: Side, directory: Path, options: str) -> Path:
    path = directory / f"{side.role}.properties"
    path.write_text(
        f"bootstrap.servers={side.cluster.bootstrap_sasl}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\n"
        "sasl.kerberos.service.name=kafka\nsasl.kerberos.ticket.renew.window.factor=0.7\n"
        f"sasl.jaas.config={MODULE} required {options};\n"
    )
    return path


def java(side: Side, name: str, *arguments: str, given: Iterable[str] = ()) -> str:
    """Run a tool of Kafka in the realm of one side; return what it writes to standard output."""
    command = [str(java_for(release(TOOLS_VERSION), kerberos=True)), "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
    # Java asks for the service of an address by the name that the address has here; without names it keeps the address.
    command += [
        "-Djdk.net.hosts.file=/dev/null",
        f"-Djava.security.krb5.conf={side.realm.config}",
        "-cp",
        jars.classpath("broker", "tools", version=TOOLS_VERSION),
    ]
    command += [f"org.apache.kafka.tools.{name}", "--bootstrap-server", side.cluster.bootstrap_sasl, *arguments]
    done = subprocess.run(command, input="".join(given), capture_output=True, text=True, errors="replace", timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_files_of_java_clients_in_two_realms_are_those_of_a_tail(
    realms: World, topic_name: str, tmp_path: Path
) -> None:
    """From a ticket cache to a keytab. What Java writes with the producer's file is in a topic of its own."""
    source, target, cache = realms.source, realms.target, tmp_path / "krb5cc"
    source.realm.log_in("mirror", cache)
    keytab = target.realm.keytab("mirror")
    consumer = file_of(source, tmp_path, f'useTicketCache=true ticketCache="{cache}" doNotPrompt=true')
    principal = f'principal="mirror@{target.realm.name}"'
    producer = file_of(target, tmp_path, f'useKeyTab=true storeKey=true keyTab="{keytab}" {principal}')
    for side in (source, target):
        create(side.cluster, f"{topic_name}-java")
    create(source.cluster, topic_name, PARTITIONS)
    lines = [f"{number}\n" for number in range(5)]
    write_with, read_with = ("--producer.config", str(producer)), ("--consumer.config", str(consumer))
    java(target, "ConsoleProducer", "--topic", f"{topic_name}-java", *write_with, given=lines)
    assert ends(target.cluster, f"{topic_name}-java")[0][-1] == len(lines)
    for partition in range(PARTITIONS):
        write(source.cluster, topic_name, 200, seed=partition, codec="lz4", partition=partition)
    read = ("--topic", topic_name, "--from-beginning", "--max-messages", "50", "--timeout-ms", "120000")
    java(source, "consumer.ConsoleConsumer", *read, *read_with)

    options = [*read_with, *write_with, "--whitelist", topic_name, "--name", topic_name]
    consumer.write_text(consumer.read_text() + "auto.offset.reset=earliest\n")
    with Follow(*options, log=tmp_path / "tail.log") as tail:
        wait_until(lambda: copied(target, topic_name) >= 200 * PARTITIONS, f"the tail copies: {tail.log}", 240)
        write(source.cluster, topic_name, 20, seed=9)
        wait_until(lambda: copied(target, topic_name) == 200 * PARTITIONS + 20, "and what comes then", 120)
        tail.stop()
    assert_equal(source.cluster, target.cluster, topic_name, PARTITIONS)
    assert "sasl.jaas.config: mapped: sasl.username, sasl.password, sasl.kerberos.*" in tail.said


def copied(side: Side, topic: str) -> int:
    try:
        return sum(end for _, _, end in ends(side.cluster, topic, PARTITIONS).values())
    except Exception:  # the tail creates the topic
        return 0
