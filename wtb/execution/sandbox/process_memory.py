"""The resident memory of a node process and of all that it started, measured from outside."""

from __future__ import annotations

import os
import sys

from wtb.execution.sandbox.launch.reaper import descendants

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_LARGE = 512 << 20  # bytes of a single process, of which it is not worth the time to find out what it shares


def tree_memory(reaper_pid: int) -> int:
    """Return the bytes that all processes below a reaper have in memory.

    A page that several processes share counts once, in equal parts (PSS), because forks share most of theirs.
    """
    if sys.platform != "linux":
        return _portable(reaper_pid)
    pids = descendants(reaper_pid)
    if len(pids) == 1 and (resident := _resident(pids[0])) > _LARGE:
        return resident
    return sum(map(process_memory, pids))


def process_memory(pid: int) -> int:
    """Return the bytes of one process on Linux; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as sizes:
            for line in sizes:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):  # it has ended, is a zombie, or may not be looked at so closely
        pass
    return _resident(pid)


def _resident(pid: int) -> int:
    """Return the bytes of a process with all that it shares, which takes no time; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as pages:
            return int(pages.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def _portable(reaper_pid: int) -> int:
    """Return the same, without the parts: what processes share counts for each."""
    from wtb.execution.engine.resource_usage import measured

    found = measured(reaper_pid, True, {})
    return 0 if found is None else int(found["rss"])
