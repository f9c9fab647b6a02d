"""Bad arguments are refused in one place, with the same words from Python and from a command."""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.operations.test_registry import COMMANDS, words_of
from tests.support.prose import sentence
from wtb import Bench, ExecutionHandle, SweepHandle
from wtb.cli.commands import option_of
from wtb.config.retention_policy import Policy
from wtb.core.arguments import Kind, Kinds, Listed, Number, Text, kinds_of
from wtb.core.errors import InputError, WTBError
from wtb.operations.registry import OPERATIONS
from wtb.operations.running.preparing import prepare_file
from wtb.planning.picking import Only
from wtb.store.access.sessions import Quota

ROOT = Path(__file__).parents[2]
SOURCE = """
from wtb import Workflow

wf = Workflow("flow")
wf.entry(wf.node(lambda state: {"y": 2 * state["x"]}, name="double"))

asking = Workflow("asking")
asking.entry(asking.node(lambda state, ctx: {"y": ctx.ask("Which?")}, name="ask"))
"""
SWEEP = """
sweep: first
workflow: flow_of_refusals:wf
cases: [{id: one, input: {x: 1}}]
vary: {double: all}
run: {pool: thread}
"""
# What is given for arguments that are not in question, by their name.
EXAMPLES: Mapping[str, Any] = {
    "sweep": "sweep.yaml",
    "file": "sweep.yaml",
    "name": "a-name",
    "baseline": "main",
    "cron": "0 3 * * *",
    "before": "first",
    "after": "first",
    "to": "double",
    "other": "first",
    "path": "a.txt",
    "directory": "somewhere",
    "action": "approve",
    "limits": {"usd": 1.0},
    "role": "viewer",
    "case": "one",
    "workflow": "flow_of_refusals:wf",
    "input": {"x": 1},
    "keys": {"workflow": "flow_of_refusals:wf", "cases": [{"input": {"x": 1}}], "vary": {"double": "all"}},
    "ref": "first",
    "a": "first",
    "b": "first",
    "labels": "labels.csv",
    "answer": "0123456789abcdef",
    "label": 1.0,
    "comparisons": "comparisons.csv",
    "rater": "ann",
    "text": "a comment",
    "number": 1,
    "scoring": "0123456789ab",
}


# What is given besides, by operation: the options that lead to it, and what its command parses or checks before.
EXTRA: Mapping[str, Mapping[str, Any]] = {
    "executions.rollback": {"to": "double"},
    "executions.undo_rollback": {"undo": True},
    "questions.answer": {"ref": "nothing", "action": "approve"},
    "questions.answer_all": {"action": "approve", "yes": True},
    "budgets.set": {"usd": 1, "project": "search"},
    "sweeps.extend": {"repeats": 2},
    "combinations.stop": {"ref": "first", "combination": {"double": "default"}},
    "sweeps.plan_extension": {"repeats": 2, "dry_run": True},
    "cases.read": {"cases": "cases.jsonl"},
    "evaluators.preview": {"state": {"answer": "x"}},
    "reports.make": {"format": "md"},
    "sweeps.show_status": {"ref": "first"},
    "comments.add": {"case": "one", "text": "a comment"},
    "comments.delete": {"number": 1},
    "breakpoints.set": {"clear": True},
    "events.count": {"summary": True},
    "outputs.list": {"outputs": True},
    "files.read": {"path": "a.txt"},
    "files.compare": {"diff": "first"},
    "files.export": {"export": "somewhere"},
    "cells.list": {"cells": True, "format": "json"},
    "sweeps.run_pilot": {"pilot": 2},
    "sweeps.plan_published": {"published": True},
    "executions.start_published": {"published": True},
    "sweeps.submit_published": {"published": True},
    "baselines.repeat": {"repeat": 1},
    "scorings.submit": {"published": True},
    "sessions.change": {"usd": 1},
    "sweeps.pool": {"refs": ["first"]},
    "sweeps.cancel": {"ref": "asking", "yes": True},
    "sweeps.compare": {"after": "first"},
    "combinations.compare": {"row": 1, "other": 0},
    "traces.export": {"endpoint": "http://127.0.0.1:9"},
}
ELSEWHERE: Mapping[tuple[str, str], str] = {
    ("executions.start_published", "approval"): "a single mode is a text, several are a list",
    ("sweeps.submit", "priority"): "it needs PostgreSQL, which is checked first",
    ("questions.answer_all", "action"): "an empty one is a missing one, which the preview refuses",
    ("costs.show", "by"): "names in one text, which the command reads",
    ("evaluators.preview", "evaluator"): "its state is JSON, which the command reads",
    ("matrices.show", "group_by"): "names in one text, which the command reads",
    ("matrices.show", "pivot"): "names in one text, which the command reads",
    ("scores.compute", "evaluate"): "YAML, which the command reads",
    ("scorings.submit", "evaluate"): "YAML, which the command reads",
    ("executions.import", "max_bytes"): "a size such as 4GB, which the command reads",
    ("tokens.create", "expires_s"): "a time such as 30d, which the command reads",
}


