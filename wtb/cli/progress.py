"""Progress of a run on stderr, and what Ctrl-C does to it."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING

from wtb.cli.console import say
from wtb.core.stop import INTERRUPTED

if TYPE_CHECKING:
    from wtb.execution.runtime.sweep_run import Ended, SweepRun

EVERY_S = 10.0  # between lines where stderr is not a terminal


def watch(run: SweepRun, grace: float, *, quiet: bool = False, show: Callable[[], None] | None = None) -> Ended:
    """Start a run, show how far it is, and wait for its end. show: does that in place of counts.

    The first SIGINT or SIGTERM stops new work and gives running nodes `grace` seconds; the second stops at once.
    """
    interrupts: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        if len(interrupts) == 1:
            run.stop.request(INTERRUPTED)
            say(f"\nstopping: running nodes have {grace:g} s to finish (Ctrl-C again to stop at once)")

    with _handlers(interrupt), nullcontext(show) if show is not None else progress_display(run, quiet) as show:
        run.start()
        deadline: float | None = None
        while not run.wait(0.1):
            show()
            _say_notices(run)
            if interrupts and deadline is None:
                deadline = time.monotonic() + grace
            if len(interrupts) > 1 or (deadline is not None and time.monotonic() > deadline):
                break
        show()
        try:
            return run.finish()
        finally:
            _say_notices(run)


def _say_notices(run: SweepRun) -> None:
    for text in run.progress.take_notices():
        say(text)


@contextmanager
def _handlers(interrupt: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def progress_display(run: SweepRun, quiet: bool) -> Iterator[Callable[[], None]]:
    if quiet:
        yield lambda: None
    elif sys.stderr.isatty():
        with _bar(run) as show:
            yield show
    else:
        yield _lines(run)


@contextmanager
def _bar(run: SweepRun) -> Iterator[Callable[[], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = [
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("cells  {task.fields[runs]:,} node runs{task.fields[more]}"),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=run.progress.cells, runs=0, more="")

        def show() -> None:
            now = run.progress
            more = f"  {now.failed:,} failed" if now.failed else ""
            more += f"  ${now.usd:.2f}" if now.usd else ""
            progress.update(task, completed=now.done, runs=now.node_runs, more=more)

        yield show


def _lines(run: SweepRun) -> Callable[[], None]:
    last = time.monotonic()

    def show() -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY_S:
            last = time.monotonic()
            now = run.progress
            say(f"{now.done:,} of {now.cells:,} cells, {now.failed:,} failed, {now.node_runs:,} node runs")

    return show
