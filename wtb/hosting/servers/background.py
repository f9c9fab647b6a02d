"""A stack without a terminal: started in the background, watched until it is ready, and stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from wtb.config.credentials import credentials_pipe, known_credentials
from wtb.config.stack_file import HOME, Flower, Part, Restart, Stack, find_stack, process_mark
from wtb.core.documents.administration import FlowerDocument, StackDocument, StackPart
from wtb.core.errors import WTBError
from wtb.core.serialization.plain_json import iso
from wtb.hosting.servers.server import make_folder

LOGS = f"{HOME}/logs"
ENDED_S = 120.0


def start_detached(folder: Path, options: Sequence[str], report: Callable[[str], None]) -> int:
    """Run `wtb up OPTIONS` in the background, and return once its stack is ready or it has ended.

    Args:
        folder: The folder of the stack.
        options: Options of `wtb up`.
        report: Called with each line that it logs meanwhile.

    Returns:
        0 if the stack is ready, else the exit code.
    """
    make_folder(folder / HOME)
    make_folder(folder / LOGS)
    log = folder / LOGS / "wtb.log"
    log.touch(mode=0o600)
    with (
        log.open("ab") as output,
        log.open("rb") as lines,
        credentials_pipe(**known_credentials()) as (environment, inherited),
    ):
        lines.seek(0, os.SEEK_END)
        background = subprocess.Popen(
            [sys.executable, "-P", "-m", "wtb", "up", *options, "--background"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=inherited,
            # So that it outlives this terminal, and gets none of its Ctrl-C.
            start_new_session=True,
        )
        try:
            while True:
                # The log is read last: what was written before the stack was ready, or ended, is reported.
                code, stack = background.poll(), find_stack(folder)
                for line in lines:
                    report(line.decode("utf-8", "replace").rstrip("\n"))
                if stack is not None and stack.ready and stack.pid == background.pid:
                    return 0
                if code is not None:
                    return code or WTBError.exit_code
                time.sleep(0.05)
        except KeyboardInterrupt:
            background.send_signal(signal.SIGTERM)
            background.wait()
            raise


def stop_stack(stack: Stack) -> None:
    """Stop a stack, and wait until nothing of it is left. Raises WTBError if that takes too long."""
    # The number alone could have been given to another process, which must not be killed or waited for.
    mark = process_mark(stack.pid)
    with contextlib.suppress(ProcessLookupError):
        if mark is not None:
            os.kill(stack.pid, signal.SIGTERM)
    ends = time.monotonic() + ENDED_S
    while mark is not None and process_mark(stack.pid) == mark:
        if time.monotonic() > ends:
            raise WTBError(
                f"the stack (process {stack.pid}) has not ended after {ENDED_S:g} s; "
                f"`kill -9 {stack.pid}` ends all of it"
            )
        time.sleep(0.05)


PARTS = ("postgres", "valkey", "worker", "spare", "scheduler", "flower", "serve")


def stack_document(stack: Stack | None) -> StackDocument:
    """Make the document of a stack. `memory` counts bytes of a part and of everything that it started."""
    if stack is None:
        return {"up": False, "pid": None, "folder": None, "since": None, "flower": None, "api": None, "parts": []}
    running = {part.name: part for part in stack.parts}
    restarts = {restart.name: restart for restart in stack.restarts}
    expected = {"flower": stack.flower is not None, "serve": stack.api is not None, "spare": "spare" in restarts}
    names = [name for name in PARTS if name in running or expected.get(name, True)]
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
    """Return the bytes of a process and all descendants, with shared pages counted once; None if it has ended."""
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
