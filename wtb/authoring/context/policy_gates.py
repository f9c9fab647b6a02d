"""Checks of nodes against policies: their tool calls, and files, hosts and programs that they use.

An audit hook sees each of these acts in the Python code of a process before it is done, and stops it by an error.
It does not see acts of C code by itself, nor of child processes.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from wtb.authoring.boundary import DecisionReport
from wtb.authoring.cedar_policies import CALL, CONNECT, START, WRITE, Decision, NodePolicies
from wtb.authoring.context.ask import Questioner
from wtb.authoring.context.attempt_record import Record
from wtb.authoring.context.audit_hook import Handler, guard
from wtb.authoring.context.connections import is_explained, name_of
from wtb.authoring.tools import ToolReport
from wtb.core.errors import PolicyDenied, ToolDenied
from wtb.core.questions import Question
from wtb.core.serialization.codec import encode
from wtb.core.serialization.plain_json import storable
from wtb.core.values import Arguments, Json

_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_CREAT | os.O_APPEND
_BYTECODE: Final = f"{os.sep}__pycache__{os.sep}"
_DEVICES: Final = ("/dev/null", "/dev/tty", "/dev/zero", "/dev/full")
_MAX_DECISIONS: Final = 1000  # decisions that are remembered in an attempt, and denials that it reports
_SUBJECT: Final = 1000  # characters of a path or a command


class ActGate:
    """Decides about the acts of one attempt.

    Args:
        policies: Of the sweep.
        facts: What is known of the attempt.
        record: Of the attempt.
        own_folders: The folders of workspaces and stored files, in which writes are always allowed.
    """

    def __init__(
        self, policies: NodePolicies, facts: Mapping[str, str], record: Record, own_folders: Sequence[str]
    ) -> None:
        self.actions = policies.actions
        self._policies = policies
        self._facts = facts
        self._record = record
        self._own = tuple(os.path.join(os.path.realpath(folder), "") for folder in own_folders)
        self._decisions: dict[tuple[str, str], Decision] = {}
        self._reported: set[tuple[object, ...]] = set()

    def check_write(self, path: str) -> None:
        """Decide about writing, replacing or removing a file or a folder. Raises PolicyDenied."""
        # Links are followed first, or a link inside the workspace could lead to any file.
        real = os.path.realpath(path)
        # Python writes bytecode by itself on import, which no node decides.
        if f"{real}{os.sep}".startswith(self._own) or real in _DEVICES or _BYTECODE in f"{real}{os.sep}":
            return
        self._check(WRITE, "File", real, {"path": real})

    def check_folder(self, path: str) -> None:
        """Decide about making a folder; WTB makes those that lead to its own. Raises PolicyDenied."""
        real = os.path.join(os.path.realpath(path), "")
        if not any(folder.startswith(real) for folder in self._own):
            self.check_write(path)

    def check_connection(self, host: str, address: str, port: int) -> None:
        """Decide about a connection. Raises PolicyDenied."""
        facts: dict[str, Json] = {"host": host.rstrip(".").lower(), "address": address, "port": port}
        self._check(CONNECT, "Host", f"{facts['host']}:{port}", facts)

    def check_program(self, command: str) -> None:
        """Decide about starting a program. Raises PolicyDenied."""
        self._check(START, "Program", command, {"command": command})

    def _check(self, action: str, kind: str, subject: str, facts: Mapping[str, Json]) -> None:
        if action not in self.actions:
            return
        subject = storable(subject, _SUBJECT)
        # Decisions are kept because a node may open the same file thousands of times, and Cedar takes its time.
        decision = self._decisions.get((action, subject))
        if decision is None:
            decision = self._policies.decide_act(action, (kind, subject), {**self._facts, **facts})
            if len(self._decisions) < _MAX_DECISIONS:
                self._decisions[action, subject] = decision
        self._report(action, subject, decision)
        if not decision.allowed:
            raise PolicyDenied(f"{action} ({subject}) is denied: {decision.why}")

    def _report(self, action: str, subject: str, decision: Decision) -> None:
        """Report a decision: of those that allow, once for each action and the policies that permit it."""
        key = (action, decision.rules) if decision.allowed else (action, subject)
        if key in self._reported or len(self._reported) >= _MAX_DECISIONS or os.getpid() != _acting.process:
            return
        self._reported.add(key)
        self._record.report(
            "decided",
            {
                "action": action,
                "on": subject,
                "at": time.time(),
                "allowed": decision.allowed,
                "rules": list(decision.rules),
                "errors": list(decision.errors),
                "arguments": None,
                "asked": False,
                "answered_by": None,
            },
        )


class _Acting:
    """The attempts that run in this process.

    Attributes:
        process: The process that reports decisions. Processes that it forks only stop denied acts.
        gates: Of the attempts, by their identity.
        owns_process: Whether nothing but user code acts in this process.
    """

    def __init__(self) -> None:
        self.process = 0
        self.gates: dict[int, ActGate] = {}
        self.owns_process = False
        self.deciding = threading.local()

    def decide(self, act: Callable[[ActGate], None]) -> None:
        """Check an act with the gate of the attempt that acts; for a thread of no attempt, with any gate."""
        gate = _present.get()
        # Threads without context variables would escape the policies otherwise.
        if gate is None and self.owns_process:
            gate = next(iter(self.gates.copy().values()), None)
        if gate is None or getattr(self.deciding, "now", False):
            return
        self.deciding.now = True  # what a decision itself does is not asked about
        try:
            act(gate)
        finally:
            self.deciding.now = False


_acting = _Acting()
_present: ContextVar[ActGate | None] = ContextVar("wtb_act_gate", default=None)


@contextmanager
def guarded(gate: ActGate, *, owns_process: bool) -> Iterator[None]:
    """Check acts of user code in the block against policies.

    Args:
        gate: Of the attempt.
        owns_process: Nothing but user code acts in this process.
    """
    guard(_HANDLERS)
    _acting.process, _acting.owns_process = os.getpid(), owns_process
    _acting.gates[id(gate)] = gate
    token = _present.set(gate)
    try:
        yield
    finally:
        _present.reset(token)
        _acting.gates.pop(id(gate), None)


def _opened(path: Any, _: Any, flags: int) -> None:
    if flags & _WRITES:
        _changed(path)


def _changed(path: Any, *_: Any) -> None:
    if not isinstance(path, int):  # a descriptor, which was opened before
        _acting.decide(lambda gate: gate.check_write(os.fsdecode(path)))


def _made_folder(path: Any, *_: Any) -> None:
    _acting.decide(lambda gate: gate.check_folder(os.fsdecode(path)))


def _moved(source: Any, target: Any, *_: Any) -> None:
    _changed(source)
    _changed(target)


def _linked(_: Any, target: Any, *__: Any) -> None:
    _changed(target)


def _database(path: Any) -> None:
    """Check an SQLite file, which C code opens for writing, unless it is opened by a URI that prevents it."""
    text = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
    if text not in ("", ":memory:") and "mode=memory" not in text and "mode=ro" not in text:
        _changed(text.removeprefix("file:").partition("?")[0] if text.startswith("file:") else text)


def _connected(connection: Any, address: Any) -> None:
    if address is None or connection.family not in (socket.AF_INET, socket.AF_INET6) or is_explained():
        return
    host, port = str(address[0]), int(address[1])
    _acting.decide(lambda gate: gate.check_connection(name_of(host), host, port))


def _started(program: Any, arguments: Any = (), *_: Any) -> None:
    words = [arguments] if isinstance(arguments, (str, bytes)) else [*arguments]
    command = " ".join(os.fsdecode(word) for word in words) or os.fsdecode(program)
    _acting.decide(lambda gate: gate.check_program(command))


_HANDLERS: Final[Mapping[str, Handler]] = {
    "open": _opened,
    "os.chmod": _changed,
    "os.chown": _changed,
    "os.link": _linked,
    "os.mkdir": _made_folder,
    "os.remove": _changed,
    "os.rename": _moved,
    "os.rmdir": _changed,
    "os.symlink": _linked,
    "os.truncate": _changed,
    "os.utime": _changed,
    "sqlite3.connect": _database,
    "socket.connect": _connected,
    "socket.sendto": _connected,
    "socket.sendmsg": _connected,
    "subprocess.Popen": _started,
    "os.exec": _started,
    "os.posix_spawn": _started,
    "os.system": lambda command: _started(command),
}


_NAMED = 200  # characters of arguments in the text of a question, whose context has them whole


class ToolGate:
    """Decides about the calls of one attempt.

    One approval is for one call: a call that was approved and made by an earlier attempt is not made again, and one
    that failed is asked about anew.

    Args:
        policies: Of the sweep.
        facts: What is known of the attempt.
        record: Of the attempt.
        questioner: Asks people.
        earlier: Calls that attempts of this node run have made, in order.
    """

    def __init__(
        self,
        policies: NodePolicies,
        facts: Mapping[str, str],
        record: Record,
        questioner: Questioner,
        earlier: Iterable[ToolReport] = (),
    ) -> None:
        self._policies = policies
        self._facts = facts
        self._record = record
        self._questioner = questioner
        self._lock = threading.Lock()
        self._results: dict[tuple[str, str], list[str]] = {}
        self._failures: Counter[tuple[str, str]] = Counter()
        self._calls: Counter[tuple[str, str]] = Counter()
        self._replayed: Counter[tuple[str, str]] = Counter()
        self._reported: set[tuple[str, tuple[str, ...]]] = set()
        for call in earlier:
            key = (call["tool"], call["arguments"])
            if call["status"] == "done" and call["result"] is not None:
                self._results.setdefault(key, []).append(call["result"])
            else:
                self._failures[key] += 1

    def check(self, tool: str, arguments: Arguments, stored: str, result: str | None) -> str | None:
        """Decide about a call before it is made.

        Args:
            tool: The name of the tool.
            arguments: Those of the call, by name.
            stored: The same as typed JSON.
            result: What an earlier attempt's call returned, if this one is not to be made anyway.

        Returns:
            The result of an earlier call, as typed JSON; None if this one is to be made.

        Raises:
            ToolDenied: If policies or a person deny it.
            Asked: If a person has to approve it first.
        """
        key = (tool, stored)
        with self._lock:
            # Failed calls of earlier attempts count, so that their approval is not taken for one of this call.
            number = self._calls[key] + self._failures[key]
            self._calls[key] += 1
            if result is not None:
                self._replayed[key] += 1
                return result
        decision = self._policies.decide_call(tool, arguments, self._facts)
        if decision.allowed:
            self._note_allowed(tool, decision)
            return None
        if decision.question is None:
            self._report(tool, decision, stored)
            raise ToolDenied(f"tool {tool!r} may not be called with these arguments: {decision.why}")
        with self._lock:
            results = self._results.get(key, ())
            # An approved call that was made already must not be made twice. Its result is returned instead.
            if self._replayed[key] < len(results):
                self._replayed[key] += 1
                return results[self._replayed[key] - 1]
        self._ask(tool, arguments, stored, decision, number)
        return None

    def _ask(self, tool: str, arguments: Arguments, stored: str, decision: Decision, number: int) -> None:
        """Return if a person has approved a call. Raises Asked, or ToolDenied if they rejected it."""
        call_text = storable(", ".join(f"{name}={argument!r}" for name, argument in arguments.items()), _NAMED)
        text = f"{decision.question} " if decision.question else ""
        call = {"tool": tool, "arguments": dict(arguments), "policies": list(decision.rules), **self._facts}
        question = Question(
            "ask", self._questioner.task, f"{text}Call {tool}({call_text})?", number, context=encode(call)
        )
        answer = self._questioner.approval(question, lambda: self._report(tool, decision, stored, is_asked=True))
        if answer is None:
            self._report(tool, decision, stored)
            raise ToolDenied(f"tool {tool!r} may not be called: {decision.why}, and no person can approve it")
        approved = Decision(answer.action != "reject", decision.rules)
        self._report(tool, approved, stored, answered_by=answer.by)
        if not approved.allowed:
            raise ToolDenied(f"tool {tool!r} may not be called: {decision.why}, and it was {answer.refusal}")

    def _note_allowed(self, tool: str, decision: Decision) -> None:
        """Report that calls are allowed, once for each tool and the policies that permit it."""
        key = (tool, decision.rules)
        if key not in self._reported:
            self._reported.add(key)
            self._report(tool, decision, None)

    def _report(
        self,
        tool: str,
        decision: Decision,
        arguments: str | None,
        *,
        is_asked: bool = False,
        answered_by: str | None = None,
    ) -> None:
        report: DecisionReport = {
            "action": CALL,
            "on": tool,
            "at": time.time(),
            "allowed": decision.allowed,
            "rules": list(decision.rules),
            "errors": list(decision.errors),
            "arguments": arguments,
            "asked": is_asked,
            "answered_by": answered_by,
        }
        self._record.report("decided", report)
