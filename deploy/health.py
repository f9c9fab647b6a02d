#!/usr/bin/env python3
"""Check that a role of the stack works in this container: `wtb-health worker|scheduler|flower|server`.

A worker is asked for in the database, where its heartbeat shows; a scheduler among the processes, Flower and the server
over HTTP. Exits with 0 or 1.
"""

from __future__ import annotations

import os
import socket
import sys
import urllib.request
from collections.abc import Callable
from itertools import pairwise

URL = "WTB_DATABASE_URL"
FILES = "WTB_FILES"  # which stacks do not share that run on one machine without containers
FRESH_S = 60  # two leases


def worker() -> str:
    """Return "" if the database saw a worker process of this host lately, or else the problem."""
    from psycopg import Error

    from wtb.hosting.servers.postgres import connect

    query = """
        SELECT 1 FROM runners WHERE worker IS NOT NULL AND host = %s AND ended_at IS NULL
        AND seen_at > extract(epoch from clock_timestamp()) - %s LIMIT 1
    """
    try:
        with connect(os.environ[URL]) as connection:
            heartbeat = connection.execute(query, [socket.gethostname(), FRESH_S]).fetchone()
    except Error as error:
        return f"the database does not answer: {error}"
    return "" if heartbeat else f"no worker of {socket.gethostname()} was seen in the last {FRESH_S} s"


def scheduler() -> str:
    """Return "" if a scheduler runs in this container, or else the problem."""
    import psutil

    for process in psutil.process_iter(["cmdline", "environ", "status"]):
        command = process.info["cmdline"] or []
        runs_scheduler = any(word.endswith("wtb") and then == "scheduler" for word, then in pairwise(command))
        is_init = bool(command) and command[0].endswith("tini")  # it names the command that it started
        environment = process.info["environ"]  # a scheduler is closed to others of its user
        is_ours = not environment or environment.get(FILES) == os.environ.get(FILES)
        if runs_scheduler and not is_init and is_ours:
            stuck = process.info["status"] in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED)
            return f"the scheduler is there, but {process.info['status']}" if stuck else ""
    return "no scheduler runs here"


def flower() -> str:
    """Return "" if Flower answers, or else the problem."""
    url = f"http://127.0.0.1:{os.environ.get('WTB_FLOWER_PORT', '5555')}/healthcheck"
    try:
        with urllib.request.urlopen(url, timeout=5):
            return ""
    except OSError as error:
        return f"Flower does not answer: {error}"


def server() -> str:
    """Return "" if the server answers, or else the problem."""
    try:
        with urllib.request.urlopen("http://127.0.0.1:8765/api/v1/health", timeout=5):
            return ""
    except OSError as error:
        return f"the server does not answer: {error}"


ROLES: dict[str, Callable[[], str]] = {"worker": worker, "scheduler": scheduler, "flower": flower, "server": server}

if __name__ == "__main__":
    if sys.argv[1:2] == [] or sys.argv[1] not in ROLES:
        sys.exit(f"expected one of: {', '.join(ROLES)}")
    sys.exit(ROLES[sys.argv[1]]() or 0)
