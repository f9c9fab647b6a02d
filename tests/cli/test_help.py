"""`wtb --help` is quick and shows commands in groups, and each command shows an example."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import typer.main

from tests.support.prose import sentence
from wtb.cli.commands import GROUPS, summary
from wtb.cli.main import app

if TYPE_CHECKING:
    from tests.support.project import Project

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


def test_help_shows_the_commands_in_groups_and_each_on_one_line(project: Project) -> None:
    shown = project.inside("--help", env={"COLUMNS": "80"}, check=0).stdout
    assert max(map(len, shown.splitlines())) <= 80
    found: dict[str, list[str]] = {}
    for line in shown.splitlines():
        if heading := re.match("╭─ (.+?) ─", line):
            lines = found.setdefault(heading[1], [])
        elif entry := re.match("│ (.+?) +│$", line):
            lines.append(entry[1])
    del found["Options"]
    names = {heading: [line.partition(" ")[0] for line in lines] for heading, lines in found.items()}
    assert {heading.partition(":")[0]: " ".join(group) for heading, group in names.items()} == {
        "Write": "init workflow cases try plan pilot",
        "Run": "run start execution submit resume retry extend schedule",
        "Steer": "pause cancel combination breakpoint approvals answer answer-all checkpoint rollback fork",
        "Look": "list status watch show log history tree diff files series telemetry costs",
        "Compare": "matrix report score scoring label comment judge compare pool baseline regress",
        "Keep": "pin unpin gc delete erase export import copy backup restore",
        "Host": "doctor db project session budget policy token user team access audit "
        "up down worker scheduler serve mcp flower",
    }
    assert list(names) == list(GROUPS)
    assert all(line.endswith(".") for lines in found.values() for line in lines)


def test_no_command_is_in_two_groups() -> None:
    names = [name for group in GROUPS.values() for name in group]
    assert len(names) == len(set(names))


def test_the_list_of_commands_is_that_of_their_modules() -> None:
    root = typer.main.get_command(app)
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        assert command.help.partition("\n\n")[0] == summary(name)


@pytest.mark.parametrize("words", [(), ("--help",), ("--version",), ("list", "--help"), ("rnu",)], ids=" ".join)
def test_only_the_module_of_the_command_that_is_used_is_imported(words: tuple[str, ...]) -> None:
    code = (
        "import sys\n"
        f"sys.argv = ['wtb', *{words!r}]\n"
        "from wtb.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('\\nLOADED', *(name for name in sys.modules if name.count('.') > 2 and name.startswith('wtb.cli.')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = done.stdout.partition("\nLOADED")[2].split()
    assert loaded == (["wtb.cli.inspect.overview"] if words == ("list", "--help") else [])


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


def test_the_help_of_a_command_imports_nothing_that_only_running_it_needs() -> None:
    code = (
        "import sys\n"
        "import typer.main\n"
        "from wtb.cli.commands import ENTRIES\n"
        "from wtb.cli.main import app\n"
        "root = typer.main.get_command(app)\n"
        "for name in ENTRIES: assert root.commands[name].help\n"
        "print(*sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded & HEAVY <= {"pydantic", "orjson"}  # Typer imports pydantic for any option


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


@pytest.mark.parametrize(
    ("command", "ours"), [("eval", "run"), ("evaluate", "run"), ("view", "serve --open"), ("share", "report")]
)
def test_commands_of_other_tools_are_answered_with_ours(empty_project: Project, command: str, ours: str) -> None:
    said = " ".join(empty_project.inside(command, check=2).said.replace("│", " ").split())
    assert sentence("No such command '{}'; use `wtb {}`", command, ours) in said
    assert "serve" not in ours or "--open" in empty_project.inside("serve", "--help", check=0).stdout


@pytest.mark.parametrize(
    ("typed", "removed", "replacements"),
    [
        ("plan sweep.yaml --pilot 3", "plan --pilot", ["pilot"]),
        ("start flow:wf --create-only", "start --create-only", ["execution create"]),
        ("cancel nightly --combination answer=terse", "cancel --combination", ["combination stop"]),
        ("break nightly --add answer", "break", ["breakpoint list", "breakpoint set"]),
        ("break --help", "break", ["breakpoint list", "breakpoint set"]),
        ("answer --all approve", "answer --all", ["answer-all"]),
        ("score nightly --status 1ng62xyrfv95", "score --status", ["scoring show"]),
        ("score nightly --cancel=1ng62xyrfv95", "score --cancel", ["scoring cancel"]),
        ("label nightly --rater ana", "label", ["label draw", "label answer"]),
        ("label nightly --import labels.csv", "label --import", ["label import"]),
        ("label --export labels.csv nightly", "label --export", ["label export"]),
        ("comment nightly c1 text", "comment", ["comment add", "comment list"]),
        ("comment nightly --delete 3", "comment --delete", ["comment delete"]),
        ("baseline set main nightly --repeat 2", "baseline set --repeat", ["baseline repeat"]),
    ],
)
def test_a_removed_spelling_names_the_new_command(
    empty_project: Project, typed: str, removed: str, replacements: list[str]
) -> None:
    refused = empty_project.inside(*typed.split(), check=2)
    commands = " or ".join(f"`wtb {command}`" for command in replacements)
    assert refused.stderr == f"error: {sentence('`wtb {}` is now {}', removed, commands)}\n"
    assert not empty_project.file.exists()


@pytest.mark.parametrize("typed", ["label expport", "comment ad nightly", "baseline st", "score nightly --stattus"])
def test_a_typo_is_no_removed_spelling(empty_project: Project, typed: str) -> None:
    said = empty_project.inside(*typed.split(), check=2).said
    assert "No such" in said
    assert "is now" not in said


def test_a_report_of_no_form_names_the_forms(shared_project: Project) -> None:
    said = " ".join(shared_project.inside("report", "nothing", "-o", "out.pdf", check=2).said.split())
    assert "out.pdf: there is no report in the form '.pdf'; expected one of .html, .htm, .md, .csv, .json, .xml" in said
