"""Keeps a command on a leash: its whole tree ends when the command does, and when nobody holds the other end.

Run as `python -m wtb.hosting.servers.child_reaper DESCRIPTOR COMMAND...`. The descriptor is a socket: a `T` on it is
passed on to the command as SIGTERM, its end kills the tree. It says `pid N` and, at the end, `code N`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable

from wtb.execution.sandbox.reaper import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, descendants, reap


def main(leash: int, command: list[str]) -> None:
    os.set_inheritable(leash, False)
    prctl = _prctl()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    woken, wakes = os.pipe()
    for end in (woken, wakes):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    for deaf in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # whoever holds the leash decides
        signal.signal(deaf, signal.SIG_IGN)
    keeper = os.getpid()
    child = os.fork()
    if child == 0:
        for normal in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(normal, signal.SIG_DFL)
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == keeper:
            with contextlib.suppress(OSError):
                os.execvp(command[0], command)
        os._exit(127)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):  # else nobody would see the end of the output
        os.dup2(nothing, standard)
    _tell(leash, f"pid {child}")
    _tell(leash, f"code {_watch(leash, woken, child)}")


def _watch(leash: int, woken: int, child: int) -> int:
    """Wait until the command ends or nobody holds the leash, then end the tree. Returns its exit code."""
    ready = select.poll()
    for descriptor in (leash, woken):
        ready.register(descriptor, select.POLLIN | select.POLLHUP)
    status = reap(child)
    while status is None:
        events = dict(ready.poll())
        if leash in events:
            try:
                said = os.read(leash, 64)
            except OSError:
                said = b""
            if not said:
                break
            os.kill(child, signal.SIGTERM)
        if woken in events:
            os.read(woken, 4096)
        status = reap(child)
    return os.waitstatus_to_exitcode(_end_all(child, status))


def _end_all(child: int, status: int | None) -> int:
    """Kill every descendant, and those that they start meanwhile, until there is none."""
    while True:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # its group: where descendants are not known
            os.killpg(child, signal.SIGKILL)
        for pid in descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        found = reap(child)
        status = found if status is None else status
        try:
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
                time.sleep(0.001)
        except ChildProcessError:
            return 0 if status is None else status


def _tell(leash: int, what: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        os.write(leash, f"{what}\n".encode())


def _prctl() -> Callable[[int, int], object]:
    """Loaded before the fork, after which only little may be done."""
    if sys.platform != "linux":
        return lambda option, value: None
    import ctypes

    call = ctypes.CDLL(None).prctl
    return lambda option, value: call(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
