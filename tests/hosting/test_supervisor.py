"""The supervisor of the stack's programs: process trees on a leash, restarts with backoff, an end you can hurry."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.support.prose import sentence
from tests.support.waiting import until
from wtb.core.errors import WTBError
from wtb.hosting.servers import up as supervising
from wtb.hosting.servers.program import Program, to_files
from wtb.hosting.servers.up import Requests, Supervisor

PATIENCE_S = 30.0

# A program, a child in a session of its own, and a daemon that left its session and its parent.
FAMILY = """
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.wait()
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("ready", flush=True)
time.sleep(600)
"""
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
ENDING = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("ends by itself", flush=True), sys.exit(0)))
print("ready", flush=True)
time.sleep(600)
"""
HOLDER = """
import os, sys
from pathlib import Path
from wtb.hosting.servers.program import Program

command = [sys.executable, "-c", sys.argv[1]]
options = {"folder": Path.cwd(), "environment": os.environ, "grace": 5}
program = Program("family", command, line=lambda name, line: print(line, flush=True), **options)
program.start()
program.wait(600)
"""


class Output:
    """The lines that a program printed, collected by a thread."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, name: str, line: str) -> None:
        self.lines.append(f"{name}: {line}")


def working_in(folder: Path) -> list[int]:
    """Processes whose directory is a folder, but for this one."""
    pids = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and Path(process.cwd()) == folder:
                pids.append(process.pid)
    return pids


@pytest.fixture
def output() -> Output:
    return Output()


@pytest.fixture
def make(tmp_path: Path, output: Output) -> Iterator[Callable[..., Program]]:
    """A program of some Python code in a folder of the test's own, which nothing outlives."""

    def make_program(code: str, **options: object) -> Program:
        settings: dict[str, object] = {"grace": PATIENCE_S, **options}
        command = [sys.executable, "-c", code]
        return Program(
            "it",
            command,
            folder=tmp_path,
            environment=os.environ,
            line=output,
            **settings,  # type: ignore[arg-type]
        )

    yield make_program
    until(lambda: not working_in(tmp_path), "all processes in the test's folder to end")


def start(program: Program, output: Output, line: str) -> None:
    """Start a program, and wait for a line of its output."""
    program.start()
    until(lambda: f"it: {line}" in output.lines, "the program")


@contextmanager
def supervised(program: Program, changed: Callable[[], None] = lambda: None) -> Iterator[tuple[Supervisor, list[str]]]:
    """Supervise a started program. Yields the supervisor and the list of its reports."""
    reports: list[str] = []
    with Requests() as requests:
        supervisor = Supervisor(requests, reports.append, changed)
        supervisor.start(program)
        yield supervisor, reports
        supervisor.stop([["it"]])


def test_a_program_that_is_asked_to_stop_ends_by_itself(make: Callable[..., Program], output: Output) -> None:
    program = make(ENDING)
    start(program, output, "ready")
    assert program.part is not None
    assert psutil.Process(program.part.pid).cmdline()[-1] == ENDING
    program.ask_to_stop()
    assert program.end()
    assert program.poll() == sentence("ended with exit code {}", 0)
    assert output.lines == ["it: ready", "it: ends by itself"]
    assert program.part is None


@pytest.mark.parametrize("reason", ["its grace is over", "it is urgent"])
def test_a_program_that_does_not_hear_is_killed(make: Callable[..., Program], output: Output, reason: str) -> None:
    program = make(DEAF, grace=0.3 if reason == "its grace is over" else PATIENCE_S)
    start(program, output, "deaf")
    began = time.monotonic()
    program.ask_to_stop()
    assert not program.end(lambda: reason == "it is urgent")
    assert time.monotonic() - began < PATIENCE_S / 2
    assert program.poll() == sentence("was killed by {}", "SIGKILL")


def test_a_command_that_is_not_there_says_so(make: Callable[..., Program], output: Output, tmp_path: Path) -> None:
    program = Program("it", ["no-such-command"], folder=tmp_path, environment=os.environ, line=output, grace=1)
    program.start()
    assert program.wait(PATIENCE_S) == sentence("ended with exit code {}", 127)
    assert output.lines == ["it: no-such-command: No such file or directory"]


def test_with_a_killed_program_its_daemons_end_too(
    make: Callable[..., Program], output: Output, tmp_path: Path
) -> None:
    program = make(FAMILY)
    start(program, output, "ready")
    assert len(working_in(tmp_path)) == 4  # with the reaper
    assert program.part is not None
    os.kill(program.part.pid, signal.SIGKILL)
    assert program.wait(PATIENCE_S) == sentence("was killed by {}", "SIGKILL")
    assert working_in(tmp_path) == []


def test_with_a_killed_reaper_all_that_it_kept_ends(
    make: Callable[..., Program], output: Output, tmp_path: Path
) -> None:
    program = make(FAMILY)
    start(program, output, "ready")
    assert program.part is not None
    psutil.Process(program.part.pid).parent().kill()  # type: ignore[union-attr]
    assert program.wait(PATIENCE_S) == sentence("ended together with its reaper")
    assert working_in(tmp_path) == []


