"""A stack without a terminal: started in the background, which says when it is ready or why it is not, and stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wtb.config.credentials import handed, held
from wtb.config.stack_file import HOME, Stack, process_mark
from wtb.core.errors import StoreError, WTBError

LOGS = "logs"
ENDED_S = 120.0


def start_detached(folder: Path, options: Sequence[str], say: Callable[[str], None]) -> None:
    """Run `wtb up OPTIONS` in the background, and return once its stack is ready. Raises what it raised."""
    logs = folder / HOME / LOGS
    log = logs / "wtb.log"
    try:
        for place in (logs.parent, logs):
            place.mkdir(mode=0o700, exist_ok=True)
        log.touch(mode=0o600)
        output = log.open("ab")
    except OSError as error:
        raise StoreError(
            f"the stack cannot write to {logs} ({error.strerror}): run `wtb up` in a folder that is yours to write to"
        ) from error
    heard, told = os.pipe()
    with output, open(heard, encoding="utf-8") as reports:
        with handed(**held()) as (environment, inherited):
            background = subprocess.Popen(
                [sys.executable, "-m", "wtb", "up", *options, "--report-to", str(told)],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(told, *inherited),
                start_new_session=True,
            )
        os.close(told)
        try:
            for line in reports:
                report: dict[str, Any] = json.loads(line)
                if "said" in report:
                    say(report["said"])
                elif "error" in report:
                    refusal = WTBError(report["error"])
                    refusal.exit_code = report["exit_code"]
                    background.wait()
                    raise refusal
                else:
                    return
        except KeyboardInterrupt:
            background.send_signal(signal.SIGTERM)
            background.wait()
            raise
        code = background.wait()
    raise WTBError(f"the stack ended (exit code {code}) before it was ready; what it said is in {log}")


class Reporter:
    """What the background tells whoever started it, as long as that one listens."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor: int | None = descriptor

    def tell(self, **report: Any) -> None:
        with contextlib.suppress(OSError):  # it has gone
            if self._descriptor is not None:
                os.write(self._descriptor, json.dumps(report).encode() + b"\n")

    def close(self) -> None:
        """Nothing more is told."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


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
