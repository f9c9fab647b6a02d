"""What `wtb status --stack` shows: each part of a stack, whether it runs, since when, its memory and its restarts."""

from __future__ import annotations

import contextlib

import psutil

from wtb.config.stack_file import Flower, Part, Restart, Stack
from wtb.core.documents.administration import FlowerDocument, StackDocument, StackPart
from wtb.core.serialization.plain_json import iso

PARTS = ("postgres", "valkey", "worker", "spare", "scheduler", "flower", "serve")


def stack_document(stack: Stack | None) -> StackDocument:
    """The stack for scripts. memory: bytes of a part and of all that it started."""
    if stack is None:
        return {"up": False, "pid": None, "folder": None, "since": None, "flower": None, "api": None, "parts": []}
    running = {part.name: part for part in stack.parts}
    restarts = {restart.name: restart for restart in stack.restarts}
    wanted = {"flower": stack.flower is not None, "serve": stack.api is not None, "spare": "spare" in restarts}
    names = [name for name in PARTS if name in running or wanted.get(name, True)]
    parts = [_part_document(name, running.get(name), restarts.get(name)) for name in names]
    return {
        "up": stack.ready and all(part["status"] == "up" for part in parts),
        "pid": stack.pid,
        "folder": str(stack.folder),
        "since": iso(stack.started_at),
        "flower": _flower_document(stack.flower),
        "api": stack.api,
        "parts": parts,
    }


def _flower_document(flower: Flower | None) -> FlowerDocument | None:
    return None if flower is None else {"url": flower.url, "user": flower.user, "password": flower.password}


def _part_document(name: str, part: Part | None, restart: Restart | None) -> StackPart:
    memory = None if part is None else _memory(part.pid)
    running = None if memory is None else part
    return {
        "name": name,
        "status": "up" if running else "down",
        "pid": running.pid if running else None,
        "address": part.address if part else None,
        "since": iso(running.started_at) if running else None,
        "memory": memory,
        "restarts": restart.count if restart else 0,
        "restarted_at": iso(restart.at) if restart else None,
        "restart_reason": restart.reason if restart else None,
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
