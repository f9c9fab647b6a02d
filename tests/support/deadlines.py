"""Every test ends in time: one that hangs fails with the stacks of its threads, and holds up no other.

When a test's setup, call or teardown has taken DEADLINE_S, or the seconds of its mark `deadline`, an exception is
raised in it, so that fixtures are taken down, and again every AGAIN_S. Where that does not help, the process ends:
pytest-xdist reports the test as failed and goes on in another process, and what the ended one had started is killed.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

DEADLINE_S = 240.0
SLOW_S = 900.0  # of tests for `make test-all`
AGAIN_S = 30.0
LAST_S = 90.0  # after the deadline

Ring = Callable[[int, FrameType | None], None]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[Any]:
    with _deadline(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
    with _deadline(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[Any]:
    with _deadline(item):
        return (yield)


@contextmanager
def _deadline(item: pytest.Item) -> Iterator[None]:
    own = item.get_closest_marker("deadline")
    seconds = own.args[0] if own else SLOW_S if item.get_closest_marker("slow") else DEADLINE_S

    def fail(number: int, frame: FrameType | None) -> None:
        pytest.fail(f"still running after {seconds:g} s\n{_stacks()}", pytrace=False)

    # pytest turns this off itself where a test fails, so that it is turned on for each part.
    faulthandler.dump_traceback_later(seconds + LAST_S, exit=True, file=item.config.stash[fault_handler_stderr_fd_key])
    try:
        with alarm(seconds, fail, AGAIN_S):
            yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@contextmanager
def alarm(seconds: float, ring: Ring, interval: float = 0.0) -> Iterator[None]:
    """Call `ring` as a handler of signals after so many seconds; an alarm around this one goes on afterwards."""
    before = signal.signal(signal.SIGALRM, ring)
    outer = signal.setitimer(signal.ITIMER_REAL, seconds, interval)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *outer)


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames().items()
    return "\n".join(f"{names.get(id, id)}:\n{''.join(traceback.format_stack(frame))}" for id, frame in frames)


def folder_prefix() -> str:
    """Return the prefix of the folder names of this test process."""
    return _prefix(os.environ.get("PYTEST_XDIST_TESTRUNUID", ""), os.environ.get("PYTEST_XDIST_WORKER", ""))


def _prefix(run: str, worker: str) -> str:
    return f"wtb-tests-{run[:12]}{worker}-"


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Kill what a process of the tests that did not end by itself has left, and remove its folders."""
    if error is None:
        return
    run, worker = node.workerinput["testrunuid"], node.gateway.id
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            environ = process.environ()
            if (environ.get("PYTEST_XDIST_TESTRUNUID"), environ.get("PYTEST_XDIST_WORKER")) == (run, worker):
                process.kill()
    for place in {"/dev/shm", tempfile.gettempdir()}:
        for folder in Path(place).glob(f"{_prefix(run, worker)}*"):
            shutil.rmtree(folder, ignore_errors=True)