@pytest.mark.skipif(sys.platform != "linux", reason="descendants are found on Linux only")
def test_nothing_outlives_a_holder_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, FAMILY]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        assert len(working_in(tmp_path)) == 5
        holder.kill()
    until(lambda: not working_in(tmp_path), "all of it to end")


def test_what_a_program_starts_hears_no_ctrl_c(make: Callable[..., Program], output: Output) -> None:
    program = make(ENDING)
    start(program, output, "ready")
    assert program.part is not None
    assert os.getpgid(program.part.pid) != os.getpgid(0)
    program.end_now()


def kill_each_time_it_is_ready(program: Program, supervisor: Supervisor, output: Output, times: int) -> None:
    """Kill a supervised program that often, and wait until it is ready again."""

    def is_ready_again(starts: int) -> bool:
        supervisor.look()
        return output.lines.count("it: ready") == starts

    for starts in range(1, times + 1):
        until(lambda: is_ready_again(starts), "the program to be started")  # noqa: B023
        assert program.part is not None
        os.kill(program.part.pid, signal.SIGKILL)
    until(lambda: is_ready_again(times + 1), "the program to be started again")


def test_what_died_is_started_again_and_that_is_said(
    make: Callable[..., Program], output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "BACKOFF_S", (0.05, 0.2))
    program = make(ENDING)
    changes: list[int | None] = []
    changed = lambda: changes.append(program.part.pid if program.part else None)  # noqa: E731
    with supervised(program, changed) as (supervisor, reports):
        assert supervisor.wait_until_ready(PATIENCE_S)
        kill_each_time_it_is_ready(program, supervisor, output, 3)
    waits = ["0.05", "0.1", "0.2"]
    restarts = [f"it was killed by SIGKILL; it is started again in {wait} s" for wait in waits]
    assert reports == [line for restart in restarts for line in (restart, "it was started again")]
    assert len(set(changes)) == 5, "four processes, and none between two"
    assert None in changes


def test_what_had_worked_for_a_while_is_started_again_without_a_growing_delay(
    make: Callable[..., Program], output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "BACKOFF_S", (0.05, 30.0))
    assert supervising.STEADY_S <= 5.0, "twice a minute used to double the delay up to 30 s"
    monkeypatch.setattr(supervising, "STEADY_S", 0.0)  # all of it is steady work
    program = make(ENDING)
    with supervised(program) as (supervisor, reports):
        assert supervisor.wait_until_ready(PATIENCE_S)
        kill_each_time_it_is_ready(program, supervisor, output, 5)
    assert [line for line in reports if sentence("started again in") in line] == [
        sentence("{} {}; it is started again in {} s", "it", "was killed by SIGKILL", "0.05")
    ] * 5


def test_what_ends_again_and_again_before_it_is_ready_is_an_error(
    make: Callable[..., Program], monkeypatch: pytest.MonkeyPatch, output: Output
) -> None:
    monkeypatch.setattr(supervising, "BACKOFF_S", (0.05, 0.2))
    program = make("print('cannot'); raise SystemExit(3)", check=lambda: False)
    words = sentence("{} {}, {} times, before it was ready", "it", "ended with exit code 3", 2)
    with supervised(program) as (supervisor, _), pytest.raises(WTBError, match=words):
        supervisor.wait_until_ready(PATIENCE_S)
    assert output.lines == ["it: cannot"] * 2


def test_what_is_not_ready_in_time_is_named(make: Callable[..., Program]) -> None:
    program = make(ENDING, check=lambda: False)
    with supervised(program) as (supervisor, _), pytest.raises(WTBError, match=r"not ready after 0\.3 s: it"):
        supervisor.wait_until_ready(0.3)


def test_a_second_request_hurries_the_end(make: Callable[..., Program], output: Output) -> None:
    program = make(DEAF)
    reports: list[str] = []
    with Requests() as requests:
        supervisor = Supervisor(requests, reports.append, lambda: None)
        supervisor.start(program)
        until(lambda: "it: deaf" in output.lines, "the program")
        os.kill(os.getpid(), signal.SIGTERM)
        assert requests.wait(PATIENCE_S)
        assert not requests.is_urgent()
        hurry = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        began = time.monotonic()
        hurry.start()
        supervisor.stop([["it"]])
        hurry.join()
    assert 0.25 < time.monotonic() - began < PATIENCE_S / 2
    assert program.part is None


def test_requests_are_counted_only_meanwhile() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Requests() as requests:
        assert not requests.wait(0)
        os.kill(os.getpid(), signal.SIGHUP)
        assert requests.wait(PATIENCE_S)
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_end_of_a_terminal_is_not_heeded_under_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Requests() as requests:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not requests.wait(0.05)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_each_part_has_a_log_file_that_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wtb.hosting.servers.program.MAX_BYTES", 1000)
    (tmp_path / "logs").mkdir()
    write = to_files(tmp_path / "logs")
    for number in range(100):
        write("worker", f"line {number} {'.' * 40}")
    write("scheduler", "one line")
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "logs").iterdir()}
    assert sizes.keys() == {"worker.log", "worker.log.1", "scheduler.log"}
    assert all(size < 1100 for size in sizes.values())
    assert (tmp_path / "logs" / "scheduler.log").read_text() == "one line\n"
