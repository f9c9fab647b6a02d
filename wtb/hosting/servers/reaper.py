"""Runs one command, and ends its whole tree when the command ends or when nobody holds the other end of its pipe.

Run as `python -m wtb.hosting.servers.reaper OPTIONS COMMAND...`, with options as JSON: `leash`, the pipe to read from;
`lock`, a descriptor to keep open until all has ended; `user`, the user of the command; `kill_signal`, which ends the
command at once. Each byte from the pipe is the number of a signal for the command; its end means to end all. The first
line of the output is the process id of the command. The exit code is that of the command, and 128 + N for signal N.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import TypedDict

from wtb.execution.sandbox.launch.reaper import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, descendants, reap

KILL_S = 5.0  # from the kill signal of the command to SIGKILL
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # whoever holds the pipe decides


class Options(TypedDict):
    """The options of a reaper. `leash` and `lock` are descriptors; `kill_signal` ends the command at once."""

    leash: int
    lock: list[int]
    user: int | None
    kill_signal: int


def main(options: Options, command: list[str]) -> int:
    """Run a command to its end. Returns the exit code."""
    leash = options["leash"]
    for inherited in (leash, *options["lock"]):
        os.set_inheritable(inherited, False)
    prctl = _load_prctl()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    woken, wakes = os.pipe()
    for end in (woken, wakes):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _execute(command, options["user"], parent, prctl)
    nothing = os.open(os.devnull, os.O_RDWR)
    # A pipe ends when all its writers have closed it: otherwise its reader would never see the end of the output.
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    code = os.waitstatus_to_exitcode(_end_all(child, _watch(leash, woken, child, options["kill_signal"])))
    return code if code >= 0 else 128 - code


def _execute(command: list[str], user: int | None, parent: int, prctl: Callable[[int, int], object]) -> None:
    """Become the command. Never returns."""
    # Signals that are ignored stay so after exec, and nothing could stop the command.
    for number in (signal.SIGCHLD, *_IGNORED):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    try:
        if user is not None:
            # Groups before the user, who has no right to change them.
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        # After the change of the user, because the kernel clears the setting when credentials change.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # The reaper may have died before the setting; then no signal would come.
        if os.getppid() == parent:
            os.write(1, f"{os.getpid()}\n".encode())
            os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def _watch(leash: int, woken: int, child: int, kill_signal: int) -> int | None:
    """Wait until the command has ended; the end of the pipe kills it. Returns its wait status, if it is known."""
    ready = select.poll()
    for descriptor in (leash, woken):
        ready.register(descriptor, select.POLLIN | select.POLLHUP)
    ends: float | None = None
    while (status := reap(child)) is None and (ends is None or time.monotonic() < ends):
        events = dict(ready.poll(None if ends is None else 1000 * max(0.0, ends - time.monotonic())))
        if woken in events:
            os.read(woken, 4096)
        if leash in events:
            numbers = os.read(leash, 64)
            for number in numbers or (kill_signal,):
                os.kill(child, number)
            if not numbers:
                ends = time.monotonic() + KILL_S
                ready.unregister(leash)
    return status


def _end_all(child: int, status: int | None) -> int:
    """Kill every descendant, and those that they start meanwhile, until there is none. Returns the wait status."""
    while True:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # its group: where descendants are not known
            os.killpg(child, signal.SIGKILL)
        for pid in descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reaped = reap(child)
        status = reaped if status is None else status
        try:
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
                time.sleep(0.001)
        except ChildProcessError:
            return 0 if status is None else status


def _load_prctl() -> Callable[[int, int], object]:
    """Return `prctl`, loaded before the fork, after which only little may be done."""
    if sys.platform != "linux":
        return lambda option, argument: None
    import ctypes

    call = ctypes.CDLL(None).prctl
    return lambda option, argument: call(option, argument, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), sys.argv[2:]))
