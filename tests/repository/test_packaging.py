"""An installation has three packages and nothing that could collide with a user's own modules.

All of it builds and installs, so that it is `make package`, which CI runs before `make test`.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from scripts.schemas import json_schemas
from tests.support.project import run_program
from wtb import __version__

pytestmark = pytest.mark.slow  # `make package` runs all of it

ROOT = Path(__file__).parents[2]
PLACE = "path/to/wtb"  # what the pages call a checkout


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist of a release, made as CONTRIBUTING.md says."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def wheel(release: tuple[Path, Path]) -> Path:
    return release[0]


def files_of(wheel: Path) -> dict[str, int]:
    """Return the names of the files in a wheel, with the checksums of their contents."""
    with zipfile.ZipFile(wheel) as archive:
        return {member.filename: member.CRC for member in archive.infolist()}


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    return list(files_of(wheel))


def test_the_installed_packages_are_three(names: list[str]) -> None:
    packages = {name.partition("/")[0] for name in names}
    assert {name for name in packages if not name.endswith(".dist-info")} == {"wtb", "wtb_workers", "wtb_scheduler"}


def test_migrations_and_templates_come_along(names: list[str]) -> None:
    assert {
        f"wtb/store/migrations/versions/2000_{name}" for name in ("initial.py", "sqlite.sql", "postgresql.sql")
    } <= {*names}
    assert "wtb/cli/templates/init/sweep.yaml" in names
    pages = ROOT / "wtb" / "display" / "report" / "templates"
    assert {path.relative_to(ROOT).as_posix() for path in pages.iterdir()} <= set(names)
    assert "wtb/py.typed" in names


def test_the_schemas_of_all_documents_come_along(release: tuple[Path, Path]) -> None:
    wheel, sdist = release
    expected = {name: json_schemas.file_text(schema) for name, schema in json_schemas.all_schemas().items()}
    with zipfile.ZipFile(wheel) as archive:
        files = {Path(name): archive.read(name).decode() for name in archive.namelist()}
    assert {path.stem: text for path, text in files.items() if path.parent == Path("wtb/schemas")} == expected
    with tarfile.open(sdist) as archive:
        names = {Path(*Path(name).parts[1:]) for name in archive.getnames()}
    assert {path.stem for path in names if path.parent == Path("wtb/schemas")} == expected.keys()


def test_the_documentation_comes_along_for_the_pages(names: list[str]) -> None:
    manual = {f"wtb/docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert {name for name in names if name.startswith("wtb/docs/")} == manual


def test_jobs_install_what_the_wheel_is_called(wheel: Path) -> None:
    patterns = []
    for name in ("github-actions.yaml", "gitlab-ci.yml"):
        text = (ROOT / "examples" / "ci" / name).read_text("utf-8")
        lines = re.findall(r"(?m)pip install (.+)$", text)
        assert lines
        patterns += [word for line in lines for word in line.split() if "/" in word]
        assert len(patterns) >= len(lines)
    assert all(wheel.match(Path(pattern).name) and pattern.startswith("./wheels/") for pattern in patterns), patterns


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a new virtual environment without WTB, but with its dependencies."""
    place = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    paths = {"base": str(place), "platbase": str(place)}
    needed = [name for name in sys.path if name.endswith("site-packages")]
    (Path(sysconfig.get_path("purelib", vars=paths)) / "needed.pth").write_text("\n".join(needed), "utf-8")
    inherited = {key: setting for key, setting in os.environ.items() if not key.startswith(("WTB_", "PYTHON", "PIP_"))}
    pip = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return {**inherited, **pip, "PATH": f"{place / 'bin'}:{inherited['PATH']}"}


