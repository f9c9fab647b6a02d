"""Who runs a sweep: the identity of a process, and whether an owner is provably dead."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import psutil

from wtb.core.ids import new_id


def identity() -> dict[str, Any]:
    """This process as a row of the table of runners."""
    return {
        "id": new_id(),
        "host": socket.gethostname(),
        "boot": boot_id(),
        "pid": os.getpid(),
        "process_started_at": psutil.Process().create_time(),
    }


def boot_id() -> str:
    """What changes when the machine starts anew."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return str(int(psutil.boot_time()))


def state_of(owner: Mapping[str, Any]) -> Literal["alive", "dead", "unknown"]:
    """Whether an owner still runs: known for this machine, unknown for another one."""
    if owner["host"] != socket.gethostname():
        return "unknown"
    if owner["boot"] != boot_id():
        return "dead"
    try:
        process = psutil.Process(owner["pid"])
        started = process.create_time()
        if process.status() == psutil.STATUS_ZOMBIE:  # dead, and nobody has asked how it ended
            return "dead"
    except psutil.NoSuchProcess:
        return "dead"
    return "alive" if abs(started - owner["process_started_at"]) < 1.0 else "dead"


def may_live(owner: Mapping[str, Any]) -> bool:
    """Whether an owner may still be at work. `expired`: whether its leases have run out, where it cannot be seen."""
    state = state_of(owner)
    return state == "alive" or (state == "unknown" and not owner["expired"])


def is_not_dead(owner: Mapping[str, Any]) -> bool:
    """Whether an owner is not provably dead."""
    return state_of(owner) != "dead"
