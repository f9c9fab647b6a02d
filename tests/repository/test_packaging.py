"""What an installation brings: three packages and nothing that could collide with a user's own; and how it is made.

All of it builds and installs, so that it is `make package`, which CI runs before `make test`.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from scripts.schemas import json_schemas
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
    """The names of the files in a wheel, with the checksums of what is in them."""
    with zipfile.ZipFile(wheel) as archive:
        return {one.filename: one.CRC for one in archive.infolist()}


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    return list(files_of(wheel))


def test_the_installed_packages_are_three(names: list[str]) -> None:
    found = {name.partition("/")[0] for name in names}
    assert {name for name in found if not name.endswith(".dist-info")} == {"wtb", "wtb_workers", "wtb_scheduler"}


def test_migrations_and_templates_come_along(names: list[str]) -> None:
    assert "wtb/store/migrations/versions/2000_initial.py" in names
    assert "wtb/cli/templates/init/sweep.yaml" in names
    pages = ROOT / "wtb" / "display" / "report" / "html" / "templates"
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
    found = []
    for name in ("github-actions.yaml", "gitlab-ci.yml"):
        text = (ROOT / "examples" / "ci" / name).read_text("utf-8")
        lines = re.findall(r"(?m)pip install (.+)$", text)
        assert lines
        found += [word for line in lines for word in line.split() if "/" in word]
        assert len(found) >= len(lines)
    assert all(wheel.match(Path(pattern).name) and pattern.startswith("./wheels/") for pattern in found), found


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `git archive` has once all that is changed here is committed: no file that a build wrote."""
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
    """As pip does it, with nothing at hand but what pyproject.toml says that a build needs."""
    wheel, sdist = release
    source = {"the sdist": sdist, "a checkout": ROOT, "an export": export}[made_from]
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    (made,) = tmp_path.glob("*.whl")
    assert files_of(made) == files_of(wheel)


def test_an_editable_install_has_the_schemas(export: Path, tmp_path: Path) -> None:
    """In an environment with nothing else: not even what WTB needs when it runs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python]
    install = [*pip, "install", "--quiet", "--no-deps", "--editable", str(export)]
    subprocess.run(install, check=True, capture_output=True)
    code = "from importlib.resources import files; print(*(path.name for path in (files('wtb') / 'schemas').iterdir()))"
    names = subprocess.run([python, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert {Path(name).stem for name in names.split()} == json_schemas.all_schemas().keys()


class Installed:
    """A new environment with nothing but the wheel of the release, and what that asks for."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("WTB_", "PYTHON"))}
        self.env = {**kept, "PATH": f"{folder / 'venv' / 'bin'}:{kept['PATH']}", "PIP_NO_COMPILE": "1"}
        self.run(*shlex.split(readme_line().replace(PLACE, str(wheel))))

    def run(self, *command: str, code: int = 0) -> str:
        """Run a command in the folder. Returns what it printed."""
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


def readme_line() -> str:
    """The line of the README that installs a checkout into a project."""
    section = (ROOT / "README.md").read_text("utf-8").partition("## Into your own project")[2].partition("\n## ")[0]
    (line,) = re.findall(r"(?m)^\$ (pip install .+)$", section)
    assert PLACE in line
    return str(line)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Installed by the line of the README, with the wheel in the place of the checkout that it was made of."""
    return Installed(wheel, tmp_path_factory.mktemp("installed"))


def test_the_line_of_the_readme_installs_a_release_that_runs_a_sweep(installed: Installed) -> None:
    where = installed.run("python", "-c", "import wtb, wtb_workers, wtb_scheduler; print(wtb.__file__)")
    assert where.startswith(str(installed.folder / "venv"))
    assert installed.run("wtb", "--version") == f"wtb {__version__}\n"
    installed.run("wtb", "init", ".")
    assert "Cells: 9 of 9 succeeded" in installed.run("wtb", "run", "sweep.yaml", "--case", "m01", "--quiet")
    installed.run("wtb", "report", "triage", "--output", "report.html")
    assert (installed.folder / "report.html").read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("command", "extra"), [("worker", "workers"), ("scheduler", "workers"), ("up", "stack"), ("flower", "stack")]
)
def test_a_command_without_its_extra_names_it_in_one_line(installed: Installed, command: str, extra: str) -> None:
    said = installed.run("wtb", command, code=2)
    assert said.startswith("error: ")
    assert f'pip install "workflow-test-bench[{extra}]"' in said
    assert said.count("\n") == 1


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