def test_one_line_of_the_readme_installs_it_into_a_project(
    wheel: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """Given the wheel in the place of the checkout, which it was made of."""
    section = (ROOT / "README.md").read_text("utf-8").partition("## Into your own project")[2].partition("\n## ")[0]
    (line,) = re.findall(r"(?m)^\$ (pip install .+)$", section)
    assert PLACE in line

    def run(command: list[str]) -> str:
        return run_program(command, cwd=tmp_path, env=environment, code=0).stdout

    run(shlex.split(line.replace(PLACE, str(wheel))))
    where = run(["python", "-c", "import wtb; print(wtb.__file__)"])
    assert where.startswith(str(tmp_path / "venv"))
    run(["wtb", "init", "."])
    assert "Cells: 45 of 45 succeeded" in run(["wtb", "run", "sweep.yaml", "--limit", "5", "--quiet"])


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that `git archive` would have after a commit of all changes, without those that a build wrote."""
    folder = tmp_path_factory.mktemp("export")
    env = {**os.environ, "GIT_INDEX_FILE": str(folder / "index")}

    def git(*arguments: str) -> bytes:
        return subprocess.run(["git", *arguments], cwd=ROOT, env=env, check=True, capture_output=True).stdout

    git("read-tree", "HEAD")
    git("add", "--all")
    with tarfile.open(fileobj=io.BytesIO(git("archive", git("write-tree").decode().strip()))) as archive:
        archive.extractall(folder / "wtb", filter="data")
    assert not (folder / "wtb" / "wtb" / "schemas").exists()
    return folder / "wtb"


@pytest.mark.parametrize("made_from", ["the sdist", "a checkout", "an export"])
def test_what_is_installed_is_the_wheel_of_the_release(
    release: tuple[Path, Path], export: Path, made_from: str, tmp_path: Path
) -> None:
    """Build as pip does, with only the build requirements of pyproject.toml."""
    wheel, sdist = release
    source = {"the sdist": sdist, "a checkout": ROOT, "an export": export}[made_from]
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = tmp_path.glob("*.whl")
    assert files_of(built) == files_of(wheel)


def test_an_editable_install_has_the_schemas(export: Path, tmp_path: Path) -> None:
    """Build in an empty environment, without WTB's own dependencies."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--editable", str(export)]
    subprocess.run(install, check=True, capture_output=True)
    code = "from importlib.resources import files; print(*(path.name for path in (files('wtb') / 'schemas').iterdir()))"
    names = subprocess.run([python, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert {Path(name).stem for name in names.split()} == json_schemas.all_schemas().keys()


class Installed:
    """A new environment with only the wheel of the release and its dependencies."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        inherited = {key: setting for key, setting in os.environ.items() if not key.startswith(("WTB_", "PYTHON"))}
        self.env = {**inherited, "PATH": f"{folder / 'venv' / 'bin'}:{inherited['PATH']}"}
        self.run("pip", "install", "--quiet", "--no-compile", str(wheel))

    def run(self, *command: str, code: int = 0) -> str:
        """Run a command in the folder and return its output."""
        done = run_program(command, cwd=self.folder, env=self.env, code=code)
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(wheel, tmp_path_factory.mktemp("installed"))


def test_a_release_runs_a_sweep_in_an_empty_environment(installed: Installed) -> None:
    where = installed.run("python", "-c", "import wtb, wtb_workers, wtb_scheduler; print(wtb.__file__)")
    assert where.startswith(str(installed.folder / "venv"))
    assert installed.run("wtb", "--version") == f"wtb {__version__}\n"
    installed.run("wtb", "init", ".")
    assert "Cells: 9 of 9 succeeded" in installed.run("wtb", "run", "sweep.yaml", "--case", "m01", "--quiet")
    installed.run("wtb", "report", "triage", "--output", "report.html")
    assert (installed.folder / "report.html").read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("command", "extra"),
    [("worker", "workers"), ("scheduler", "workers"), ("up", "stack"), ("admin flower", "stack")],
)
def test_a_command_without_its_extra_names_it_in_one_line(installed: Installed, command: str, extra: str) -> None:
    message = installed.run("wtb", *command.split(), code=2)
    assert message.startswith("error: ")
    assert f'pip install "workflow-test-bench[{extra}]"' in message
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("from wtb.integrations.langgraph import Saver", "langgraph"),
        ("import wtb; wtb.SweepHandle.to_pandas(None)", "pandas"),
    ],
)
def test_what_python_misses_is_named(installed: Installed, code: str, extra: str) -> None:
    last = installed.run("python", "-c", code, code=1).splitlines()[-1]
    assert last.startswith("wtb.core.errors.InputError: ")
    assert f'pip install "workflow-test-bench[{extra}]"' in last
