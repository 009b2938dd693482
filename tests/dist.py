"""What is built is what works: ``python -m tests.dist`` builds wheel and sdist, checks them and tries the wheel.

Both are built twice, and must be the same bytes: whoever has the commit can see that what was published comes from it.

The wheel goes into an empty environment, beside nothing but Airflow and its Kafka and Spark providers. There the package
must be consistent with what is installed, Airflow must list it as a provider, and unit and provider tests must pass:
they run in a copy of the repository that has everything but the package.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PROVIDERS = ("apache-airflow", "apache-airflow-providers-apache-kafka", "apache-airflow-providers-apache-spark")
# What the tests need and users don't.
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "jsonschema", "psutil", "statsd")
# They read the package's files as the repository has them.
OF_THE_REPOSITORY = ("tests/unit/test_docs.py", "tests/unit/test_mutants.py")
WANTED = (
    "py.typed", "common/page.html.jinja", "compat/keys.toml", "compat/librdkafka.toml",
    "cutover/report.html.jinja", "extras/readiness/night.html.jinja", "extras/drill/drill.html.jinja",
    "page/page.js", "page/parts.js", "page/drawings.js", "page/icon.svg", "page/icon_dark.svg",
    "jobs/runner/log4j2.properties", "example_dags/kafka_migration.py",
    "wire/_heart.abi3.so",  # a build without a compiler succeeds, and its wheel would say nothing of it
)  # fmt: skip


def run(*command: str | Path, cwd: Path = ROOT, **more: str) -> str:
    """Run a command, show it, and return what it printed; a failure ends the whole check. :param more: environment."""
    print("$", *command, flush=True)
    words, environment = [str(c) for c in command], os.environ | more
    done = subprocess.run(words, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout}\n{command[0]} ended with status {done.returncode}")
    return done.stdout


def leveled(sdist: Path, epoch: int) -> None:
    """Write an sdist anew with the time of the commit, no owner, and names in order; setuptools takes the machine's."""
    with tarfile.open(sdist) as there:
        members = [(one, there.extractfile(one)) for one in sorted(there.getmembers(), key=lambda one: one.name)]
        whole = io.BytesIO()
        with tarfile.open(fileobj=whole, mode="w", format=tarfile.PAX_FORMAT) as anew:
            for one, content in members:
                one.mtime, one.uid, one.gid, one.uname, one.gname, one.pax_headers = epoch, 0, 0, "", "", {}
                one.mode = 0o755 if one.mode & 0o100 else 0o644
                anew.addfile(one, content)
    sdist.write_bytes(gzip.compress(whole.getvalue(), mtime=epoch))


def build_into(folder: Path, epoch: int) -> list[Path]:
    """Build both into an empty folder, as they were at the time of the commit: whoever builds it gets the same bytes."""
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, SOURCE_DATE_EPOCH=str(epoch))
    (sdist,) = folder.glob("*.tar.gz")
    leveled(sdist, epoch)
    return sorted(folder.iterdir())


def require_tagged() -> None:
    """Return unless the commit has a tag of another version than the package: what is published has one name.

    The version stands in the package, not in tags alone: executors compare it, and a clone without tags has it, too.
    """
    tags = run("git", "tag", "--points-at", "HEAD", "v*").split()
    version = run(sys.executable, "-c", "import airflow_mirror; print(airflow_mirror.__version__)").strip()
    if tags and f"v{version}" not in tags:
        raise SystemExit(f"the commit is tagged {', '.join(tags)}, and the package says {version}: correct one of them")


def build() -> Path:
    """Build both twice, check that they are the same, their metadata and contents, and return the wheel."""
    require_tagged()
    epoch = int(run("git", "log", "-1", "--format=%ct"))
    built = build_into(DIST, epoch)
    with tempfile.TemporaryDirectory(prefix="airflow-mirror-again-") as again:
        for one, other in zip(built, build_into(Path(again) / "dist", epoch), strict=True):
            if one.read_bytes() != other.read_bytes():
                raise SystemExit(f"{one.name}: two builds of one commit differ")
    run(sys.executable, "-m", "twine", "check", "--strict", *built)
    (wheel,) = (path for path in built if path.suffix == ".whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    missing = [name for name in WANTED if f"airflow_mirror/{name}" not in names]
    foreign = sorted({name.split("/")[0] for name in names if not name.startswith("airflow_mirror")})
    if missing or len(foreign) > 0:
        raise SystemExit(f"{wheel.name}: lacks {missing}, has {foreign} beside the package")
    for path in built:
        print(f"{path.name}: {path.stat().st_size:,} bytes")
    return wheel


def install(wheel: Path, home: Path) -> Path:
    """Install the wheel beside Airflow and its two providers; return the environment's Python."""
    venv.create(home / "env", with_pip=True)
    python = home / "env" / "bin" / "python"
    pip = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", ROOT / "constraints.txt")
    run(*pip, *PROVIDERS)
    run(*pip, f"{wheel}[airflow,spark,java,msk,gcp]")
    print(run(python, "-m", "pip", "check"), end="")
    listed = run(python.with_name("airflow"), "providers", "list", "--output", "plain")
    if "airflow-mirror" not in listed:
        raise SystemExit(f"Airflow does not list the provider:\n{listed}")
    print(next(line for line in listed.splitlines() if "airflow-mirror" in line))
    run(*pip, *TOOLS)
    return python


def try_out(python: Path, home: Path) -> None:
    """Run the tests that need no cluster against the installed package."""
    copy = home / "repository"
    for name in run("git", "ls-files").splitlines():
        if not name.startswith("airflow_mirror/"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    where = run(python, "-c", "import airflow_mirror; print(airflow_mirror.__file__)", cwd=copy).strip()
    if not where.startswith(str(home / "env")):
        raise SystemExit(f"the tests would test {where}, not what was installed")
    left_out = [f"--ignore={file}" for file in OF_THE_REPOSITORY]
    pytest = (python, "-m", "pytest", "-q", "-n", "3", "--dist", "worksteal", "-m", "not faults")
    print(run(*pytest, "tests/unit", "tests/provider", *left_out, cwd=copy)[-2000:])


def main() -> int:
    """Run the command; see the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.dist", description=__doc__.splitlines()[0])
    parser.add_argument("--build-only", action="store_true", help="leave out the trial in an empty environment")
    arguments = parser.parse_args()
    wheel = build()
    if not arguments.build_only:
        with tempfile.TemporaryDirectory(prefix="airflow-mirror-dist-") as home:
            try_out(install(wheel, Path(home)), Path(home))
    return 0


if __name__ == "__main__":
    sys.exit(main())
