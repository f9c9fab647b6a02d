"""Standard streams that are closed, full, or no longer read."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.support.forkserver import COMMAND
from tests.support.project import Outcome, Project
from tests.support.prose import sentence

# Of each way in which results are written: by the library that makes helps, by `print`, as a table, as JSON, in parts.
COMMANDS = [
    "--help",
    "run --help",
    "--version",
    "list",
    "list --format json",
    "matrix first",
    "matrix first --format json",
    "show first --cells --format json",
    "log first",
    "plan sweep.yaml",
    "doctor --format json",
]

Shell = Callable[[str], Outcome]


@pytest.fixture(scope="module")
def shell(shared_project: Project) -> Shell:
    """Runs `wtb` with a line of arguments and redirections, in a folder with a sweep."""
    shared_project.wtb("run", "sweep.yaml", "--quiet", check=0)

    def run(line: str) -> Outcome:
        process = subprocess.run(
            ["bash", "-o", "pipefail", "-c", f"{' '.join(COMMAND)} {line}"],
            cwd=shared_project.folder,
            env=shared_project.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Outcome(process.returncode, process.stdout, process.stderr)

    return run


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("stdout", "message"),
    [
        (">/dev/full", sentence("the result cannot be written to stdout: {}", "No space left on device")),
        (">&-", sentence("stdout is closed, so the result is not written; open it, or name a file with --output")),
    ],
)
def test_a_result_that_cannot_be_written_is_one_line(shell: Shell, command: str, stdout: str, message: str) -> None:
    outcome = shell(f"{command} {stdout}")

    assert outcome.code == 4, outcome.stderr
    assert outcome.stderr.splitlines()[-1] == f"error: {message}"
    assert "Traceback" not in outcome.stderr


@pytest.mark.parametrize("command", ["--help", "--version", "matrix first", "show first --cells --format json"])
def test_a_result_that_nobody_reads_is_no_error(shell: Shell, command: str) -> None:
    outcome = shell(f"{command} | true")

    assert outcome.code in (0, 141)  # it was written before the reader left, or after
    assert "Traceback" not in outcome.stderr
    assert "error" not in outcome.stderr


@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-"])
@pytest.mark.parametrize(
    ("command", "code"), [("run sweep.yaml", 0), ("list", 0), ("show nothing", 2), ("list --nothing", 2)]
)
def test_messages_that_cannot_be_written_change_nothing(shell: Shell, command: str, code: int, stderr: str) -> None:
    assert shell(f"{command} {stderr}").code == code


def test_a_refusal_has_its_exit_code_without_any_stream(shell: Shell) -> None:
    assert shell("show nothing >&- 2>&-").code == 2
