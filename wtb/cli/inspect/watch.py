"""Following sweeps to their end: the command `watch`, and what `--wait` does."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from wtb.analysis import gates as analysis
from wtb.cli import options
from wtb.cli.console import open_database, put, render_matrix, say, width
from wtb.cli.output import in_color
from wtb.cli.progress import progress_display
from wtb.cli.run.sweeps import exit_code
from wtb.config import broker as config
from wtb.config.stack_file import broker_url
from wtb.core.stop import INTERRUPTED
from wtb.display.matrix import gates
from wtb.display.text import progress
from wtb.display.views import progress as views
from wtb.execution import state
from wtb.execution.runtime import sweep_run
from wtb.store.read import queries
from wtb.store.runs import leases

if TYPE_CHECKING:
    from wtb.config.broker import Broker as Asked
    from wtb.execution.runtime.sweep_run import Ended
    from wtb.execution.state import Progress
    from wtb.store.database import Database

ENDED = ("completed", "failed", "cancelled")
LOOK_S = 0.2  # between two looks at a sweep's status
COUNT_SHARE = 0.1  # of the time that counting its cells may take
PATIENCE_S = 5.0  # without a worker, before a message says so


def watch(
    sweep: Annotated[
        str | None,
        typer.Argument(
            metavar="[SWEEP]",
            help="Id, beginning of an id, or name (the newest) \\[default: all open ones].",
            show_default=False,
        ),
    ] = None,
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once.")] = False,
    db: options.Db = None,
    broker: options.Broker = None,
    format: options.Show = options.Format.table,
) -> None:
    """Show live how sweeps, workers and queues stand.

    It ends with the sweep that is named; Ctrl-C leaves the sweep, which goes on. With --format json one JSON object a
    line. Exits as `wtb run` does: 0 where all cells succeeded and gates hold, else 1.

    See also: `wtb status` says it once, with what holds it up.

    Examples: wtb watch nightly  |  wtb watch  |  wtb watch nightly --once --format json
    """
    database = open_database(db)
    sweep_id = None if sweep is None else queries.find_sweep(database, sweep)["id"]
    looking = views.Watch(database, sweep_id, _asked(broker))
    document: dict[str, Any] = {}
    try:
        with _shown(format, once) as show:
            while True:
                document = looking.look()
                show(document)
                if once or (sweep_id is not None and document["sweep"]["status"] in ENDED):
                    break
                time.sleep(interval)
    except KeyboardInterrupt:
        again = f"wtb watch{'' if sweep_id is None else f' {sweep_id}'}"
        what = "what was watched goes on" if sweep_id is None else "the sweep goes on"
        say(f"left; {what}. Come back with: {again}")
        return
    if sweep_id is not None and document["sweep"]["status"] in ENDED:
        found = document["sweep"]
        hold = _gates_hold(database, queries.find_sweep(database, sweep_id))
        if found["status"] != "completed" or found["cells"]["succeeded"] != found["cells"]["total"] or not hold:
            raise typer.Exit(1)


def _gates_hold(database: Database, row: Mapping[str, Any]) -> bool:
    """Return whether the gates of a sweep that has ended pass; prints each."""
    if not row["spec"].get("gates"):
        return True
    found = analysis.judged(database, row)
    for text in gates.lines(found):
        say(text)
    return analysis.all_hold(found)


def _asked(url: str | None) -> Asked | None:
    """The broker, where one is named and its client is installed."""
    named = broker_url(url)
    if named is None or (url is None and not config.has_client()):
        return None
    return config.Broker(named, answer_s=1.0)


@contextmanager
def _shown(format: options.Format, once: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    if format is options.Format.json:
        yield _put_json
    elif once or not sys.stdout.isatty():
        yield _put_whole if once else _put_line
    else:
        with _screen() as show:
            yield show


def _put_json(document: dict[str, Any]) -> None:
    sys.stdout.write(orjson.dumps(document).decode() + "\n")
    sys.stdout.flush()


def _put_whole(document: dict[str, Any]) -> None:
    put(progress.watched(document, width(), in_color(None)))


def _put_line(document: dict[str, Any]) -> None:
    sys.stdout.write(progress.line(document) + "\n")
    sys.stdout.flush()


@contextmanager
def _screen() -> Iterator[Callable[[dict[str, Any]], None]]:
    console = Console()
    with Live(console=console, auto_refresh=False) as screen:

        def show(document: dict[str, Any]) -> None:
            text = progress.watched(document, console.width, in_color(None))
            screen.update(Text.from_ansi(text), refresh=True)

        yield show


class Waiting:
    """A sweep that workers run, as progress is shown of one that runs here."""

    def __init__(self, database: Database, sweep_id: str, cells: int) -> None:
        self._database = database
        self._sweep_id = sweep_id
        self.progress: Progress = state.Progress(cells)
        self._count_at = 0.0

    def count(self) -> None:
        """Bring the counts up to date, unless that would take too much of the time."""
        began = time.monotonic()
        if began < self._count_at:
            return
        ended = state.ended_cells(queries.cell_counts(self._database, self._sweep_id))
        runs, usd = queries.spent(self._database, self._sweep_id)
        now = self.progress
        now.succeeded, now.failed, now.node_runs, now.usd = ended["succeeded"], ended["failed"], runs, usd
        took = time.monotonic() - began
        self._count_at = began + took + max(LOOK_S, took / COUNT_SHARE)


def wait_and_present(
    database: Database,
    sweep_id: str,
    format: options.MatrixFormat,
    output: Path | None,
    quiet: bool,
    *,
    first: Callable[[], object] = lambda: None,
) -> None:
    """Wait until a sweep ends or pauses, show its matrix, and exit as `wtb run` does. first: is done before that."""
    ended: Ended | None = None
    with interruptible():
        try:
            first()
            _wait(database, sweep_id, quiet)
        except KeyboardInterrupt:
            ended = sweep_run.Ended("paused", INTERRUPTED)
            say(
                f"\nno longer waiting; the sweep goes on. Look on with: wtb watch {sweep_id}; end it with: "
                f"wtb cancel {sweep_id}"
            )
    row = queries.find_sweep(database, sweep_id)
    if ended is None and row["status"] == "paused":
        say(f"paused ({row['reason']}); go on with: wtb resume {sweep_id}")
    elif ended is None and row["status"] != "completed":
        say(f"{row['status']} ({row['reason']})")
    document = analysis.judged(database, row)
    put(render_matrix(document, format, output), output)
    raise typer.Exit(exit_code(document, ended))


def _wait(database: Database, sweep_id: str, quiet: bool) -> None:
    waiting: Any = Waiting(database, sweep_id, queries.find_sweep(database, sweep_id)["cells"])
    absence = _Absence(database)
    with progress_display(waiting, quiet) as show:
        while True:
            status, _ = leases.sweep_statuses(database, [sweep_id]).get(sweep_id, ("deleted", None))
            waiting.count()
            show()
            if status not in ("pending", "running"):
                return
            absence.look()
            time.sleep(LOOK_S)


class _Absence:
    """Says once that there has been no live worker for a while."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen = self._looked = time.monotonic()
        self._reported = False

    def look(self) -> None:
        now = time.monotonic()
        if self._reported or now - self._looked < 1.0:
            return
        self._looked = now
        if views.crew(self._database):
            self._seen = now
        elif now - self._seen >= PATIENCE_S:
            self._reported = True
            say("no worker is there any more; the sweep goes on when there is one: wtb worker")


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
