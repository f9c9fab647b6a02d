"""What `wtb status --stack` shows: each part of a stack, whether it runs, since when, its memory and its restarts."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import Any

import psutil

from wtb.config.stack_file import Part, Restart, Stack
from wtb.core.serialization.plain_json import iso

PARTS = ("postgres", "valkey", "worker", "scheduler", "flower", "serve")


def stack_document(stack: Stack | None) -> dict[str, Any]:
    """The stack for scripts. memory: bytes of a part and of all that it started."""
    if stack is None:
        return {"up": False, "pid": None, "folder": None, "since": None, "flower": None, "api": None, "parts": []}
    running = {part.name: part for part in stack.parts}
    restarts = {restart.name: restart for restart in stack.restarts}
    wanted = {"flower": stack.flower is not None, "serve": stack.api is not None}
    names = [name for name in PARTS if name in running or wanted.get(name, True)]
    parts = [_part_document(name, running.get(name), restarts.get(name)) for name in names]
    return {
        "up": stack.ready and all(part["status"] == "up" for part in parts),
        "pid": stack.pid,
        "folder": str(stack.folder),
        "since": iso(stack.started_at),
        "flower": None if stack.flower is None else asdict(stack.flower),
        "api": stack.api,
        "parts": parts,
    }


def _part_document(name: str, part: Part | None, restart: Restart | None) -> dict[str, Any]:
    memory = None if part is None else _memory(part.pid)
    running = None if memory is None else part
    return {
        "name": name,
        "status": "up" if running else "down",
        "pid": running and running.pid,
        "address": part and part.address,
        "since": running and iso(running.started_at),
        "memory": memory,
        "restarts": restart.count if restart else 0,
        "restarted_at": restart and iso(restart.at),
        "restart_reason": restart and restart.reason,
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
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            try:
                full = member.memory_full_info()
                total += getattr(full, "pss", full.uss)
            except psutil.AccessDenied:
                total += member.memory_info().rss
    return total
