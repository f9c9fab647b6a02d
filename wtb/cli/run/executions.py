"""What commands that run one execution share: its events are shown as it runs, and its status at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from wtb.analysis import failure_causes
from wtb.cli.console import as_json, prints_to_stderr, put, say
from wtb.cli.progress import watch
from wtb.core.errors import WTBError
from wtb.core.failures import Failure
from wtb.core.questions import how_to_answer
from wtb.core.stop import INTERRUPTED
from wtb.core.texts import clock, event_text, printable
from wtb.display.views import executions
from wtb.execution.runtime import budgets
from wtb.store.control import executions as store
from wtb.store.read import queries

if TYPE_CHECKING:
    from wtb.execution.runtime.sweep_run import Ended, SweepRun
    from wtb.planning.binding import Bound
    from wtb.store.database import Database

Row = Mapping[str, Any]

LOOK_S = 0.2  # between two looks at what happened
SLOW_S = 2.0  # after which the start of a node is shown, too, and not only its end
_SHOWN_EVENTS = (
    "node_run.succeeded",
    "node_run.failed",
    "node_run.skipped",
    "attempt.failed",
    "node.log",
    "node.progress",
    "execution.forked",
    "execution.stalled",
    "approval.asked",
)


class EventPrinter:
    """Prints the events of a sweep to stderr, one line each."""

    def __init__(self, database: Database, sweep_id: str) -> None:
        self._database = database
        self._sweep_id = sweep_id
        before = queries.event_rows(database, sweep_id)
        self._after = (before[-1]["transaction"], before[-1]["id"]) if before else (-1, 0)
        self._look_at = 0.0
        self._running: dict[tuple[Any, ...], tuple[float, str]] = {}

    def look(self, *, last: bool = False) -> None:
        """Print new events."""
        if time.monotonic() < self._look_at and not last:
            return
        for row in queries.event_rows(self._database, self._sweep_id, after=self._after):
            self._after = (row["transaction"], row["id"])
            text, data = event_text(row["kind"], row["data"]), row["data"]
            which = (row["execution_id"], data.get("node"), data.get("variant"))
            if row["kind"] == "node_run.started":
                self._running[which] = (time.monotonic(), f"{clock(row['at'])} {text}")
            elif row["kind"] in _SHOWN_EVENTS:
                if row["kind"].startswith("node_run."):
                    self._running.pop(which, None)
                say(f"{clock(row['at'])} {text}")
        for which, (since, text) in list(self._running.items()):
            if time.monotonic() - since > SLOW_S:
                del self._running[which]
                say(text)
        self._look_at = time.monotonic() + LOOK_S


def run_with_events(database: Database, run: SweepRun, bound: Bound, quiet: bool) -> Ended:
    """Run a sweep for one execution of it, and print the events of its nodes."""
    printer = None if quiet else EventPrinter(database, run.sweep_id)
    show: Callable[[], None] = (lambda: None) if printer is None else printer.look
    try:
        with prints_to_stderr():
            ended = watch(run, bound.spec.run.grace, show=show)
    except WTBError:
        say(f"the run ended by an error; when that is fixed, continue with: wtb resume {run.sweep_id}")
        raise
    if printer is not None:
        printer.look(last=True)
    if ended.stuck:
        say(f"{ended.stuck} node(s) did not stop in time and were left behind; their results are ignored")
    return ended


def present_execution(
    database: Database, execution_id: str, as_document: bool, output: Path | None, ended: Ended | None = None
) -> None:
    """Print the status of an execution, write its state or document, and exit with the code of its outcome."""
    row = queries.find_execution(database, execution_id)
    document = executions.execution_document(database, row)
    for line in status_lines(database, row, ended):
        say(line)
    put(as_json(document if as_document else document["state"]), output)
    if ended is not None and ended.reason == INTERRUPTED:
        raise typer.Exit(130)
    well = all(one["status"] in ("completed", "forked") for one in store.line_of(database, execution_id))
    raise typer.Exit(0 if well else 1)


def status_lines(database: Database, row: Row, ended: Ended | None) -> list[str]:
    """How an execution stands, and what can be done."""
    name, status, reason = row["id"], row["status"], printable(row["reason"] or "")
    if status == "paused":
        return [f"paused: {reason}", f"go on with: wtb resume {name}"]
    if status == "waiting":
        rows = store.questions_of(database, row["id"])
        asked = [f"{one['id']}: {printable(one['question'])}" for one in rows]
        answers = [how_to_answer(one["id"], one["kind"], one["options"]) for one in rows]
        return [f"waits for a person: {'; '.join(asked)}", *(f"answer with: {printable(one)}" for one in answers)]
    if status == "failed":
        helped = failure_causes.execution_may_be_helped(database, row)
        how = "try again with" if helped else "trying again gives the same; once its cause is corrected"
        return [f"failed: {printable(str(Failure(**row['failure'])))}", f"{how}: wtb retry {name}"]
    if status == "forked":
        return [f"forked by variants; its cells went on in others: wtb show {row['id']}"]
    if status in ("pending", "running"):
        why = ended.reason if ended is not None and ended.reason else reason
        more, before = budgets.raising(
            None if ended is None else ended.limit, queries.find_sweep(database, row["sweep_id"])
        )
        first = [] if before is None else [f"before that, raise the budget with: {before}"]
        return [f"{status}{f' ({why})' if why else ''}; go on with: wtb resume {name}{more}", *first]
    return [f"cancelled: {reason}"] if status == "cancelled" else []
