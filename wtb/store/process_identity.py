"""The identity of the process that runs a sweep, and whether an owner is provably dead."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

import psutil

from wtb.core.frozen import frozen
from wtb.core.ids import new_id


class Owner(Protocol):
    """The attributes that identify a process, running or not."""

    @property
    def host(self) -> str: ...
    @property
    def boot(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def process_started_at(self) -> float: ...


@frozen(slots=True)
class ProcessIdentity:
    """A process on a machine that is running since a boot.

    Attributes:
        id: The id of the runner.
        host: The name of the machine.
        boot: An id that changes when the machine restarts.
        pid: Its number, which another process may get once it has ended.
        process_started_at: When it started, as `started_at` returns it.
    """

    id: str
    host: str
    boot: str
    pid: int
    process_started_at: float


@frozen(slots=True)
class WorkerIdentity(ProcessIdentity):
    """A process that is a worker: its name, its queues, and its number of slots."""

    worker: str
    queues: Sequence[str | None]
    slots: int
    version: str


_START_TIME = 19  # of the fields of /proc/PID/stat behind the name of the process
_EPOCH_S = 1e9  # no machine has been up for as many seconds
_next_ids: list[str] = []


def next_runner_id() -> str:
    """Return the id that the next runner of this process will have."""
    if not _next_ids:
        _next_ids.append(new_id())
    return _next_ids[0]


def identity() -> ProcessIdentity:
    """Return this process, as a new runner."""
    started = started_at(os.getpid())
    return ProcessIdentity(
        _next_ids.pop() if _next_ids else new_id(), socket.gethostname(), boot_id(), os.getpid(), started
    )


def started_at(pid: int, owner: Owner | None = None) -> float:
    """Return when a process started, in seconds since the boot.

    On Linux no correction of the clock changes these. Seconds since the epoch would change with it, and a living
    process would look dead. On other systems only those are available.

    Args:
        pid: The process.
        owner: The owner whose start it is compared with: older versions stored seconds since the epoch.

    Raises:
        psutil.NoSuchProcess: If it has ended.
    """
    if owner is not None and owner.process_started_at > _EPOCH_S:
        return psutil.Process(pid).create_time()
    try:
        # The name, in parentheses, may contain spaces and parentheses itself, so the fields are counted from its end.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[_START_TIME]) / os.sysconf("SC_CLK_TCK")
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            raise psutil.NoSuchProcess(pid) from None
    except ProcessLookupError:
        raise psutil.NoSuchProcess(pid) from None
    return psutil.Process(pid).create_time()


def boot_id() -> str:
    """Return an id that changes when the machine restarts."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return str(int(psutil.boot_time()))


def state_of(owner: Owner) -> Literal["alive", "dead", "unknown"]:
    """Return whether an owner still runs, which is known for this machine only."""
    if owner.host != socket.gethostname():
        return "unknown"
    if owner.boot != boot_id():
        return "dead"
    try:
        process = psutil.Process(owner.pid)
        started = started_at(owner.pid, owner)
        if process.status() == psutil.STATUS_ZOMBIE:  # dead, but not reaped by its parent
            return "dead"
    except psutil.NoSuchProcess:
        return "dead"
    # Another process may have got the number since; it started at another time.
    return "alive" if abs(started - owner.process_started_at) < 1.0 else "dead"


def may_live(owner: Owner, *, expired: bool) -> bool:
    """Return whether an owner may still be at work. If it is on another machine, `expired` leases mean that it is
    not.
    """
    state = state_of(owner)
    return state == "alive" or (state == "unknown" and not expired)


def is_not_dead(owner: Owner) -> bool:
    """Return whether an owner is not provably dead."""
    return state_of(owner) != "dead"
