"""`wtb --help` is quick, and each command shows an example."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import typer.main

from wtb.cli.main import app

if TYPE_CHECKING:
    from tests.acceptance.conftest import Project

HEAVY = {"alembic", "celery", "jsonschema", "numpy", "orjson", "psutil", "psycopg", "pydantic", "sqlalchemy", "yaml"}


def commands(group: object, *names: str) -> list[tuple[str, ...]]:
    """The names of all commands, those of groups included."""
    inner = getattr(group, "commands", None)
    if inner is None:
        return [names]
    return [found for name, command in inner.items() for found in commands(command, *names, name)]


COMMANDS = commands(typer.main.get_command(app))


def test_every_command_that_is_documented_is_there() -> None:
    documented = "init plan run resume retry status list matrix score show files history log diff delete doctor"
    documented += " workflow db session gc pin unpin"
    assert {names[0] for names in COMMANDS} >= set(documented.split())


def test_help_imports_nothing_heavy(project: Project) -> None:
    code = (
        "import runpy, sys\n"
        "sys.argv = ['wtb', '--help']\n"
        "try: runpy.run_module('wtb', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print('\\nLOADED', *sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project.folder, capture_output=True, text=True, timeout=60, check=True
    )
    shown, _, loaded = done.stdout.partition("\nLOADED")
    assert "Usage:" in shown
    assert "wtb.cli.main" in loaded.split()
    assert {name.partition(".")[0] for name in loaded.split()}.isdisjoint(HEAVY)
    assert "rich.progress" not in loaded.split()


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_each_command_explains_itself_with_an_example(project: Project, names: tuple[str, ...]) -> None:
    shown = project.inside(*names, "--help", check=0).stdout
    words = " ".join(re.sub("[│╭╮╰╯─]", " ", shown).split())
    assert re.search(rf"Examples?: wtb {' '.join(names)}\b", words), shown
    assert not project.file.exists()


def test_without_a_command_help_is_shown(project: Project) -> None:
    shown = project.inside()
    assert "Usage:" in shown.stdout + shown.stderr
    assert "wtb init" in shown.stdout + shown.stderr


def test_a_command_that_is_not_there_is_refused(project: Project) -> None:
    done = project.inside("rnu", check=2)
    assert done.stdout == ""
    assert "rnu" in done.said


def test_the_version_is_shown(project: Project) -> None:
    assert re.fullmatch(r"wtb \d+\.\d+\.\d+\n", project.inside("--version", check=0).stdout)
