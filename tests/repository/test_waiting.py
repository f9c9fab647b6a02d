"""Tests wait for conditions and events: only one module of them sleeps, and the code that is under test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
HELPER = "support/waiting.py"
MODULES = {"time", "asyncio", "anyio", "trio"}
CODE_UNDER_TEST = {"node", "evaluator", "tool"}  # decorators

# Places, as modules or functions in them, with the reason.
ALLOWED = {
    "acceptance/corrective.py::grade": "a node of a graph, held until a file is removed",
    "acceptance/corrective.py::write": "a node of a graph, held until a file is removed",
    "analysis/test_looks.py::test_a_round_gives_work_before_it_counts_and_counts_for_a_while": "counting is slow",
    "authoring/test_calling.py::test_a_coroutine_that_ignores_its_cancellation_is_counted_as_left_behind": "a node",
    "authoring/test_event_loop.py": "coroutines that share an event loop are what is tested",
    "authoring/test_loop_lag.py::test_a_call_that_awaits_sees_the_lag_that_another_one_makes": "nodes that make lag",
    "chaos/storm.py::Storm._stop": "a server is away for a drawn time: that is the fault",
    "execution/test_engine_contract.py::test_a_node_that_takes_too_long_is_given_up": "a node",
    "execution/test_memory_quota.py::test_no_node_run_begins_while_another_runner_uses_too_much": "looks at memory, "
    "seen nowhere",
    "execution/test_together.py::Ending.run": "a node run whose end takes a while",
    "faults/workers/test_database_faults.py::"
    "test_a_sweep_completes_while_connections_are_terminated_at_random_moments": "the fault comes at a drawn moment",
    "faults/workers/test_queue_messages.py::"
    "test_a_case_that_runs_for_longer_than_the_visibility_timeout_runs_once": "timeouts of the broker, seen nowhere",
    "hosting/agents/task_client.py::KnowsTasks._resolve": "a client polls as often as its server allows",
    "hosting/api/test_streams.py::"
    "test_what_is_written_after_a_stream_begins_comes_even_if_its_first_reading_is_slow": "reading is slow",
    "integrations/test_hostile_tools.py::_hang": "a server of tools that does not respond in time",
    "operations/test_python_api.py::test_a_service_waits_and_follows_without_blocking_the_loop": "a task that ticks",
    "store/test_filecache.py::"
    "test_adding_while_another_machine_removes_never_loses_what_was_added": "files grow old by the clock of their disk",
    "store/test_permits.py::test_runs_of_a_sweep_in_several_commands_keep_the_limit_of_a_node": "a node",
}


def sleeps(tree: ast.AST, within: tuple[str, ...] = (), *, in_a_loop: bool = False) -> Iterator[tuple[str, int]]:
    """Yield the outermost function and the line of each sleep, but for those of code under test."""
    for child in ast.iter_child_nodes(tree):
        inner, loops = within, in_a_loop
        match child:
            case ast.ClassDef():
                inner = within if _is_function(within) else (*within, child.name)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if any(_name_of(decorator) in CODE_UNDER_TEST for decorator in child.decorator_list):
                    continue
                inner, loops = within if _is_function(within) else (*within, f"{child.name}()"), False
            case ast.While() | ast.For() | ast.AsyncFor():
                loops = True
            case ast.Call(args=[ast.Constant(value=0)]) if _is_sleep(child.func) and not in_a_loop:
                continue  # other tasks have a turn; no time passes
            case ast.Call(func=ast.Attribute(attr="wait", value=ast.Call(func=made)), args=[_, *_]):
                if _name_of(made) == "Event":  # nothing can set it
                    yield _place(within), child.lineno
            case ast.ImportFrom(module=module, names=names) if module in MODULES:
                if any(alias.name == "sleep" for alias in names):
                    yield _place(within), child.lineno
            case ast.Attribute() if _is_sleep(child):
                yield _place(within), child.lineno
        yield from sleeps(child, inner, in_a_loop=loops)


def _is_sleep(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr == "sleep" and _name_of(function.value) in MODULES


def _is_function(within: tuple[str, ...]) -> bool:
    return bool(within) and within[-1].endswith("()")


def _place(within: tuple[str, ...]) -> str:
    return ".".join(within).removesuffix("()")


def _name_of(expression: ast.expr) -> str:
    """Return the last name of an expression such as `wf.node(retries=1)`."""
    if isinstance(expression, ast.Call):
        return _name_of(expression.func)
    return getattr(expression, "attr", getattr(expression, "id", ""))


@cache
def places() -> dict[str, list[int]]:
    """Return the lines of each function of the tests that sleeps."""
    lines: dict[str, list[int]] = {}
    for path in sorted(TESTS.rglob("*.py")):
        module = path.relative_to(TESTS).as_posix()
        if module != HELPER:
            for function, line in sleeps(ast.parse(path.read_text("utf-8"))):
                lines.setdefault(f"{module}::{function}", []).append(line)
    return lines


def test_tests_wait_for_conditions_and_never_for_time() -> None:
    new = {place: at for place, at in places().items() if not {place, place.partition("::")[0]} & ALLOWED.keys()}
    assert not new, f"use until() or until_async() of tests/{HELPER}, an event or a moved clock"


def test_each_allowed_place_still_sleeps() -> None:
    present = {name for place in places() for name in (place, place.partition("::")[0])}
    assert sorted(ALLOWED.keys() - present) == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def test_it():\n    time.sleep(1)", [("test_it", 2)]),
        ("async def test_it():\n    await asyncio.sleep(1)", [("test_it", 2)]),
        ("class Test:\n    def test_it(self):\n        def inner():\n            time.sleep(1)", [("Test.test_it", 4)]),
        ("from time import sleep", [("", 1)]),
        ("thread = Thread(target=time.sleep)", [("", 1)]),
        ("def test_it():\n    threading.Event().wait(1)", [("test_it", 2)]),
        ("async def test_it():\n    while waits():\n        await asyncio.sleep(0)", [("test_it", 3)]),
        ("async def test_it():\n    await asyncio.sleep(0)", []),
        ("async def test_it():\n    await asyncio.Event().wait()", []),
        ("@wf.node(retries=1)\ndef work(state):\n    time.sleep(1)", []),
        ("@evaluator\ndef right(case, result):\n    time.sleep(1)", []),
        ("CODE = 'time.sleep(1)'", []),
    ],
)
def test_a_sleep_is_seen_wherever_it_hides(code: str, expected: list[tuple[str, int]]) -> None:
    assert list(sleeps(ast.parse(code))) == expected
