"""Searches with patterns of users, which may take for ever while Python's `re` blocks the interpreter.

The deadline of a node process ends such a search with the process. If user code shares the runner's process, searches
run in separate processes, which end at the deadline: in the runner, a search would block everything, deadlines too.
"""

from __future__ import annotations

import json
import math
import re
import select
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from wtb.core.errors import NodeTimeout, WTBError
from wtb.core.stop import Stopped
from wtb.core.values import Json

_PATTERNS = ('"pattern"', '"patternProperties"')

# The other process. Its alarm ends it if the process that waits for it has died.
_CODE = """
import json, re, signal, sys

for line in sys.stdin:
    kind, seconds, what, where = json.loads(line)
    signal.alarm(seconds)
    try:
        if kind == "search":
            answer = re.search(what, where) is not None
        else:
            from wtb.authoring.evaluation.json_schemas import fits

            answer = fits(what, where)
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    signal.alarm(0)
    print(json.dumps(answer), flush=True)
"""


class Searchers:
    """Processes that search, as many as there are searches at a time. Threads share them."""

    def __init__(self) -> None:
        self._idle: list[subprocess.Popen[str]] = []
        self._busy: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def ask(self, kind: str, what: Any, where: Any, seconds: float) -> bool:
        """Search in another process. Raises NodeTimeout, Stopped after `close`, or WTBError if the search failed."""
        process = self._take()
        try:
            # The alarm comes after this side's deadline, because it is only for the case that this side has died.
            answer = _ask(process, json.dumps([kind, math.ceil(seconds) + 1, what, where]), seconds)
        except BaseException:
            self._drop(process)
            if self._closed:
                raise Stopped("the run has stopped") from None
            raise
        self._give(process)
        if isinstance(answer, str):
            raise WTBError(answer)
        return bool(answer)

    def _take(self) -> subprocess.Popen[str]:
        with self._lock:
            if self._closed:
                raise Stopped("the run has stopped")
            if self._idle:
                process = self._idle.pop()
            else:
                # `-P` keeps modules in the working directory, which is the user's, from shadowing those of the standard
                # library.
                command = [sys.executable, "-P", "-c", _CODE]
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self._busy.add(process)
            return process

    def _give(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._busy.discard(process)
            self._idle.append(process)
            # `close` may have run during the search, when this process was not idle.
            closed = self._closed
        if closed:
            self.close()

    def _drop(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._busy.discard(process)
        _end(process)

    def close(self) -> None:
        """End all processes; callers that wait for an answer get Stopped."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for process in self._busy:
                # The thread that waits for it then reads the end of the stream, and `ask` raises Stopped.
                process.kill()
        for process in idle:
            _end(process)


def _ask(process: subprocess.Popen[str], line: str, seconds: float) -> Any:
    assert process.stdin is not None, "it is a pipe"
    assert process.stdout is not None, "it is a pipe"
    ends = time.monotonic() + seconds
    try:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    except OSError as error:
        raise WTBError(f"the process that searches has ended: {error}") from error
    ready = select.poll()
    ready.register(process.stdout, select.POLLIN)
    if not ready.poll(max(0.0, ends - time.monotonic()) * 1000):
        raise NodeTimeout(f"still searching at its deadline of {seconds:g} s; its process was ended")
    answer = process.stdout.readline()
    if not answer:
        raise WTBError("the process that searches ended before it answered")
    return json.loads(answer)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except OSError:  # unsent input, which cannot be flushed
                continue


_apart: ContextVar[Searchers | None] = ContextVar("searchers", default=None)
_seconds: ContextVar[float] = ContextVar("seconds", default=math.inf)


@contextmanager
def apart(searchers: Searchers) -> Iterator[None]:
    """Search in other processes, within the block."""
    token = _apart.set(searchers)
    try:
        yield
    finally:
        _apart.reset(token)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Limit the seconds of each search in the block that another process makes."""
    token = _seconds.set(seconds)
    try:
        yield
    finally:
        _seconds.reset(token)


def search(pattern: str, text: str) -> bool:
    """Return whether a pattern is found in a text. Raises NodeTimeout."""
    searchers = _apart.get()
    if searchers is None or not isinstance(pattern, str):
        return re.search(pattern, text) is not None
    return searchers.ask("search", pattern, text, _seconds.get())


def fits(schema: Mapping[str, Json], document: Any) -> bool:
    """Return whether a value fits a JSON schema, which may have patterns. Raises NodeTimeout."""
    searchers = _apart.get()
    if searchers is not None and _may_search(schema, document):
        return searchers.ask("fit", schema, document, _seconds.get())
    from wtb.authoring.evaluation.json_schemas import fits  # which takes its time to import

    return fits(schema, document)


def _may_search(schema: Mapping[str, Json], document: Any) -> bool:
    """Return whether a schema has patterns, and the value can be handed on as it is."""
    try:
        plain = json.loads(json.dumps(document)) == document
        return plain and any(word in json.dumps(schema) for word in _PATTERNS)
    except (TypeError, ValueError, RecursionError):
        return False


def pattern_problem(pattern: str) -> str | None:
    """Return the problem of a regular expression, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"{pattern!r:.100}, which is not a regular expression ({error}); expected one as Python's `re` takes it"
    return None