@dataclass(frozen=True)
class Doors:
    """A database with a sweep and an execution that waits for an answer, and the Python API to it."""

    bench: Bench
    sweep: SweepHandle
    execution: ExecutionHandle

    def method(self, path: str) -> Callable[..., Any] | None:
        """Return the method of the Python API for a path such as `Bench.run`."""
        owner, _, name = path.partition(".")
        owners = {"Bench": self.bench, "SweepHandle": self.sweep, "ExecutionHandle": self.execution}
        return getattr(owners[owner], name) if owner in owners else None


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    folder = tmp_path_factory.mktemp("refusals")
    (folder / "flow_of_refusals.py").write_text(SOURCE, "utf-8")
    (folder / "sweep.yaml").write_text(SWEEP, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        patch.setenv("WTB_DATABASE_URL", f"sqlite:///{folder / 'wtb.db'}")
        with wtb.open(Path("wtb.db")) as bench:
            yield Doors(bench, bench.run("sweep.yaml"), bench.start("flow_of_refusals:asking", {}).wait(60))


def bad_values(kind: Kind) -> list[Any]:
    """Return values that are not of a kind, and that a command line can express."""
    match kind:
        case Text(longest=longest, may_be_empty=may_be_empty):
            empty = [] if may_be_empty else [""]
            return [*empty, "x" * (longest + 1)] if longest < 20_000 else empty
        case Number(at_least=least, at_most=largest, whole=whole, above=above):
            low = [-1] if above > -math.inf else [least - 1] if least > -math.inf else []
            return [*low, largest + 1] if whole and largest < math.inf else low
        case Listed(items=Kinds(kinds=kinds)):
            return [[bad] for kind in kinds for bad in bad_values(kind)]
    return []


def arguments_of(name: str) -> dict[str, Kinds | None]:
    """Return the arguments of an operation, including those that build a part of a sweep, a policy or a quota."""
    kinds = dict(kinds_of(OPERATIONS[name].function))
    if "prepared" in kinds and name != "executions.start":
        kinds |= kinds_of(Only) | {"max_cells": kinds_of(prepare_file)["max_cells"]}
    if name in ("garbage.collect", "budgets.set", "sessions.create", "sessions.change"):
        kinds |= {
            key: (kinds_of(Policy) | kinds_of(Quota))[key] for key in (["keep"] if name == "garbage.collect" else MONEY)
        }
    return kinds


MONEY = ("usd", "tokens")
ROWS = [
    (name, argument, bad)
    for name in OPERATIONS
    for argument, kinds in arguments_of(name).items()
    for kind in (kinds.kinds if kinds else ())
    for bad in bad_values(kind)
]


def refusal(call: Callable[[], Any]) -> str:
    """Return the error of a call. Iterate over a returned iterator, because it does nothing before."""

    def follow() -> None:
        reply = call()
        if isinstance(reply, Iterator):
            next(reply)

    with pytest.raises(InputError) as refused:
        follow()
    return str(refused.value)


def from_python(doors: Doors, path: str, name: str, argument: str, bad: Any) -> str | None:
    """Return the error of a method of the Python API, or None if it does not take the argument."""
    method = doors.method(path)
    if method is None:
        return None
    parameters = inspect.signature(method).parameters
    by_keyword = {key for key, parameter in parameters.items() if parameter.kind is parameter.VAR_KEYWORD}
    needed = {key for key, parameter in parameters.items() if parameter.default is parameter.empty} - by_keyword
    examples = {**EXAMPLES, **EXTRA.get(name, {})}
    arguments = {key: examples[key] for key in needed if key in examples}
    if argument in parameters or (argument in MONEY and by_keyword):
        return refusal(lambda: method(**arguments | {argument: bad}))
    if argument in MONEY:
        return refusal(lambda: method(**arguments | {"limits": {argument: bad}, "project": "search"}))
    return refusal(lambda: Policy(keep=bad)) if argument == "keep" else None


def from_command(name: str, argument: str, bad: Any) -> str | None:
    """Return the error of a command without the name of the option, or None if it does not take the argument."""
    command = COMMANDS[words_of(name)]
    if argument not in {parameter.name for parameter in command.params} or (name, argument) in ELSEWHERE:
        return None
    values = {
        parameter.name: EXAMPLES[parameter.name]
        for parameter in command.params
        if parameter.required and parameter.name in EXAMPLES
    }
    values |= EXTRA.get(name, {}) | {argument: bad[0] if isinstance(bad, list) else bad}
    typed: dict[str, list[str]] = {"option": [], "argument": []}
    for parameter in command.params:
        if parameter.name in values:
            example = values[parameter.name]
            text = "=".join(*example.items()) if isinstance(example, dict) else example  # of one pair
            option = max(parameter.opts, key=len) + ("" if example is True else f"={text}")
            is_option = parameter.param_type_name == "option"
            typed[parameter.param_type_name].append(option if is_option else str(text))
    with pytest.raises(WTBError) as refused:
        command.main([*typed["option"], "--", *typed["argument"]], standalone_mode=False)
    assert refused.value.option == option_of(command, argument)
    return str(refused.value)


@pytest.mark.parametrize(("name", "argument", "bad"), ROWS)
def test_a_bad_argument_is_refused_with_the_same_words(doors: Doors, name: str, argument: str, bad: Any) -> None:
    refusals = [from_python(doors, path, name, argument, bad) for path in OPERATIONS[name].python]
    texts = {text for text in [*refusals, from_command(name, argument, bad)] if text is not None}
    assert len(texts) <= 1
    assert all(argument in text for text in texts)


def test_every_argument_of_the_table_comes_by_both_doors() -> None:
    """The test above compares nothing if neither the method nor the command takes an argument."""
    assert len(ROWS) > 250
    common = {"limit", "max_cells", "pilot", "repeat", "reason", "keep", "usd", "timeout", "interval_s", "name", "case"}
    assert common <= {argument for _, argument, _ in ROWS}


NUL = "{} has a NUL character; expected text without"
SAYABLE_IN_PYTHON: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("wtb.open", (5,), {}, "url is 5; expected text or a path or a Database"),
    ("wtb.submit", (5,), {}, "sweep is 5; expected a Sweep or text or a path"),
    ("Bench.run", (5,), {}, "sweep is 5; expected a Sweep or text or a path"),
    ("Bench.run", ("sweep.yaml",), {"limit": True}, "limit is true; expected a whole number of at least 1"),
    ("Bench.run", ("sweep.yaml",), {"case": "a\0b"}, sentence(NUL, "case")),
    (
        "Bench.run",
        ("sweep.yaml",),
        {"breakpoints": "double"},
        sentence("{} is {}; expected a list", "breakpoints", "'double'"),
    ),
    ("Bench.sweeps", (), {"limit": "x"}, "limit is 'x'; expected a whole number of at least 1"),
    (
        "Bench.sweeps",
        (),
        {"since": datetime(2026, 1, 1)},
        sentence("{} has no time zone; expected one, as datetime.now(UTC) has", "since"),
    ),
    ("Bench.costs", (), {"since": "2d"}, "since is '2d'; expected a datetime with a time zone"),
    ("Bench.sweep", ("\0",), {}, sentence(NUL, "ref")),
    ("Bench.execution", ("\ud800",), {}, sentence("{} has half of a surrogate pair", "ref")),
    ("Bench.create_session", ("a",), {"usd": "x"}, "usd is 'x'; expected a finite number above 0"),
    ("Bench.create_session", ("a",), {"usd": math.nan}, "usd is nan; expected a finite number above 0"),
    ("Bench.set_budgets", ({"usd": "x"},), {"project": "p"}, "usd is 'x'; expected a finite number above 0"),
    ("Bench.set_budgets", ({5: 1.0},), {"project": "p"}, sentence("{} is {}; expected text", "a key of limits", 5)),
    ("Bench.compare", ("first", "first"), {"margin": {"m": -1}}, sentence("{} is {}; expected", "margin['m']", "-1")),
    ("Bench.import_execution", (5,), {}, sentence("{}; expected a path", "file is 5")),
    ("Bench.collect", (7,), {}, sentence("{} is {}; expected {}", "policy", 7, "a Policy")),
    ("Bench.collect", (), {"dry_run": "no"}, sentence("{} is {}; expected true or false", "dry_run", "'no'")),
    (
        "Bench.add_schedule",
        ("n", "sweep.yaml"),
        {"cron": "0 3 * * *", "missed": "x"},
        sentence("{} is {}; expected one", "missed", "'x'"),
    ),
    ("SweepHandle.matrix", (), {"on_failure": "bogus"}, "on_failure is 'bogus'; expected a finite number or left_out"),
    ("SweepHandle.wait", (math.inf,), {}, "timeout is inf; expected a finite number from 0 to 31,622,400"),
    (
        "SweepHandle.resume",
        (),
        {"limits": {"usd": "x"}},
        sentence("{} is {}; expected a number", "'limits.usd'", "'x'"),
    ),
    ("SweepHandle.pause", ("\0",), {}, sentence(NUL, "reason")),
    ("SweepHandle.pause", (), {"now": 1}, sentence("{} is {}; expected true or false", "now", 1)),
    ("ExecutionHandle.fork", (), {"set": {5: 1}}, sentence("{} is {}; expected text", "a key of set", 5)),
]


