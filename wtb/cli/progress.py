"""Progress of a run on stderr: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

from wtb.cli.console import say

if TYPE_CHECKING:
    from wtb.execution.state import Progress

Show = Callable[["Progress"], None]

EVERY_S = 10.0  # between lines where stderr is not a terminal
CALM_S = 1.0  # after which nodes run, and the command itself has little to do
_OF_MATRIX = ("wtb.analysis.matrix.build", "wtb.display.matrix_table")


@contextmanager
def progress_display(quiet: bool, *, matrix: bool = False) -> Iterator[Show]:
    """Show how far a run is each time that what it yields is called.

    matrix: a matrix is shown at the end. Its modules are imported meanwhile, so that nobody waits for them then.
    """
    later = _OF_MATRIX if matrix else ()
    started_at = time.monotonic()
    with nullcontext() if quiet else _bar() if sys.stderr.isatty() else nullcontext(_lines()) as show:

        def look(now: Progress) -> None:
            if show is not None:
                show(now)
            if time.monotonic() - started_at > CALM_S:
                # An import is done once; later calls only find the module in sys.modules.
                for module in later:
                    import_module(module)

        yield look


@contextmanager
def _bar() -> Iterator[Show]:
    from rich import progress as bars
    from rich.console import Console

    columns = [
        bars.BarColumn(bar_width=24),
        bars.MofNCompleteColumn(),
        bars.TextColumn("cells  {task.fields[runs]:,} node runs{task.fields[more]}"),
        bars.TimeRemainingColumn(),
    ]
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks: list[Any] = []

        def show(now: Progress) -> None:
            if not tasks:
                tasks.append(progress.add_task("", total=now.cells, runs=0, more=""))
            more = f"  {now.failed:,} failed" if now.failed else ""
            more += f"  ${now.usd:.2f}" if now.usd else ""
            progress.update(tasks[0], completed=now.done, runs=now.node_runs, more=more)

        yield show


def _lines() -> Show:
    last = time.monotonic()

    def show(now: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY_S:
            last = time.monotonic()
            say(f"{now.done:,} of {now.cells:,} cells, {now.failed:,} failed, {now.node_runs:,} node runs")

    return show
