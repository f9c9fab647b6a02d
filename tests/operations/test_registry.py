"""The registry names every operation, and commands and the Python API have all of them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer.main

import wtb
from scripts.write_operations import TABLES, updated
from wtb.cli.commands import ENTRIES
from wtb.cli.main import app
from wtb.core.documents.access import NewTokenDocument
from wtb.operations.registry import (
    OPERATIONS,
    REMOVED_COMMANDS,
    Effect,
    Operation,
    Permission,
    id_of_command,
    id_of_spelling,
)

# Commands that host, read code or write files, and act on nothing that a database holds; and what a scheduler starts.
NO_OPERATIONS = {
    "init",
    "workflow",
    "doctor",
    "admin db",
    "up",
    "down",
    "worker",
    "scheduler",
    "serve",
    "mcp",
    "admin flower",
    "admin policy",
}
NO_OPERATIONS |= {"schedule fire"}


def commands(group: Any, *names: str) -> Iterator[tuple[str, Any]]:
    """Each command by its words, those in groups included."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *names, name)
        else:
            yield " ".join((*names, name)), command


COMMANDS = dict(commands(typer.main.get_command(app)))


@cache
def names_used(module: str) -> set[str]:
    """Return what a module refers to by name."""
    tree = ast.parse(inspect.getsource(import_module(module)))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_takes_a_context_and_typed_arguments_and_returns_a_typed_result(name: str) -> None:
    operation = OPERATIONS[name]
    assert "context" in inspect.signature(operation.function).parameters
    assert all(parameter.annotation is not parameter.empty for parameter in operation.arguments.values())
    assert operation.function.__doc__
    return_type = operation.result
    assert return_type is not Any
    if is_dataclass(return_type):
        assert return_type.__setattr__ is not object.__setattr__


def words_of(id: str) -> str:
    """Return the words of an operation's command, without the option or argument that selects it."""
    return " ".join(word for word in OPERATIONS[id].command.split() if word.islower() and not word.startswith("-"))


def test_an_id_is_a_resource_and_a_verb() -> None:
    assert [id for id in OPERATIONS if not re.fullmatch(r"[a-z]+\.[a-z]+(_[a-z]+)*", id)] == []


def test_a_command_names_its_operation() -> None:
    assert [id for id, operation in OPERATIONS.items() if id_of_command(operation.command) != id] == []
    assert id_of_command("nothing") is None


def test_a_removed_spelling_is_no_command_and_leads_to_an_operation_with_one() -> None:
    spellings = REMOVED_COMMANDS.keys()
    assert not spellings & {operation.command for operation in OPERATIONS.values()}
    assert [spelling for spelling in spellings if id_of_command(spelling) is not None] == []
    assert {id_of_spelling(spelling) for spelling in spellings} <= OPERATIONS.keys()
    assert id_of_spelling("pilot") == id_of_command("pilot")
    assert id_of_spelling("token create") == id_of_command("admin token create") == "tokens.create"


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_a_command(name: str) -> None:
    operation = OPERATIONS[name]
    words = words_of(name)
    help = COMMANDS[words].help
    if words == operation.command:  # not what an option or argument selects
        assert help.partition("\n\n")[0] == operation.summary
    (command,) = (command for name, command in ENTRIES.items() if f"{words} ".startswith(f"{name} "))
    assert operation.function.__name__ in names_used(f"wtb.{command.module}")


def test_every_command_is_an_operation_or_needs_none() -> None:
    needed = {name for name in COMMANDS if not any(f"{name} ".startswith(f"{words} ") for words in NO_OPERATIONS)}
    assert sorted(name for name in needed if id_of_command(name) is None) == []


def names_in_calls(method: Any) -> set[str]:
    """Return what a method refers to by name, with the helpers of the Python API that it calls."""
    codes, names = [inspect.unwrap(method).__code__], set()
    while codes:
        code = codes.pop()
        names |= set(code.co_names)
        codes += [constant for constant in code.co_consts if hasattr(constant, "co_names")]
    for name in list(names):
        helper = method.__globals__.get(name)
        if inspect.isfunction(helper) and helper.__module__ == "wtb.handles.start":
            names |= names_in_calls(helper)
    return names


# What a method calls in place of the operation: what returns before its end, or what it makes a document of.
HALVES = {"Bench.start": "begin", "SweepHandle.wait": "_looks", "ExecutionHandle.history": "read"}
CALLED = [(name, path) for name, operation in OPERATIONS.items() for path in operation.python]


@pytest.mark.parametrize(("name", "path"), CALLED)
def test_an_operation_is_a_method_of_the_python_api(name: str, path: str) -> None:
    owner, _, method = path.partition(".")
    function = getattr(getattr(wtb, owner), method)
    function_name = HALVES.get(path, OPERATIONS[name].function.__name__)
    bound = getattr(function, "operation", None)
    assert bound is OPERATIONS[name].function or function_name in names_in_calls(function)


