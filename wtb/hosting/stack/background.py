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

from wtb.config.credentials import handed, known_credentials
from wtb.config.stack_file import HOME, Stack, find_stack, process_mark
from wtb.core.errors import WTBError
from wtb.hosting.servers.processes import make_folder

LOGS = f"{HOME}/logs"
ENDED_S = 120.0


def start_detached(folder: Path, options: Sequence[str], report: Callable[[str], None]) -> int:
    """Run `wtb up OPTIONS` in the background, and return once its stack is ready or it has ended.

    Args:
        folder: Where the stack is.
        options: Options of `wtb up`.
        report: Called with each line that it logs meanwhile.

    Returns:
        0 if the stack is ready, else the exit code.
    """
    make_folder(folder / HOME)
    make_folder(folder / LOGS)
    log = folder / LOGS / "wtb.log"
    log.touch(mode=0o600)
    with log.open("ab") as output, log.open("rb") as lines, handed(**known_credentials()) as (environment, inherited):
        lines.seek(0, os.SEEK_END)
        background = subprocess.Popen(
            [sys.executable, "-P", "-m", "wtb", "up", *options, "--background"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=inherited,
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
    """Stop a stack, and wait until nothing of it is left. Raises WTBError where that takes too long."""
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
