"""WTB is installed under its own name, because `wtb` is another project on the package index."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.prose import sentence
from wtb.config.distribution import NAME, OTHER_NAME
from wtb.hosting.diagnostics import examine

ROOT = Path(__file__).parents[2]

# A requirement called `wtb`, as it is given to pip, pipx or uv, or stands in a list of requirements.
INSTALLS = re.compile(
    rf"""(?:pipx? \s+ install|uv \s+ (?:pip|tool) \s+ install|uv \s+ add|uvx|--with)  # what installs
    (?: \s+ (?!wtb\b) [^\s`;|&]+ )*  # options and other requirements
    \s+ ["']? {OTHER_NAME} (?= [\s`"'\[=<>~!,;.)] | $ )
    | (?<! [\w./\]-] ) {OTHER_NAME} \[ [a-z]""",
    re.VERBOSE,
)


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="what is tracked is known in a checkout only")
def test_the_taken_name_is_nowhere_installed() -> None:
    mentions = []
    for path in tracked():
        if path == Path(__file__) or not path.is_file():
            continue
        try:
            lines = path.read_text("utf-8").splitlines()
        except UnicodeDecodeError:  # a picture
            continue
        mentions += [
            f"{path.relative_to(ROOT)}:{n}: {line}" for n, line in enumerate(lines, 1) if INSTALLS.search(line)
        ]
    assert mentions == []


@pytest.mark.parametrize(
    "line",
    [
        "$ pip install wtb",
        '`pip install "wtb[stack]"`',
        "- pip install wtb pytest",
        "pip install --upgrade pytest wtb==0.3.1",
        "uv add wtb",
        "uv pip install wtb",
        sentence("{}wtb run sweep.yaml", "run: uvx "),
        "graphs (`wtb[langgraph]`)",
    ],
)
def test_what_would_install_it_is_found(line: str) -> None:
    assert INSTALLS.search(line)


@pytest.mark.parametrize(
    "line",
    [
        sentence("pip install {}", "path/to/wtb"),
        sentence('pip install "{}[{}]"', "path/to/wtb", "stack"),
        "pip install ./wheels/workflow_test_bench-*.whl",
        "pip install pytest; wtb run",
        "pip install xllamacpp && wtb run",
        'pip install "workflow-test-bench[stack]"',
    ],
)
def test_what_installs_something_else_is_not(line: str) -> None:
    assert not INSTALLS.search(line)


def test_the_name_is_that_of_the_project() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["name"] == NAME


def installed(folder: Path, name: str, version: str) -> None:
    about = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", "utf-8")


def test_doctor_warns_where_another_distribution_owns_the_package_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    installed(tmp_path, NAME, "0.1.0")
    url = f"sqlite:///{tmp_path}/wtb.db"
    assert "installed" not in {row["name"] for row in examine(url)["checks"]}
    installed(tmp_path, OTHER_NAME, "0.3.1")
    (check,) = (row for row in examine(url)["checks"] if row["name"] == "installed")
    assert check["status"] == "problem"
    assert sentence("{} {}, which is another project", "wtb", "0.3.1") in check["found"]
    assert check["fix"] == sentence("pip uninstall {} {}; then install WTB again", OTHER_NAME, NAME)
