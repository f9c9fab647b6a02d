"""An evaluator of code: whether it passes tests, in a process of its own with limits of time and memory.

Limits are no sandbox: what the code does, it does as the node processes do it, in a copy of the cell's workspace.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
from contextlib import suppress

from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase, evaluator
from wtb.authoring.evaluation.fields import filled_value, needs_expected, text_of
from wtb.core.errors import InputError, describe
from wtb.core.mappings import Options
from wtb.core.scoring.scales import PASS_OR_FAIL

MEGABYTE = 2**20
_FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)  # as models write code among words
# The tests have passed if the last line says so: an exit of the code, whatever its status, is no pass.
_DRIVER = """
import json, os, resource, sys, types
given = json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_DATA, (given["bytes"], given["bytes"]))
passed, solution = given["passed"], types.ModuleType("solution")
sys.modules["solution"] = solution
exec(compile(given["code"], "solution.py", "exec"), solution.__dict__)
exec(compile(given["tests"], "tests.py", "exec"), {**solution.__dict__, "__name__": "tests"})
os.write(passed, given["word"].encode())
"""


@needs_expected(instead="tests")
@evaluator(better="higher", scale=PASS_OR_FAIL)
def code_tests(
    case: ScoredCase,
    result: CellResult,
    *,
    field: str | None = None,
    tests: str | None = None,
    seconds: float = 10,
    megabytes: int = 1024,
) -> bool:
    """Run Python tests against the code in a field, or in the files of the workspace where no field is named.

    Tests see what the code defines, can import it as `solution`, and pass if none of them raises.
    """
    written = _tests(case, field, tests)
    code = "" if field is None else _code(text_of(result, field))
    word = secrets.token_hex(16)
    told, passed = os.pipe()
    try:
        limits = {"bytes": megabytes * MEGABYTE, "passed": passed, "word": word}
        _run(json.dumps({"code": code, "tests": written, **limits}), str(result.workspace), passed, seconds)
        os.set_blocking(told, False)
        with suppress(BlockingIOError):  # where nobody wrote
            return os.read(told, len(word)) == word.encode()
        return False
    finally:
        os.close(told)
        os.close(passed)


def _run(given: str, folder: str, passed: int, seconds: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _DRIVER],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(passed,),
        start_new_session=True,
    )
    try:
        with suppress(subprocess.TimeoutExpired):
            process.communicate(given.encode(), timeout=seconds)
    finally:  # what it started may still run
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _tests(case: ScoredCase, field: str | None, tests: str | None) -> str:
    """The tests of a case. Raises InputError where there are none, or they are no Python."""
    found = tests if tests is not None else filled_value(case.expected, field or "")
    if not isinstance(found, str) or not found.strip():
        raise InputError(f"the tests are {describe(found)}; expected Python, in 'expected' of the case or in 'tests'")
    try:
        compile(found, "tests.py", "exec")
    except (SyntaxError, ValueError) as error:
        raise InputError(f"the tests are no Python: {error}") from None
    return found


def _code(text: str) -> str:
    """The code in a text: what is in its fences, or all of it where it has none."""
    return "\n".join(_FENCED.findall(text)) or text


def check(options: Options) -> None:
    """Refuse options that can give no score. Raises InputError."""
    for name, expected in (("field", "the name of a key of the state"), ("tests", "Python")):
        if options.get(name) is not None and not isinstance(options[name], str):
            raise InputError(f"{name!r} is {describe(options[name])}; expected {expected}")
    for name, kind, expected in (
        ("seconds", (int, float), "such as 10"),
        ("megabytes", int, "a whole one, such as 1024"),
    ):
        value = options.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, kind) or not value > 0:
            raise InputError(f"{name!r} is {describe(value)}; expected a number above 0, {expected}")
    if options.get("tests") is not None:
        _tests(ScoredCase("", {}), None, options["tests"])


code_tests.wtb_check = check  # type: ignore[attr-defined]