def test_every_operation_is_in_the_python_api() -> None:
    assert [name for name, operation in OPERATIONS.items() if not operation.python] == []


def test_only_what_destroys_or_changes_needs_more_than_reading() -> None:
    def allowed(operation: Operation) -> bool:
        return (operation.effect is Effect.reads) == (operation.needs is Permission.read)

    about_others = {"audit.list", "audit.verify", "audit.show_head"}  # what all did, with what arguments
    assert {name for name, operation in OPERATIONS.items() if not allowed(operation)} == about_others


@pytest.mark.parametrize("page", TABLES, ids=lambda page: str(page.name))
def test_the_tables_of_a_page_are_written_from_the_registry(page: Path) -> None:
    text = page.read_text("utf-8")
    assert all(header in text for header, _ in TABLES[page])
    assert updated(page) == text, "run `make operations`"


def test_what_destroys_can_be_previewed_by_its_caller() -> None:
    """Operations that need a confirmation have a preview, and so have the methods of the Python API."""
    previews = {name: operation for name, operation in OPERATIONS.items() if operation.preview is not None}
    assert {"sweeps.cancel", "sweeps.delete", "sessions.delete", "questions.answer_all"} <= previews.keys()
    for operation in previews.values():
        module = import_module(operation.function.__module__)
        assert inspect.isfunction(getattr(module, str(operation.preview)))
        for path in operation.python:
            assert hasattr(getattr(wtb, path.partition(".")[0]), str(operation.preview)), path


# Options of commands that are about how a result is shown, who is asked, or where the database is.
PRESENTATION = {
    *("format", "output", "quiet", "yes", "db", "broker", "open_it", "wait"),  # `wait` is the method `SweepHandle.wait`
    *("each", "stack", "interval", "once", "pdb", "warnings"),
}
# What only the process itself has: its callback, code that is there already, and what `set` was as it was typed.
OF_THE_PROCESS = {"progress", "bound", "code", "written"}
# What commands and methods make an argument of.
MADE_OF = {
    "part": {"limit", "case", "choices", "final", "sample"},
    "prepared": {"file", "limit", "case", "choices", "final", "sample", "max_cells"},
    "cell": {"case", "choices", "repeat"},
    "policy": {"outputs", "superseded", "sweeps", "keep", "files"},
    "quota": {"disk", "node_runs", "usd", "tokens", "memory"},
    "questions": {"sweep", "node", "question"},
    "texts": set(),  # of files that variants name
    "typed": set(),  # `vary` as text
}
PARTS = {
    "admin session change": {"limits": MADE_OF["quota"]},
    "admin budget set": {"limits": {"usd", "tokens", "node_runs"}},
}
# Why a command and its operations differ by an argument.
DIFFERENCES = {
    ("workflow list", "published"): "asks for another operation",
    ("plan", "published"): "asks for another operation",
    ("plan", "keys"): "those of the file",
    ("submit", "published"): "asks for another operation",
    ("submit", "create_only"): "of a single input, as `wtb start` takes it",
    ("submit", "keys"): "those of the file",
    ("score", "published"): "asks for another operation",
    ("workflow show", "published"): "asks for another operation",
    ("workflow show", "workflow"): "is `name`, or what it is imported by",
    ("workflow show", "name"): "is `workflow`",
    ("run", "strict"): "an exit code",
    ("compare", "strict"): "an exit code",
    ("compare", "ref"): "is `before`, with --row",
    ("matrix", "other_factor"): "the second one of --pivot",
    ("judge check", "at_least"): "an exit code",
    ("label export", "file"): "a file of what is listed",
    **{
        ("label answer", argument): "of what was drawn, which the command knows"
        for argument in ("case", "answer", "label")
    },
    ("judge rank", "asking"): "is made of the options that follow",
    **{
        ("judge rank", option): "is of `asking`"
        for option in ("model", "field", "criteria", "provider", "url", "key", "most", "at_once", "per_minute")
    },
    ("run", "concurrency"): "of what is prepared; elsewhere it is not this command's: a pilot, workers, a comparison",
    ("log", "cases"): "tables show them, documents do not",
    ("list", "runs"): "asks for another operation",
    ("log", "summary"): "asks for another operation",
    ("files", "diff"): "is `other`",
    ("files", "other"): "is --diff",
    ("files", "export"): "is `directory`",
    ("files", "directory"): "is --export",
    ("show", "cells"): "asks for another operation",
    ("show", "outputs"): "asks for another operation",
    ("show", "cases"): "is --case",
    ("show", "columns"): "of pages, which load what is seen of a wide table",
    ("show", "key"): "is --key",
    ("rollback", "undo"): "asks for another operation",
    ("extend", "dry_run"): "asks for another operation",
    ("extend", "no_run"): "is `run`, the other way round",
    ("extend", "run"): "is --no-run",
    **{(command, "no_run"): "is `run`, the other way round" for command in ("fork", "combination add")},
    **{(command, "run"): "is --no-run" for command in ("fork", "combination add")},
    **{(command, "feedback_file"): "`feedback` from a file" for command in ("answer", "answer-all")},
    **{(command, "value_file"): "`value` from a file" for command in ("answer", "answer-all")},
    ("answer", "no_run"): "is `run`, the other way round",
    ("answer", "run"): "is --no-run",
    ("answer-all", "run"): "whoever answers many continues with `wtb resume`",
    ("regress", "final"): "a baseline is of the other cases",
    ("submit", "ref"): "of --wait: what was just submitted",
    ("submit", "timeout"): "of --wait: Ctrl-C ends it",
}
# Why a method lacks an argument of its operation.
METHODS_LACK = {
    ("Bench.run", "pdb"): "the debugger needs a terminal",
    ("Bench.submit", "create_only"): "of a single input, as `Bench.start` takes it",
    ("Bench.plan", "keys"): "are `sweep`",
    ("Bench.submit", "keys"): "are `sweep`",
    ("Bench.regress", "final"): "a baseline is of the other cases",
    ("SweepHandle.resume", "set"): "values are of one execution",
    ("ExecutionHandle.answer", "run"): "it always continues",
    ("ExecutionHandle.history", "state"): "`state_at`",
    ("QuestionHandle.details", "closed"): "it is one question",
    ("QuestionHandle.details", "limit"): "it is one question",
    ("ExecutionHandle.read_value", "case"): "it is of a sweep",
    ("ExecutionHandle.compare_files", "cell"): "`SweepHandle.execution` finds it",
}


