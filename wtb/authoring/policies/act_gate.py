"""Holding files that nodes write, hosts that they connect to and programs that they start against policies.

An audit hook sees each of these acts in the Python code of a process before it is done, and stops it by an error.
It does not see what C code does by itself, nor what child processes do.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from wtb.authoring.context.attempt_record import Record
from wtb.authoring.context.audit_hook import Handler, guard
from wtb.authoring.context.connections import is_explained, name_of
from wtb.authoring.policies.cedar import Decision
from wtb.authoring.policies.recorded import CONNECT, START, WRITE, NodePolicies
from wtb.core.errors import PolicyDenied
from wtb.core.serialization.plain_json import storable
from wtb.core.values import Json

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
        own_folders: Where WTB keeps workspaces and stored files: what is written there is not asked about.
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
        real = os.path.realpath(path)
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
        process: The one that reports what it decides: processes that it forks only stop what is denied.
        gates: Of the attempts, by their identity.
        owns_process: Whether nothing but user code acts in this process.
    """

    def __init__(self) -> None:
        self.process = 0
        self.gates: dict[int, ActGate] = {}
        self.owns_process = False
        self.deciding = threading.local()

    def decide(self, act: Callable[[ActGate], None]) -> None:
        """Let the attempt decide that acts; of a thread that belongs to no attempt, any that runs here."""
        gate = _present.get()
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
    """Hold what user code does meanwhile against policies.

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
    """An SQLite file, which C code opens for writing, unless it is opened by a URI that says otherwise."""
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