def test_what_a_command_line_cannot_say_is_refused_alike(doors: Doors, subtests: pytest.Subtests) -> None:
    for path, args, kwargs, expected in SAYABLE_IN_PYTHON:
        method: Any = getattr(wtb, path.removeprefix("wtb."), None) or doors.method(path)
        with subtests.test(f"{path} {args} {kwargs}"):
            assert expected in refusal(partial(method, *args, **kwargs))


def test_a_path_is_that_of_an_sqlite_file(doors: Doors, tmp_path: Path) -> None:
    with wtb.open(tmp_path / "a b.db") as bench:
        assert bench.sweeps(since=datetime.now(UTC)) == []
    assert (tmp_path / "a b.db").exists()


COMMAND = re.compile(r"`wtb [^`]*`|wtb [a-z-]+ .*|--(?:format|cells|diff) ")  # advice to give a whole command


@pytest.mark.parametrize("package", ["operations", "planning", "store", "analysis"])
def test_no_message_names_an_option(package: str) -> None:
    """Errors in Python name no option; commands add it by the name of the argument."""
    named = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in (ROOT / "wtb" / package).rglob("*.py")
        if path.name not in ("registry.py", "asking.py", "children.py")  # names of operations; a command to start
        for line, text in messages(ast.parse(path.read_text("utf-8")))
        if re.search(r"(?<![-\w])--[a-z]", COMMAND.sub("", text))
    ]
    assert named == []


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield texts that are not docstrings; formatted ones have placeholders."""
    parts = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            texts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, "".join(texts)
        elif isinstance(node, ast.Constant) and node not in parts and id(node) not in documented:
            yield node.lineno, str(node.value)
