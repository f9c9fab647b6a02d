"""Tags in the environment of node processes and of what they start: by them the left over are found. Linux only."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

RUNNER = "WTB_NODE_PROCESS"  # the id of the runner that started it
PROCESS = "WTB_NODE_PROCESS_ID"  # its own, and that of everything below it

ROUNDS = 200


def tagged(tag: str) -> dict[str, list[int]]:
    """Value of the tag -> the processes of this user that carry it, but for this one."""
    found: dict[str, list[int]] = {}
    if sys.platform == "linux":
        own = os.getpid()
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != own and (value := tag_of(int(name), tag)):
                found.setdefault(value, []).append(int(name))
    return found


def tag_of(pid: int, tag: str) -> str | None:
    """What a process of this user carries as a tag; None for other processes."""
    try:
        environ = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # it has ended, or is somebody else's
        return None
    try:
        if os.fstat(environ).st_uid != os.geteuid():
            return None
        data = b"\0"
        while block := os.read(environ, 1 << 16):
            data += block
    except OSError:
        return None
    finally:
        os.close(environ)
    _, mark, rest = data.partition(f"\0{tag}=".encode())
    return rest.partition(b"\0")[0].decode("ascii", "replace") if mark else None


def kill_tagged(tag: str, value: str) -> None:
    """Kill everything that carries a value that nobody else has, and what it starts meanwhile."""
    for _ in range(ROUNDS):
        pids = tagged(tag).get(value, ())
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            return
        time.sleep(0.01)
