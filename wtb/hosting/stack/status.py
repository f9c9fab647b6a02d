"""What `wtb status --stack` shows: each part of a stack, whether it runs, since when, its memory and its restarts."""

from __future__ import annotations

import contextlib
from typing import Any

import psutil

from wtb.config.stack_file import Stack
from wtb.core.serialization.plain_json import iso

PARTS = ("postgres", "valkey", "worker", "scheduler", "flower")


def stack_document(stack: Stack | None) -> dict[str, Any]:
    """The stack for scripts. memory: bytes of a part and of all that it started."""
    if stack is None:
        return {"up": False, "pid": None, "folder": None, "since": None, "flower": None, "parts": []}
    running = {part.name: part for part in stack.parts}
    restarts = {restart.name: restart for restart in stack.restarts}
    names = [name for name in PARTS if name in running or name != "flower" or stack.flower is not None]
    parts = []
    for name in names:
        part = running.get(name)
        memory = _memory(part.pid) if part is not None else None
        is_up = part is not None and memory is not None
        restart = restarts.get(name)
        parts.append(
            {
                "name": name,
                "status": "up" if is_up else "down",
                "pid": part.pid if part is not None and is_up else None,
                "address": part.address if part is not None else None,
                "since": iso(part.started_at) if part is not None and is_up else None,
                "memory": memory,
                "restarts": restart.count if restart is not None else 0,
                "restarted_at": iso(restart.at) if restart is not None else None,
                "restart_reason": restart.reason if restart is not None else None,
            }
        )
    flower = stack.flower
    return {
        "up": stack.ready and all(part["status"] == "up" for part in parts),
        "pid": stack.pid,
        "folder": str(stack.folder),
        "since": iso(stack.started_at),
        "flower": {"url": flower.url, "user": flower.user, "password": flower.password} if flower else None,
        "parts": parts,
    }


def _memory(pid: int) -> int | None:
    """Bytes of a process and all that it started, what they share counted once; None where it has ended."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return None
    total = 0
    for one in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            try:
                full = one.memory_full_info()
                total += getattr(full, "pss", full.uss)
            except psutil.AccessDenied:
                total += one.memory_info().rss
    return total
