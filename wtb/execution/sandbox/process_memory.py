"""The resident memory of a node process and of all that it started, measured from outside."""

from __future__ import annotations

import os
import sys

from wtb.execution.sandbox.launch.reaper import descendants

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def tree_memory(reaper_pid: int) -> int:
    """Return the bytes that all processes below a reaper have in memory.

    A page that several processes share counts once, in equal parts (PSS), because forks share most of theirs.
    """
    if sys.platform != "linux":
        return _portable(reaper_pid)
    return sum(map(process_memory, descendants(reaper_pid)))


def process_memory(pid: int) -> int:
    """Return the bytes of one process on Linux; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as sizes:
            for line in sizes:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):  # it has ended, is a zombie, or may not be looked at so closely
        pass
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
