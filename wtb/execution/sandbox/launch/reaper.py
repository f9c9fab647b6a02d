"""The reaper of one node process: it starts the process, ends its whole tree, and reports how it ended.

Run as a script, with nothing but the standard library, so that it is small and quick to start. It lives as long as
the node process and holds one end of a leash: when the runner closes the other end, by intent or because it died,
everything that the node process started is killed. It finds daemons too, since on Linux it is the subreaper of all
its descendants. Limits are no sandbox: what user code may do, its processes may do.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import sys
import time
from typing import TypedDict

with contextlib.suppress(ModuleNotFoundError):  # on Windows, where no node runs
    import resource

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
LIMITS = {"files": "RLIMIT_NOFILE", "file_size": "RLIMIT_FSIZE", "memory": "RLIMIT_DATA"}
EVERY_S = 0.1  # between counts of the processes
RESTING_S = 0.5  # the same, once the worker has used no CPU for a while
AWAKE = 20  # counts without any, until it rests


class WorkerOptions(TypedDict):
    """The options of a reaper: its ends of the leash and of the channel, and the options of the node process.

    Attributes:
        hidden: Places that walls hide; None for no walls.
        opened: Places that stay open within hidden ones.
        closed: Directories that it cannot write.
        open: Directories that it can write although a closed one contains them.
    """

    leash: int
    channel: int
    mark: list[int]
    limits: dict[str, int | None]
    path: list[str]
    modules: str | None
    hidden: list[tuple[str, int, int]] | None
    opened: list[tuple[str, bool]]
    closed: list[str]
    open: list[str]


class Ended(TypedDict):
    """The end of a node process: its exit code, and its number of processes if they were too many."""

    code: int | None
    processes: int | None


def main() -> None:
    options: WorkerOptions = json.loads(sys.argv[1])
    leash = options["leash"]
    os.set_inheritable(leash, False)
    os.set_inheritable(options["channel"], False)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    _mark(options["mark"])
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
    os.set_blocking(wakes, False)
    # Python restarts poll() after a signal, so the end of a child has to arrive on a descriptor that poll() watches.
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    reaper_pid = os.getpid()
    worker = os.fork()
    if worker == 0:
        _become_worker(options, reaper_pid, (leash, woken, wakes))
        return
    os.close(options["channel"])
    nothing = os.open(os.devnull, os.O_RDWR)
    # A pipe ends when all its writers have closed it: otherwise the runner would never see the end of the output.
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    ended = _watch(leash, woken, worker, options["limits"].get("processes"))
    with contextlib.suppress(OSError):
        os.write(leash, json.dumps(ended).encode())
    os._exit(0)


def _become_worker(options: WorkerOptions, reaper_pid: int, closed: tuple[int, ...]) -> None:
    """Turn this fork into the node process: it dies with its reaper, and has the limits of the run."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for descriptor in closed:
        os.close(descriptor)
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The reaper died before prctl() took effect, so no signal will come.
    if os.getppid() != reaper_pid:
        os._exit(1)
    for name, resource_name in LIMITS.items():
        limit = options["limits"].get(name)
        if limit is not None:
            kind = getattr(resource, resource_name)
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (limit, limit) if hard == resource.RLIM_INFINITY else (min(limit, hard),) * 2)
    sys.path[:] = options["path"]
    if options["hidden"] is not None:
        from wtb.execution.sandbox.launch.walls import Hidden, Opened, ReadOnly, raise_walls

        hidden, opened = (
            [Hidden(*fields) for fields in options["hidden"]],
            [Opened(*fields) for fields in options["opened"]],
        )
        raise_walls(hidden, ReadOnly(options["closed"], options["open"]), opened)
    # Until everything is imported: modules stay, so that collecting meanwhile finds hardly any garbage.
    gc.disable()
    if options["modules"] is not None:
        from wtb.core.serialization.user_modules import find_modules_in, open_folder

        find_modules_in(options["modules"])
        open_folder()
    from wtb.execution.sandbox import worker_main as worker

    worker.main(options["channel"])


def _watch(leash: int, woken: int, worker: int, max_processes: int | None) -> Ended:
    """Wait until the worker ends, the runner closes the leash, or there are too many processes; then end all."""
    ready = select.poll()
    for descriptor in (leash, woken):
        ready.register(descriptor, select.POLLIN | select.POLLHUP)
    status: int | None = None
    count = still = used = 0
    while status is None and count <= (max_processes or sys.maxsize):
        pause = RESTING_S if still > AWAKE else EVERY_S
        events = dict(ready.poll(None if max_processes is None else pause * 1000))
        if leash in events:
            break
        if woken in events:
            os.read(woken, 4096)
        status = reap(worker)
        if max_processes is not None and status is None:
            count, before, used = len(descendants()), used, _cpu(worker)
            # A worker alone that uses no CPU cannot have started anything, so it is counted less often.
            still = still + 1 if count == 1 and used == before else 0
    status = _end_all(worker, status)
    code = os.waitstatus_to_exitcode(status) if status is not None else None
    return {"code": code, "processes": count if max_processes is not None and count > max_processes else None}


def _cpu(pid: int) -> int:
    """Return the ticks of CPU that a process has used; always another number if they cannot be read."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        return int(fields[11]) + int(fields[12])
    except (OSError, IndexError):
        return time.monotonic_ns()


def reap(child: int) -> int | None:
    """Reap all children that have ended. Returns the wait status of this child, if it is among them."""
    worker_status = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return worker_status
        if pid == 0:
            return worker_status
        if pid == child:
            worker_status = status


def _end_all(worker: int, status: int | None) -> int | None:
    """Kill every descendant, and those that they start meanwhile, until there is none."""
    while True:
        for pid in {*descendants(), *([worker] if status is None else [])}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reaped = reap(worker)
        status = reaped if reaped is not None else status
        try:
            # Nothing has ended since the last look. WNOWAIT leaves the status for `reap`.
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
                time.sleep(0.001)
        except ChildProcessError:
            return status


def descendants(root: int | None = None) -> list[int]:
    """Return all processes below this one, or below another one, including zombies."""
    this = os.getpid() if root is None else root
    children = _children if os.path.exists(f"/proc/{this}/task/{this}/children") else _by_parent().get
    pids = list(children(this) or ())
    for pid in pids:
        # The list grows while the loop runs over it, level by level.
        pids += children(pid) or ()
    return pids


def _children(pid: int) -> list[int]:
    """Return the children of all threads of a process; none if it has ended."""
    pids: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as children:
                pids += map(int, children.read().split())
    return pids


def _by_parent() -> dict[int, list[int]]:
    """Return the children of every process, for kernels that do not list them: a hundred times as much to read."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:
                    parent = int(stat.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(name))
    return children


def _mark(limit: list[int]) -> None:
    """Set a limit that all descendants inherit and that identifies their runner; see process_tags.py."""
    if sys.platform == "linux" and resource.getrlimit(resource.RLIMIT_RTTIME)[1] == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_RTTIME, (limit[0], limit[1]))


def _prctl(option: int, argument: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)


if __name__ == "__main__":
    main()
