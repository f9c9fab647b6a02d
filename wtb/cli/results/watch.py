"""Following sweeps to their end: the command `watch`, and what `--wait` does."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import orjson
import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from wtb.analysis import gates as analysis
from wtb.cli import options
from wtb.cli.console import open_backend, put, put_matrix, say, width, write_result
from wtb.cli.output import in_color
from wtb.cli.progress import progress_display
from wtb.cli.run.outcome import exit_code
from wtb.core.status import ENDED_SWEEPS
from wtb.display import figures
from wtb.display.text import sweeps
from wtb.operations.results import matrix as results
from wtb.operations.running import waiting

if TYPE_CHECKING:
    from wtb.core.documents.sweeps import WatchDocument, WatchedOneSweep
    from wtb.execution.runtime.sweep_run import Ended
    from wtb.operations.context import Backend


def watch(
    ref: Annotated[
        str | None,
        typer.Argument(
            metavar="[SWEEP]",
            help="Id, its beginning, or name (the newest) \\[default: all open sweeps].",
            show_default=False,
        ),
    ] = None,
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once.")] = False,
    db: options.Db = None,
    broker: options.Broker = None,
    format: options.Show = options.Format.table,
) -> None:
    """Show the state of sweeps, workers and queues live.

    It ends with the sweep that is named; Ctrl-C leaves the sweep, which goes on. With --format json one JSON object a
    line. Exits as `wtb run` does: 0 where all cells succeeded and gates hold, else 1.

    See also: `wtb status` shows it once, with what blocks it.

    Examples: wtb watch nightly  |  wtb watch  |  wtb watch nightly --once --format json
    """
    backend = open_backend(db, broker)
    watched = backend.call(waiting.watch, ref)
    sweep_id = watched.sweep_id
    ended: WatchedOneSweep | None = None
    try:
        with _open_display(format, once) as show:
            while True:
                document = watched.look()
                show(document)
                if "sweep" in document and document["sweep"]["status"] in ENDED_SWEEPS:
                    ended = document["sweep"]
                if once or ended is not None:
                    break
                time.sleep(interval)
    except KeyboardInterrupt:
        command = f"wtb watch{'' if sweep_id is None else f' {sweep_id}'}"
        what = "what was watched continues" if sweep_id is None else "the sweep continues"
        say(f"left; {what}. Come back with: {command}")
        return
    if sweep_id is not None and ended is not None:
        judged = backend.call(results.matrix, sweep_id)["gates"]
        for text in figures.lines(judged):
            say(text)
        succeeded = ended["status"] == "completed" and ended["cells"]["succeeded"] == ended["cells"]["total"]
        if not (succeeded and analysis.all_hold(judged)):
            raise typer.Exit(1)


@contextmanager
def _open_display(format: options.Format, once: bool) -> Iterator[Callable[[WatchDocument], None]]:
    if format is options.Format.json:
        yield _put_json
    # Without a terminal, a screen that is drawn again and again would fill a log with control sequences.
    elif once or not sys.stdout.isatty():
        yield _put_whole if once else _put_line
    else:
        with _screen() as show:
            yield show


def _put_json(document: WatchDocument) -> None:
    write_result([orjson.dumps(document).decode(), "\n"])


def _put_whole(document: WatchDocument) -> None:
    put(sweeps.watched(document, width(), in_color(None)))


def _put_line(document: WatchDocument) -> None:
    write_result([sweeps.line(document), "\n"])


@contextmanager
def _screen() -> Iterator[Callable[[WatchDocument], None]]:
    console = Console()
    # Nothing changes between two looks, so the screen is drawn once for each.
    with Live(console=console, auto_refresh=False) as screen:

        def show(document: WatchDocument) -> None:
            text = sweeps.watched(document, console.width, in_color(None))
            screen.update(Text.from_ansi(text), refresh=True)

        yield show


def wait_and_present(backend: Backend, sweep_id: str, form: options.MatrixForm, quiet: bool) -> None:
    """Wait until a sweep ends or pauses, show its matrix, and exit as `wtb run` does."""
    ended: Ended | None = None
    try:
        with interruptible(), progress_display(quiet) as show:
            ended = backend.call(waiting.wait, sweep_id, progress=show)
    except KeyboardInterrupt:
        say(
            f"\nno longer waiting; the sweep continues. Look on with: wtb watch {sweep_id}; end it with: "
            f"wtb cancel {sweep_id}"
        )
    if ended is not None and ended.status != "completed":
        how = f"; continue with: wtb resume {sweep_id}" if ended.status == "paused" else ""
        say(f"{ended.status} ({ended.reason}){how}")
    document = backend.call(results.matrix, sweep_id)
    put_matrix(document, form)
    # 130 is the exit code of a program that Ctrl-C ended.
    raise typer.Exit(130 if ended is None else exit_code(document, ended))


@contextmanager
def interruptible() -> Iterator[None]:
    """Make SIGTERM interrupt as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
