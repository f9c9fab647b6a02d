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

from wtb.cli.console import (
    BrokerOption,
    Db,
    Format,
    FormatOption,
    MatrixFormat,
    open_database,
    put,
    render_matrix,
    say,
    width,
)
from wtb.cli.output import in_color
from wtb.config.broker import Broker as Asking
from wtb.config.broker import has_client
from wtb.config.stack_file import broker_url
from wtb.core.stop import INTERRUPTED
from wtb.display.matrix.gates import lines
from wtb.display.text.progress import line, watched
from wtb.display.views.progress import Watch, crew
from wtb.store.read.queries import cell_counts, find_sweep, spent
from wtb.store.runs.leases import sweep_statuses

if TYPE_CHECKING:
    from wtb.config.broker import Broker as Asked
    from wtb.execution.state import Progress
    from wtb.store.database import Database

ENDED = ("completed", "failed", "cancelled")
LOOK_S = 0.2  # between two looks at a sweep's status
COUNT_SHARE = 0.1  # of the time that counting its cells may take
PATIENCE_S = 5.0  # without a worker, before that is said


def register(app: typer.Typer) -> None:
    app.command(epilog="Examples: wtb watch nightly  |  wtb watch  |  wtb watch nightly --once --format json")(watch)


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
    db: Db = None,
    broker: BrokerOption = None,
    format: FormatOption = Format.table,
) -> None:
    """Show live how sweeps, workers and queues stand.

    It ends with the sweep that is named; Ctrl-C leaves the sweep, which goes on. With --format json one JSON object a
    line. Exits as `wtb run` does: 0 where all cells succeeded and gates hold, else 1.

    See also: `wtb status` says it once, with what holds it up.
    """
    database = open_database(db)
    sweep_id = None if sweep is None else find_sweep(database, sweep)["id"]
    looking = Watch(database, sweep_id, _asked(broker))
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
        hold = _gates_hold(database, find_sweep(database, sweep_id))
        if found["status"] != "completed" or found["cells"]["succeeded"] != found["cells"]["total"] or not hold:
            raise typer.Exit(1)


def _gates_hold(database: Database, row: Mapping[str, Any]) -> bool:
    """Whether the gates of a sweep that has ended hold; says so of each."""
    from wtb.analysis.gates import all_hold, judged

    if not row["spec"].get("gates"):
        return True
    found = judged(database, row)
    for text in lines(found):
        say(text)
    return all_hold(found)


def _asked(url: str | None) -> Asked | None:
    """The broker, where one is named and its client is installed."""
    named = broker_url(url)
    if named is None or (url is None and not has_client()):
        return None
    return Asking(named, answer_s=1.0)


@contextmanager
def _shown(format: Format, once: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    if format is Format.json:
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
    put(watched(document, width(), in_color(None)))


def _put_line(document: dict[str, Any]) -> None:
    sys.stdout.write(line(document) + "\n")
    sys.stdout.flush()


@contextmanager
def _screen() -> Iterator[Callable[[dict[str, Any]], None]]:
    console = Console()
    with Live(console=console, auto_refresh=False) as screen:

        def show(document: dict[str, Any]) -> None:
            text = watched(document, console.width, in_color(None))
            screen.update(Text.from_ansi(text), refresh=True)

        yield show


class Waiting:
    """A sweep that workers run, as progress is shown of one that runs here."""

    def __init__(self, database: Database, sweep_id: str, cells: int) -> None:
        from wtb.execution.state import Progress

        self._database = database
        self._sweep_id = sweep_id
        self.progress: Progress = Progress(cells)
        self._count_at = 0.0

    def count(self) -> None:
        """Bring the counts up to date, unless that would take too much of the time."""
        from wtb.execution.state import ended_cells

        began = time.monotonic()
        if began < self._count_at:
            return
        ended = ended_cells(cell_counts(self._database, self._sweep_id))
        runs, usd = spent(self._database, self._sweep_id)
        now = self.progress
        now.succeeded, now.failed, now.node_runs, now.usd = ended["succeeded"], ended["failed"], runs, usd
        took = time.monotonic() - began
        self._count_at = began + took + max(LOOK_S, took / COUNT_SHARE)


def wait_and_present(
    database: Database,
    sweep_id: str,
    format: MatrixFormat,
    output: Path | None,
    quiet: bool,
    *,
    first: Callable[[], object] = lambda: None,
) -> None:
    """Wait until a sweep ends or pauses, show its matrix, and exit as `wtb run` does. first: is done before that."""
    from wtb.analysis.gates import judged
    from wtb.cli.run.sweeps import exit_code
    from wtb.execution.runtime.sweep_run import Ended

    ended: Ended | None = None
    with interruptible():
        try:
            first()
            _wait(database, sweep_id, quiet)
        except KeyboardInterrupt:
            ended = Ended("paused", INTERRUPTED)
            say(
                f"\nno longer waiting; the sweep goes on. Look on with: wtb watch {sweep_id}; end it with: "
                f"wtb cancel {sweep_id}"
            )
    row = find_sweep(database, sweep_id)
    if ended is None and row["status"] == "paused":
        say(f"paused ({row['reason']}); go on with: wtb resume {sweep_id}")
    elif ended is None and row["status"] != "completed":
        say(f"{row['status']} ({row['reason']})")
    document = judged(database, row)
    put(render_matrix(document, format, output), output)
    raise typer.Exit(exit_code(document, ended))


def _wait(database: Database, sweep_id: str, quiet: bool) -> None:
    from wtb.cli.progress import shown

    waiting: Any = Waiting(database, sweep_id, find_sweep(database, sweep_id)["cells"])
    absence = _Absence(database)
    with shown(waiting, quiet) as show:
        while True:
            status, _ = sweep_statuses(database, [sweep_id]).get(sweep_id, ("deleted", None))
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
        self._said = False

    def look(self) -> None:
        now = time.monotonic()
        if self._said or now - self._looked < 1.0:
            return
        self._looked = now
        if crew(self._database):
            self._seen = now
        elif now - self._seen >= PATIENCE_S:
            self._said = True
            say("no worker is there any more; the sweep goes on when there is one: wtb worker")


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
