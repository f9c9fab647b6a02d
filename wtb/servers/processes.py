"""What every server that WTB starts has in common: its user, its port on the loopback, its end."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time
from collections.abc import Sequence
from typing import Any

import psutil

from wtb.errors import StoreError

HOST = "127.0.0.1"
NOBODY = 65534


def is_root() -> bool:
    return os.geteuid() == 0


def as_server() -> dict[str, Any]:
    """Arguments of `subprocess` for a server's process: never root, deaf to the caller's PG* and locale."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if is_root() else {}
    # A session of its own: Ctrl-C in a terminal is for the owner, who then stops the server.
    return {"env": env | {"LC_ALL": "C"}, "cwd": "/", "umask": 0o077, "start_new_session": True, **user}


def free_port() -> int:
    """A port of the loopback that nobody listens on just now."""
    # Below the range from which systems take ports for outgoing connections: in there, a client that knocks
    # while the server is down can be given the server's own port and keep it from coming back.
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            # As servers do, else a port that was in use a minute ago counts as taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return port
    raise StoreError(f"none of 100 ports between 20000 and 32000 on {HOST} is free; name one")


def ended(processes: Sequence[psutil.Process], timeout: float) -> bool:
    """Whether all of them ended within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while any(map(_runs, processes)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _runs(process: psutil.Process) -> bool:
    try:
        # A zombie ended too: only its parent has not asked yet how.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
