"""`wtb --help` is quick and shows commands in groups, and each command shows an example."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import typer.main
from rich.text import Text

from tests.support.prose import sentence
from wtb.cli.commands import ADMIN_GROUPS, ENTRIES, GROUPS, summary
from wtb.cli.main import app

if TYPE_CHECKING:
    from tests.support.project import Project

HEAVY = {"alembic", "celery", "jsonschema", "numpy", "orjson", "psutil", "psycopg", "pydantic", "sqlalchemy", "yaml"}


def commands(group: object, *names: str) -> list[tuple[str, ...]]:
    """The names of all commands, those of groups included."""
    inner = getattr(group, "commands", None)
    if inner is None:
        return [names]
    return [words for name, command in inner.items() for words in commands(command, *names, name)]


COMMANDS = commands(typer.main.get_command(app))


def test_every_command_that_is_documented_is_there() -> None:
    documented = "init plan run resume retry status list matrix score show files history log diff delete doctor"
    documented += " workflow admin"
    assert {names[0] for names in COMMANDS} >= set(documented.split())
    administered = {names[1] for names in COMMANDS if names[0] == "admin"}
    assert administered >= {"db", "session", "gc", "pin", "unpin"}


def groups_of(text: str) -> dict[str, list[tuple[str, str]]]:
    """The rows of a help by heading: the commands of a row and its text."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for line in text.splitlines():
        if heading := re.match("╭─ (.+?) ─", line):
            rows = groups.setdefault(heading[1], [])
        elif row := re.match("│ (.+?)  +(.+?) +│$", line):
            rows.append((row[1], row[2]))
    del groups["Options"]
    return groups


def test_help_fits_in_60_lines_and_lists_all_commands_in_groups(project: Project) -> None:
    text = project.text("--help", env={"COLUMNS": "80"})
    assert len(text.splitlines()) <= 60
    assert max(map(len, text.splitlines())) <= 80
    groups = groups_of(text)
    assert list(groups) == list(GROUPS)
    names = {heading: ", ".join(commands for commands, _ in rows) for heading, rows in groups.items()}
    assert {heading.partition(":")[0]: row for heading, row in names.items()} == {
        "Write": "init, workflow, cases, try, plan, pilot",
        "Run": "run, start, execution, submit, resume, retry, extend, schedule",
        "Steer": "pause, breakpoint, cancel, delete, combination, approvals, answer, answer-all, checkpoint, rollback, "
        "fork",
        "Look": "list, status, watch, show, log, history, tree, diff, files, series, costs",
        "Compare": "matrix, report, score, label, judge, comment, compare, pool, baseline, regress",
        "Host": "doctor, up, down, worker, scheduler, serve, mcp, admin",
    }
    listed = {name for row in names.values() for name in row.split(", ")}
    assert listed == {name for group in GROUPS.values() for name in group}
    # The text of a row that needs two lines would have no full stop at the end of the first.
    assert [text for rows in groups.values() for _, text in rows if not text.endswith(".")] == []


def test_the_help_of_admin_lists_its_commands_in_groups_with_their_summaries(project: Project) -> None:
    text = project.text("admin", "--help", env={"COLUMNS": "80"})
    assert groups_of(text) == {
        heading: [(name, summary(f"admin {name}")) for name in group] for heading, group in ADMIN_GROUPS.items()
    }


ADMINISTERED = [name for group in ADMIN_GROUPS.values() for name in group]


@pytest.mark.parametrize("name", ADMINISTERED)
def test_a_spelling_without_admin_names_the_command_with_it(empty_project: Project, name: str) -> None:
    refused = empty_project.inside(name, check=2)
    assert refused.stderr == f"error: {sentence('`wtb {}` is now `wtb {}`', name, f'admin {name}')}\n"
    refused = empty_project.inside(name, "--name", "two words", check=2)
    assert f"run `wtb admin {name} --name 'two words'`" in refused.stderr
    assert not empty_project.file.exists()


def test_admin_alone_shows_its_help(empty_project: Project) -> None:
    assert "Usage:" in empty_project.inside("admin", check=2).stdout


@pytest.mark.parametrize("name", ["tokn", "run"])
def test_admin_has_commands_of_its_own_only(empty_project: Project, name: str) -> None:
    assert "No such command" in empty_project.refusal("admin", name)


def test_no_command_is_in_two_groups() -> None:
    names = [name for groups in (GROUPS, ADMIN_GROUPS) for group in groups.values() for name in group]
    assert len(names) == len(set(names))


def test_a_row_of_help_has_commands_of_its_group() -> None:
    for group in GROUPS.values():
        assert [name for name, command in group.items() if command.beside and group[command.beside].beside] == []


def test_the_list_of_commands_is_that_of_their_modules() -> None:
    root: Any = typer.main.get_command(app)
    for words in ENTRIES:
        command = root
        for word in words.split():
            command = command.commands[word]
        assert command.help.partition("\n\n")[0] == summary(words)


def test_an_option_is_described_in_at_most_twelve_words() -> None:
    commands: list[Any] = [typer.main.get_command(app)]
    long = []
    for command in commands:
        commands += getattr(command, "commands", {}).values()
        helps = (getattr(option, "help", None) or "" for option in command.params)
        long += [help for help in helps if len(re.sub(r"\\\[default.*?\]", "", help).split()) > 12]
    assert not long


