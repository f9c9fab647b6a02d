"""An evaluator that runs tests of code in a separate process, with limits of time and memory.

Limits are no sandbox: the code has the same rights as node processes, and runs in a copy of the cell's workspace.
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
from wtb.core.scoring.scores import PASS_OR_FAIL
from wtb.core.values import Options

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
    # Random, so that code cannot pass by writing a word that it knows.
    word = secrets.token_hex(16)
    reader, passed = os.pipe()
    try:
        limits = {"bytes": megabytes * MEGABYTE, "passed": passed, "word": word}
        _run(json.dumps({"code": code, "tests": written, **limits}), str(result.workspace), passed, seconds)
        # This process holds the other end, too, so reading from an empty pipe would wait for ever.
        os.set_blocking(reader, False)
        with suppress(BlockingIOError):  # where nobody wrote
            return os.read(reader, len(word)) == word.encode()
        return False
    finally:
        os.close(reader)
        os.close(passed)


def _run(job: str, folder: str, passed: int, seconds: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _DRIVER],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(passed,),
        # A process group of its own, so that everything that the code starts can be killed.
        start_new_session=True,
    )
    try:
        with suppress(subprocess.TimeoutExpired):
            process.communicate(job.encode(), timeout=seconds)
    finally:  # what it started may still run
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _tests(case: ScoredCase, field: str | None, tests: str | None) -> str:
    """Return the tests of a case. Raises InputError if there are none, or they are not Python."""
    source = tests if tests is not None else filled_value(case.expected, field or "")
    if not isinstance(source, str) or not source.strip():
        raise InputError(f"the tests are {describe(source)}; expected Python, in 'expected' of the case or in 'tests'")
    try:
        compile(source, "tests.py", "exec")
    except (SyntaxError, ValueError) as error:
        raise InputError(f"the tests are no Python: {error}") from None
    return source


def _code(text: str) -> str:
    """Return the code in a text: the content of its fences, or all of it if it has none."""
    return "\n".join(_FENCED.findall(text)) or text


def check(options: Options) -> None:
    """Reject options with which no cell gets a score. Raises InputError."""
    for name, expected in (("field", "the name of a key of the state"), ("tests", "Python")):
        if options.get(name) is not None and not isinstance(options[name], str):
            raise InputError(f"{name!r} is {describe(options[name])}; expected {expected}")
    for name, kind, expected in (
        ("seconds", (int, float), "such as 10"),
        ("megabytes", int, "a whole one, such as 1024"),
    ):
        limit = options.get(name, 1)
        if isinstance(limit, bool) or not isinstance(limit, kind) or not limit > 0:
            raise InputError(f"{name!r} is {describe(limit)}; expected a number above 0, {expected}")
    if options.get("tests") is not None:
        _tests(ScoredCase("", {}), None, options["tests"])


code_tests.wtb_check = check  # type: ignore[attr-defined]
