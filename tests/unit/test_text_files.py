"""A file that people write is read as text in UTF-8, or told to be none, whoever reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_mirror.compat import flags
from airflow_mirror.compat.files import read as read_mirrormaker
from airflow_mirror.compat.providers import Providers
from airflow_mirror.config import load
from airflow_mirror.errors import InputError
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.schemas.registry import Registry

PACKAGE = "org.apache.kafka.common.config.provider"
PROVIDERS: dict[str, str] = {
    "config.providers": "file,dir", "config.providers.file.class": f"{PACKAGE}.FileConfigProvider",
    "config.providers.dir.class": f"{PACKAGE}.DirectoryConfigProvider",
}  # fmt: skip
CONNECTOR = {
    "connector.class": "MirrorSourceConnector", "source.cluster.alias": "A", "target.cluster.alias": "B",
    "source.cluster.bootstrap.servers": "a:1", "target.cluster.bootstrap.servers": "b:1", "topics": "é",
}  # fmt: skip
MIRROR = {"name": "m", "source": "a", "target": "b", "topics": ["é"]}
DRIVER = "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
# Each file that people write or save: its text, and who reads it.
WRITTEN: dict[str, tuple[str, Callable[[Path], object]]] = {
    "settings.properties": ("client.id=é\nbootstrap.servers=a:1\n", lambda file: load(str(file))),
    "settings.json": ('{"client.id": "é", "bootstrap.servers": "a:1"}', lambda file: load(str(file))),
    "mirror.json": (json.dumps(MIRROR, ensure_ascii=False), Mirror.from_file),
    "mirror.yaml": (json.dumps(MIRROR, ensure_ascii=False), Mirror.from_file),
    "driver.properties": (DRIVER, lambda file: read_mirrormaker([file])),
    "connector.json": (json.dumps(CONNECTOR, ensure_ascii=False), lambda file: read_mirrormaker([file])),
    "old.properties": (
        "bootstrap.servers=a:1\n",
        lambda file: flags.read([f"--consumer.config={file}", f"--producer.config={file}", "--whitelist=x"]),
    ),
    "secrets.properties": (
        "addresses=a:1\n",
        lambda file: Providers.declared(PROVIDERS)[0].resolve("key", f"${{file:{file}:addresses}}"),
    ),
    "secret": ("é", lambda file: Providers.declared(PROVIDERS)[0].resolve("key", f"${{dir:{file.parent}:secret}}")),
    "registry.properties": ("schema.registry.url=https://é\n", lambda file: Registry.of("source", str(file)).url),
    "plan.json": ("{}", Plan.load),
}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le"])
@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_in_utf_16_is_told_to_be_one_whoever_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, encoding: str
) -> None:
    """As PowerShell's ``>`` and an editor on Windows write it; it became odd characters, or a traceback."""
    monkeypatch.setattr("airflow_mirror.config._READ_AGAIN", 0)  # settings are waited for
    (text, read), file = WRITTEN[name], tmp_path / name
    file.write_text(text, encoding=encoding)
    with pytest.raises(InputError, match="it is in UTF-16.*Save it as UTF-8") as caught:
        read(file)
    assert name in str(caught.value) and "\0" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in WRITTEN if name != "plan.json"])
def test_a_byte_order_mark_of_utf_8_is_no_part_of_a_file_whoever_reads_it(tmp_path: Path, name: str) -> None:
    (text, read), file = WRITTEN[name], tmp_path / name
    file.write_text(text, encoding="utf-8")
    without = read(file)
    file.write_text(text, encoding="utf-8-sig")
    assert str(read(file)) == str(without)


@pytest.mark.parametrize("name", ["settings.json", "mirror.yaml", "connector.json", "secret", "registry.properties"])
def test_a_file_in_another_encoding_is_told_to_be_none_in_utf_8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("airflow_mirror.config._READ_AGAIN", 0)  # settings are waited for
    (text, read), file = WRITTEN[name], tmp_path / name
    file.write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=f"{name}.* is no text in UTF-8. Save it as UTF-8."):
        read(file)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "m.yaml",
            "name: m\nsource: a\ntarget: b\ntopics: [x]\ngroups: [g]\ntopics: [y]\n",
            "'topics' stands twice .line 6",
        ),
        ("m.yaml", "name: m\nprincipals: {User:a: User:b, User:a: User:c}\n", "'User:a' stands twice"),
        ("m.json", '{"name": "m", "source": "a", "target": "b", "name": "n"}', "'name' stands twice"),
    ],
)
def test_a_key_that_stands_twice_in_a_mirror_is_named(tmp_path: Path, name: str, text: str, says: str) -> None:
    """The last one counted: a mirror without half of its topics."""
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=f"{name}' can't be read as YAML or JSON: the key {says}"):
        Mirror.from_file(tmp_path / name)


def test_merged_keys_may_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(
        "<<: {name: m, source: a, target: b}\n<<: {topics: [x]}\nname: n\n"
        "principals: {<<: {User:a: User:b}, User:a: User:c}\n"
    )
    mirror = Mirror.from_file(file)
    assert (mirror.name, mirror.source, mirror.topics, mirror.principals) == ("n", "a", ("x",), {"User:a": "User:c"})
