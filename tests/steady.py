"""Tests that wait, again and again while every processor is busy: what they wait for has to come, however late.

    python -m tests.steady                                  thirty rounds of all of them: some hours
    python -m tests.steady --times 3 tests/acceptance       fewer, of some

A test waits where it, one of its fixtures or a function of the tests that they call polls, or waits for a process or
a thread: that is read from their code. Whatever fails is shown with the number of rounds in which it did.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import types
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

WAITS = {"until", "wait", "join", "sleep", "communicate", "poll"}
PROCESSES = 4


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that wait for nothing: this module is a plugin of the rounds, too."""
    left_out = [test for test in items if not waits(test)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [test for test in items if waits(test)]


def waits(test: Any) -> bool:
    """Return whether a test, a fixture that it uses or a function of the tests that these call waits for anything."""
    fixtures = [fixture.func for definitions in test._fixtureinfo.name2fixturedefs.values() for fixture in definitions]
    seen: set[types.CodeType] = set()
    return any(_calls_a_wait(function, seen) for function in [test.function, *fixtures])


def _calls_a_wait(function: Any, seen: set[types.CodeType]) -> bool:
    function = getattr(function, "__wrapped__", function)
    code = getattr(function, "__code__", None)
    if code is None or code in seen or not function.__module__.startswith("tests."):
        return False
    seen.add(code)
    names = set(_names(code))
    if names & WAITS:
        return True
    functions = [function.__globals__.get(name) for name in names]
    # Of what type a fixture is stands in annotations only: any class that the module knows may be meant.
    classes = [cls for cls in function.__globals__.values() if isinstance(cls, type)]
    ours = [cls for cls in classes if cls.__module__.startswith("tests.")]
    methods = [vars(cls)[name] for cls in ours for name in names & vars(cls).keys()]
    return any(_calls_a_wait(called, seen) for called in [*functions, *methods] if callable(called))


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _names(inner)


@contextmanager
def busy() -> Iterator[None]:
    """Every processor has something else to do."""
    loops = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_round(paths: list[str]) -> tuple[int, list[str], int]:
    """Run one round. Returns how many tests ran, those that failed, and the exit code of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        options = ["-q", "-n", str(PROCESSES), "--dist", "loadgroup", "-m", "not slow", "-p", "tests.steady"]
        command = [sys.executable, "-m", "pytest", *options, f"--junitxml={report}", *paths]
        done = subprocess.run(command, check=False).returncode
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    bad = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    return len(cases), [f"{case.get('classname')}::{case.get('name')}" for case in bad], done


def main() -> int:
    about = "Run tests that wait on a busy machine."
    parser = argparse.ArgumentParser(prog="python -m tests.steady", description=about)
    parser.add_argument("--times", type=int, default=30, help="rounds")
    parser.add_argument("paths", nargs="*", help="as for pytest; all tests where none is given")
    options = parser.parse_args()
    failed: Counter[str] = Counter()
    with busy():
        for number in range(1, options.times + 1):
            ran, bad, code = run_round(options.paths)
            if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
                return code
            failed.update(bad)
            heading = f"round {number} of {options.times}: {ran} tests that wait, {len(bad)} failed"
            print(heading, *bad, sep="\n  ", flush=True)
    for name, count in failed.most_common():
        print(f"{count} of {options.times}: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
