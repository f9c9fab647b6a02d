"""CONTRIBUTING.md names existing targets, files and names, and the hooks download nothing."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.repository.test_architecture import names_in

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def test_every_target_named_is_in_the_makefile() -> None:
    named = set(re.findall(r"(?:`|\$ )make ([a-z-]+)", PAGE))
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8")))
    assert len(named) >= 7
    assert named - targets == set()


def test_every_path_in_its_commands_is_there() -> None:
    commands = re.findall(r"(?m)^ *\.venv/bin/python (.+)$", PAGE)
    words = {word for command in commands for word in shlex.split(command, comments=True)}
    modules = {f"{word.replace('.', '/')}.py" for word in words if word.startswith("tests.")}
    paths = modules | {word for word in words if word.startswith("tests/")}
    assert len(paths) >= 4
    for path, _, test in (path.partition("::") for path in paths):
        assert not test or test in names_in(ROOT / path)
        assert (ROOT / path).exists()


@pytest.mark.parametrize("name", ["NodeOptions", "Rules", "SweepSpec", "BUILT_IN", "GROUPS", "REVISION"])
def test_every_name_is_in_a_file_of_its_row(name: str) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith("|") and f"`{name}`" in line]
    files = re.findall(r"\]\(([^)#]+\.py)\)", row)
    assert any(name in names_in(ROOT / file) for file in files)


def test_the_hooks_are_commands_of_the_project_and_fetch_nothing() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    assert {repository["repo"] for repository in config["repos"]} == {"local"}
    assert {hook["language"] for hook in hooks} == {"system"}
    assert [hook["entry"].split()[:2] for hook in hooks] == [
        [".venv/bin/ruff", "check"],
        [".venv/bin/ruff", "format"],
        [".venv/bin/python", "scripts/commit_subject.py"],
    ]


def test_the_version_is_where_releases_change_it() -> None:
    assert "__version__" in names_in(ROOT / "wtb/core/version.py")
    assert 'path = "wtb/core/version.py"' in (ROOT / "pyproject.toml").read_text("utf-8")
