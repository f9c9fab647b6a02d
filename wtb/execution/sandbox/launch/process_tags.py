"""Marks of node processes and their descendants, by which left over ones are found: two layers. Linux only.

The first is in the environment, which a process can give up for what it starts. The second is a limit of the kernel's
that is inherited whatever changes in environment, session, directory and descriptors: how long a process with realtime
scheduling may run without a rest (RLIMIT_RTTIME), in numbers so large that they limit nothing. Its soft value stands
for the node process, its hard value for the runner.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator

RUNNER = "WTB_NODE_PROCESS"  # the id of the runner that started it
PROCESS = "WTB_NODE_PROCESS_ID"  # its own, and that of everything below it

PATIENCE_S = 10.0
_DEATH_S = 1.0
_LIMIT = re.compile(rb"^Max realtime timeout +(\d+) +(\d+) ", re.M)
_BITS = 60


def limit_of(process: str, runner: str) -> tuple[int, int]:
    """Return the limit that stands for a node process of a runner, in microseconds: (soft, hard)."""
    return _number(process, 1 << _BITS), _number(runner, 2 << _BITS)


def _number(name: str, start: int) -> int:
    return start + (int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) >> (64 - _BITS))


def tagged(tag: str) -> dict[str, list[int]]:
    """Return other processes of this user that carry a tag in their environment, by its value."""
    pids_by_value: dict[str, list[int]] = {}
    for pid in _other_pids():
        if tag_value := tag_of(pid, tag):
            pids_by_value.setdefault(tag_value, []).append(pid)
    return pids_by_value


def limited() -> dict[int, list[int]]:
    """Return other processes of this user with the limit of a runner, by the number that stands for the runner."""
    pids_by_number: dict[int, list[int]] = {}
    for pid in _other_pids():
        _, hard = _limit(pid)
        if 2 << _BITS <= hard < 3 << _BITS:
            pids_by_number.setdefault(hard, []).append(pid)
    return pids_by_number


def is_of_runner(pid: int, runner: str) -> bool:
    """Return whether a process of this user carries a runner's mark, of either layer."""
    return tag_of(pid, RUNNER) == runner or _limit(pid)[1] == _number(runner, 2 << _BITS)


def tag_of(pid: int, tag: str) -> str | None:
    """Return the value of a tag in the environment of a process of this user; None for other processes."""
    environment = b"\0" + _read(pid, "environ")
    _, mark, rest = environment.partition(f"\0{tag}=".encode())
    return rest.partition(b"\0")[0].decode("ascii", "replace") if mark else None


def kill_tagged(tag: str, tag_value: str) -> None:
    """Kill all processes with this value of a tag, and those that they start meanwhile."""
    _kill_all(lambda pid: tag_of(pid, tag) == tag_value)


def kill_process(process: str) -> None:
    """Kill all processes that carry the mark of a node process, of either layer."""
    soft = _number(process, 1 << _BITS)
    _kill_all(lambda pid: tag_of(pid, PROCESS) == process or _limit(pid)[0] == soft)


def _kill_all(is_meant: Callable[[int], bool]) -> None:
    """Kill matching processes until none is found, for at most PATIENCE_S seconds."""
    ends = time.monotonic() + PATIENCE_S
    while True:
        ending = [handle for pid in _other_pids() if is_meant(pid) and (handle := kill(pid, is_meant)) is not None]
        wait_for(ending, _DEATH_S)
        if not ending or time.monotonic() > ends:
            return


def kill(pid: int, is_meant: Callable[[int], bool]) -> int | None:
    """Kill a process if it matches. Returns a descriptor by which to wait for its end.

    The test is repeated once a descriptor holds the process, because its number may have been reused before.
    """
    if sys.platform != "linux":
        return None
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return None
    try:
        if is_meant(pid):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            return handle
    except OSError:
        pass
    os.close(handle)
    return None


def wait_for(ending: list[int], patience_s: float) -> None:
    """Wait for the ends of processes, and close their descriptors."""
    ends = time.monotonic() + patience_s
    for handle in ending:
        # select() rejects descriptors from 1024 on, which a runner with many processes reaches.
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.poll(max(0.0, ends - time.monotonic()) * 1000)
        os.close(handle)


def _other_pids() -> Iterator[int]:
    """Yield the ids of all processes but this one; nothing outside of Linux."""
    if sys.platform == "linux":
        own = os.getpid()
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != own:
                yield int(name)


def _limit(pid: int) -> tuple[int, int]:
    match = _LIMIT.search(_read(pid, "limits"))
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _read(pid: int, name: str) -> bytes:
    """Read a file of /proc about a process of this user; empty for others, and for those that have ended."""
    content = b""
    with contextlib.suppress(OSError):
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Checked on the open descriptor: the number may have become another user's process.
            if os.fstat(descriptor).st_uid == os.geteuid():
                while block := os.read(descriptor, 1 << 16):
                    content += block
        finally:
            os.close(descriptor)
    return content