def arguments_of(name: str) -> set[str]:
    """Return the arguments of a command's operations, split into the options that the command makes them of."""
    named = {argument for other in OPERATIONS if words_of(other) == name for argument in OPERATIONS[other].arguments}
    parts = MADE_OF | PARTS.get(name, {})
    return {part for argument in named - OF_THE_PROCESS for part in parts.get(argument, {argument})}


@pytest.mark.parametrize("name", sorted({words_of(name) for name in OPERATIONS} - {"start", "execution create"}))
def test_a_command_and_its_operations_take_the_same(name: str) -> None:
    """`start` and `execution create` are left out: they build a sweep from the keys of a sweep file and `input`."""
    options = {parameter.name for parameter in COMMANDS[name].params} - PRESENTATION
    taken_by_both = {"session"}  # where an operation takes none, it is that of the sweep or of the bench
    differing = {argument for command, argument in DIFFERENCES if command == name} | taken_by_both
    assert options ^ arguments_of(name) <= differing | PRESENTATION


@pytest.mark.parametrize(("name", "path"), [call for call in CALLED if call[1] != "Bench.start"])
def test_a_method_takes_what_its_operation_takes(name: str, path: str) -> None:
    owner, _, method = path.partition(".")
    parameters = set(inspect.signature(getattr(getattr(wtb, owner), method)).parameters)
    parameters |= {"file"} if "sweep" in parameters else set()
    its_own = {"ref", "a", "after", "session"} if owner != "Bench" else {"session"}
    its_own |= {"b"} if "other" in parameters else set()
    lacking = {argument for method, argument in METHODS_LACK if method == path} | its_own | OF_THE_PROCESS
    arguments = {argument for argument in OPERATIONS[name].arguments if argument not in parameters} - lacking
    parts = {part for argument in arguments for part in MADE_OF.get(argument, {argument})}
    assert parts - parameters <= lacking
    assert not {argument for method, argument in METHODS_LACK if method == path} & parameters


def test_what_may_differ_still_does() -> None:
    lists = [set(DIFFERENCES), {(words_of(name), "") for name in OPERATIONS}]
    assert {command for command, _ in lists[0]} <= {command for command, _ in lists[1]}
    assert {path for path, _ in METHODS_LACK} <= {path for _, path in CALLED}
    for command, argument in DIFFERENCES:
        options = {parameter.name for parameter in COMMANDS[command].params}
        assert (argument in options) != (argument in arguments_of(command)), (command, argument)


def test_what_shows_a_secret_once_is_marked_and_is_answered_within_its_request() -> None:
    """A long operation can be fetched later, so its result would be stored."""
    marked = {name for name, operation in OPERATIONS.items() if operation.shows_secret}
    assert marked == {name for name, operation in OPERATIONS.items() if operation.result is NewTokenDocument}
    assert not any(OPERATIONS[name].long for name in marked)
