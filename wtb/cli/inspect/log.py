"""The command `log`: the events of a sweep for people, as they are written if need be."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from wtb.cli import options
from wtb.cli.console import open_database, put, say, width
from wtb.cli.output import in_color, present_all
from wtb.core.errors import InputError, did_you_mean
from wtb.core.serialization.plain_json import iso
from wtb.display.text.inspect import events
from wtb.display.views import sweeps
from wtb.store.read import details, queries

if TYPE_CHECKING:
    from wtb.store.database import Database

PAGE = 1000
MOST_KNOWN = 100_000  # executions whose cases are remembered
SEVERITIES = ("debug", "info", "warning", "error")


def log(
    sweep: options.Sweep,
    severity: Annotated[
        str, typer.Option("--severity", help="The least that is shown: debug, info, warning or error.")
    ] = "debug",
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind", help="Only kinds that begin so, such as cell or node_run.failed; may be given several times."
        ),
    ] = None,
    execution: Annotated[str | None, typer.Option("--execution", help="Only events of this execution.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the sweep ends or pauses.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.05, help="Seconds between looks with --follow.")] = 0.5,
    summary: Annotated[bool, typer.Option("--summary", help="Only how many there are of each kind.")] = False,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Read the events of a sweep, oldest first.

    With --format json one JSON object a line.

    See also: `wtb history` shows the checkpoints of one execution; `wtb show EXECUTION`, what its nodes printed.

    Examples: wtb log nightly --severity warning  |  wtb log nightly --kind cell --follow  |  wtb log nightly --summary
    """
    if severity not in SEVERITIES:
        near = did_you_mean(severity, SEVERITIES)
        raise InputError(f"--severity {severity!r} is not known{near} (they are: {', '.join(SEVERITIES)})")
    if summary and follow:
        raise InputError("--summary counts what is there; it does not go with --follow")
    database = open_database(db)
    sweep_id = queries.find_sweep(database, sweep)["id"]
    only = None if execution is None else queries.find_execution(database, execution)["id"]
    severities = SEVERITIES[SEVERITIES.index(severity) :]
    if summary:
        _summarize(database, sweep_id, only, kind or (), severities, format, output)
        return
    rows = _followed(database, sweep_id, interval) if follow else _pages(database, sweep_id, (-1, 0))
    matching = (row for row in rows if _fits(row, kind or (), severities, only))
    if format is options.Format.json:
        _write(map(_json, matching), output)
        return

    choices = queries.choices(database, sweep_id)
    _write(events.lines(_with_cases(database, matching), choices, width(), in_color(output)), output)


def _fits(row: dict[str, Any], kinds: Sequence[str], severities: Sequence[str], execution: str | None) -> bool:
    return (
        row["severity"] in severities
        and (not kinds or row["kind"].startswith(tuple(kinds)))
        and execution in (None, row["execution_id"])
    )


def _pages(database: Database, sweep_id: str, after: tuple[int, int]) -> Iterator[dict[str, Any]]:
    while page := queries.event_rows(database, sweep_id, after=after, limit=PAGE):
        yield from page
        after = (page[-1]["transaction"], page[-1]["id"])


def _followed(database: Database, sweep_id: str, interval: float) -> Iterator[dict[str, Any]]:
    """Events as they come, until the one that says how the sweep ended has been seen."""
    after, seen, warned = (-1, 0), "", False
    while True:
        # The status is read first: the event of the change to it is committed with it, so it will be seen.
        row = queries.find_sweep(database, sweep_id)
        for event in _pages(database, sweep_id, after):
            after = (event["transaction"], event["id"])
            seen = event["kind"] if event["kind"].startswith("sweep.") else seen
            yield event
        if row["status"] not in ("pending", "running") and seen == f"sweep.{row['status']}":
            return
        if not warned and row["status"] == "running":
            found = sweeps.status_document(database, row)
            if any(owner["state"] == "dead" for owner in found["owners"]) and found["next"] is not None:
                say(f"{found['next']['why']}; go on with: {found['next']['command']}")
                warned = True
        time.sleep(interval)


def _with_cases(database: Database, rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Events with the case of their execution, each looked up once."""
    known: dict[str, str] = {}
    for row in rows:
        execution = row["execution_id"]
        if execution is not None and execution not in known:
            if len(known) >= MOST_KNOWN:
                known.clear()
            case, repeat = details.execution_case(database, execution)
            known[execution] = f"{case} (repeat {repeat})" if repeat else case
        yield {**row, "case": known.get(execution)}


def _write(lines: Iterator[str], output: Path | None) -> None:
    """Write each line as it comes; a file is made whole, when all have come."""
    if output is not None:
        put("".join(f"{line}\n" for line in lines), output)
        return
    for line in lines:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _json(row: dict[str, Any]) -> str:
    shown = {
        "id": row["id"],
        "at": iso(row["at"]),
        "severity": row["severity"],
        "kind": row["kind"],
        "sweep": row["sweep_id"],
        "execution": row["execution_id"],
        "data": row["data"],
    }
    return orjson.dumps(shown, default=str).decode()


def _summarize(
    database: Database,
    sweep_id: str,
    execution: str | None,
    kinds: Sequence[str],
    severities: Sequence[str],
    format: options.Format,
    output: Path | None,
) -> None:
    counted = [
        row
        for row in details.event_counts(database, sweep_id, execution)
        if row["severity"] in severities and (not kinds or row["kind"].startswith(tuple(kinds)))
    ]
    present_all("events", counted, events.counts, format, output, "no event matches")