def test_no_help_loses_words_in_brackets() -> None:
    """Rich takes words in brackets for a style, unless a backslash is before them."""
    commands: list[Any] = [typer.main.get_command(app)]
    lost = []
    for command in commands:
        commands += getattr(command, "commands", {}).values()
        texts = [command.help, command.epilog, *(getattr(option, "help", "") for option in command.params)]
        expected = [re.sub(r"\[/?bold\]", "", text or "").replace("\\[", "[") for text in texts]
        lost += [
            text for text, plain in zip(texts, expected, strict=True) if Text.from_markup(text or "").plain != plain
        ]
    assert not lost
    assert len(commands) > 100


# The modules that each command adds, in one process that runs all of them.
IMPORTED = {
    **{words: [] for words in ((), ("--help",), ("--version",), ("rnu",), ("admin", "--help"), ("gc",))},
    ("list", "--help"): ["wtb.cli.results.overview"],
    ("admin", "gc", "--help"): ["wtb.cli.admin.gc"],
}


def test_only_the_module_of_the_command_that_is_used_is_imported() -> None:
    code = (
        "import sys\n"
        "from wtb.cli.main import main\n"
        f"for words in {list(IMPORTED)!r}:\n"
        "    sys.argv = ['wtb', *words]\n"
        "    try: main()\n"
        "    except SystemExit: pass\n"
        "    names = [name for name in sys.modules if name.count('.') > 2 and name.startswith('wtb.cli.')]\n"
        "    print('\\nLOADED', *names)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("LOADED")]
    before = [[], *loaded[:-1]]
    added = [[name for name in after if name not in earlier] for earlier, after in zip(before, loaded, strict=True)]
    assert dict(zip(IMPORTED, added, strict=True)) == IMPORTED


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
    text, _, loaded = done.stdout.partition("\nLOADED")
    assert "Usage:" in text
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
        "for words in ENTRIES:\n"
        "    command = root\n"
        "    for word in words.split(): command = command.commands[word]\n"
        "    assert command.help\n"
        "print(*sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded & HEAVY <= {"pydantic", "orjson"}  # Typer imports pydantic for any option


def test_each_command_explains_itself_with_an_example(project: Project) -> None:
    root: Any = typer.main.get_command(app)
    without = []
    for names in COMMANDS:
        command = root
        for word in names:
            command = command.commands[word]
        if not re.search(rf"Examples?: wtb {' '.join(names)}\b", " ".join((command.epilog or "").split())):
            without.append(names)
    assert without == []
    assert "Example: wtb admin user list" in project.text("admin", "user", "list", "--help")
    assert not project.file.exists()


def test_without_a_command_help_is_shown(project: Project) -> None:
    outcome = project.inside()
    assert "Usage:" in outcome.stdout + outcome.stderr
    assert "wtb init" in outcome.stdout + outcome.stderr


def test_a_command_that_is_not_there_is_refused(project: Project) -> None:
    done = project.inside("rnu", check=2)
    assert done.stdout == ""
    assert "rnu" in done.output


def test_the_version_is_shown(project: Project) -> None:
    assert re.fullmatch(r"wtb \d+\.\d+\.\d+\n", project.text("--version"))


@pytest.mark.parametrize(
    ("command", "ours"), [("eval", "run"), ("evaluate", "run"), ("view", "serve --open"), ("share", "report")]
)
def test_commands_of_other_tools_are_answered_with_ours(empty_project: Project, command: str, ours: str) -> None:
    message = " ".join(empty_project.refusal(command).replace("│", " ").split())
    assert sentence("No such command '{}'; use `wtb {}`", command, ours) in message
    assert "serve" not in ours or "--open" in empty_project.text("serve", "--help")


def test_shells_complete_commands_by_their_names() -> None:
    root: Any = typer.main.get_command(app)
    context = root.make_context("wtb", [], resilient_parsing=True)
    assert [completion.value for completion in root.shell_complete(context, "p")] == ["plan", "pilot", "pause", "pool"]
    assert root.resolve_command(context, ["token"]) == (None, None, [])
    _, admin, _ = root.resolve_command(context, ["admin"])
    context = admin.make_context("admin", [], parent=context, resilient_parsing=True)
    assert [completion.value for completion in admin.shell_complete(context, "un")] == ["unpin"]


@pytest.mark.parametrize(
    ("typed", "removed", "replacements"),
    [
        ("plan sweep.yaml --pilot 3", "plan --pilot", ["pilot"]),
        ("start flow:wf --create-only", "start --create-only", ["execution create"]),
        ("cancel nightly --combination answer=terse", "cancel --combination", ["combination stop"]),
        ("break nightly --add answer", "break", ["breakpoint list", "breakpoint set"]),
        ("break --help", "break", ["breakpoint list", "breakpoint set"]),
        ("answer --all approve", "answer --all", ["answer-all"]),
        ("score nightly --status 1ng62xyrfv95", "score --status", ["admin scoring show"]),
        ("score nightly --cancel=1ng62xyrfv95", "score --cancel", ["admin scoring cancel"]),
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
    message = empty_project.refusal(*typed.split())
    assert "No such" in message
    assert "is now" not in message


def test_a_report_of_no_form_names_the_forms(shared_project: Project) -> None:
    message = " ".join(shared_project.refusal("report", "nothing", "-o", "out.pdf").split())
    assert (
        "out.pdf: there is no report in the form '.pdf'; expected one of .html, .htm, .md, .csv, .json, .xml" in message
    )
