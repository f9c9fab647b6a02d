"""The events of a sweep, as they are written if need be."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import Interval
from wtb.core.documents.events import EventCount, EventDocument
from wtb.core.errors import InputError, NotFound, did_you_mean
from wtb.core.serialization.plain_json import iso
from wtb.display.views.sweeps import status_document
from wtb.operations.context import Context
from wtb.store.database import Database
from wtb.store.log import START, LogPosition, last_position
from wtb.store.read import details, queries
from wtb.store.rows import EventRow, SweepRow
from wtb.store.runs.leases import sweep_statuses

SEVERITIES: Final = ("debug", "info", "warning", "error")

_PAGE = 1000
_ENDS = ("sweep.", "execution.imported")  # what is imported has ended, or is paused, without an event of its sweep
_OPEN = ("pending", "running")
# Of an execution: after which events it does not go on by itself, and after which it does.
_STOPS = (
    *(f"execution.{status}" for status in ("completed", "failed", "cancelled", "forked", "paused", "waiting")),
    *(f"execution.{how}" for how in ("rolled_back", "redone", "superseded", "imported")),
)
_GOES_ON = ("execution.started", "execution.resumed", "approval.answered", "node_run.started")
_MOST_KNOWN = 100_000  # executions whose cases are remembered


@dataclass(frozen=True)
class Log:
    """The events of a sweep.

    Attributes:
        combinations: Of each combination the variant by node; events name combinations by their number here.
        events: The oldest first, read as they are taken.
    """

    combinations: Sequence[Mapping[str, str]]
    events: Iterator[EventDocument]


@checked
def log(
    context: Context,
    ref: str,
    *,
    severity: str = "debug",
    kinds: Sequence[str] = (),
    execution: str | None = None,
    follow: bool = False,
    interval_s: Interval = 0.5,
    cases: bool = False,
) -> Log:
    """Return the events of a sweep, the oldest first.

    Args:
        context: Where; it is reported if the process that runs the sweep has died meanwhile.
        ref: A sweep: its id, the beginning of it, or its name.
        severity: The least that is returned: debug, info, warning or error.
        kinds: What their kinds begin with, such as `cell` or `node_run.failed`; by default all.
        execution: Only events of this execution: its id, or the beginning of it.
        follow: Wait for more until the sweep ends or pauses, or the execution does or waits for a person.
        interval_s: Seconds between two looks, if they are followed.
        cases: Name the case of each event's execution.

    Raises:
        InputError: If there is no such sweep, execution or severity.
    """
    severities = _severities(severity)
    database = context.database
    sweep_id = queries.find_sweep(database, ref).id
    only = None if execution is None else queries.find_execution(database, execution).id
    pages = _waiting(_follow(context, sweep_id, only), interval_s) if follow else _pages(database, sweep_id)
    matching = (row for page in pages for row in page if _is_wanted(row, severities, kinds, only))
    events = map(_document, matching)
    return Log(queries.choices(database, sweep_id), _with_cases(database, events) if cases else events)


@checked
def follow_events(
    context: Context,
    ref: str,
    *,
    severity: str = "debug",
    kinds: Sequence[str] = (),
    execution: str | None = None,
) -> Iterator[Sequence[EventDocument] | None]:
    """Yield the events of a sweep in batches, until it ends or pauses, or the execution does or waits for a person.

    It never waits: it yields None if there is nothing more yet, and its caller waits then.

    Args:
        context: Where, as for `log`.
        ref: A sweep: its id, the beginning of it, or its name.
        severity: The least that is returned: debug, info, warning or error.
        kinds: What their kinds begin with; by default all.
        execution: Only events of this execution: its id, or the beginning of it.

    Raises:
        InputError: If there is no such sweep, execution or severity.
    """
    severities = _severities(severity)
    database = context.database
    sweep_id = queries.find_sweep(database, ref).id
    only = None if execution is None else queries.find_execution(database, execution).id
    for page in _follow(context, sweep_id, only):
        yield None if page is None else [_document(row) for row in page if _is_wanted(row, severities, kinds, only)]


@dataclass(frozen=True)
class Page:
    """What a sweep's log has after a position.

    Attributes:
        events: Those that were asked for, the oldest first.
        upto: The position up to which the log was read.
        is_last: Whether there was no more.
    """

    events: Sequence[EventDocument]
    upto: LogPosition
    is_last: bool


@dataclass(frozen=True)
class Selection:
    """Events of one sweep, by severity and kind; made by `select_events`, which checks them."""

    sweep: str
    severities: tuple[str, ...]
    kinds: tuple[str, ...]


@checked
def select_events(context: Context, ref: str, *, severity: str = "debug", kinds: Sequence[str] = ()) -> Selection:
    """Return which events of a sweep are meant, for `events_after`.

    Args:
        context: Where.
        ref: A sweep: its id, the beginning of it, or its name.
        severity: The least that is meant, as for `log`.
        kinds: What their kinds begin with; by default all.

    Raises:
        InputError: If there is no such sweep or severity.
    """
    sweep = queries.find_sweep(context.database, ref).id
    return Selection(sweep, tuple(_severities(severity)), tuple(sorted(set(kinds))))


def events_after(
    context: Context, selection: Selection, after: LogPosition, *, until: LogPosition | None = None
) -> Page:
    """Read events of a sweep, a page at most. None that comes later has a position within what was read.

    Args:
        context: Where.
        selection: Which events.
        after: The position to continue.
        until: The last position that is wanted; by default there is no last one.
    """
    rows = queries.event_rows(context.database, selection.sweep, after=after, limit=_PAGE)
    read = [row for row in rows if until is None or _position(row) <= until]
    events = [
        _document(row) for row in read if _matches(row["kind"], row["severity"], selection.severities, selection.kinds)
    ]
    is_last = len(read) < _PAGE
    if is_last and until is not None:
        return Page(events, until, is_last)
    return Page(events, _position(read[-1]) if read else after, is_last)


def last_event(context: Context, selection: Selection) -> LogPosition:
    """Return the position of the last event of a sweep that can be read."""
    with context.database.read() as connection:
        return last_position(connection, selection.sweep)


def sweeps_there(context: Context, ids: Collection[str]) -> set[str]:
    """Return which of some sweeps were not deleted."""
    return set(sweep_statuses(context.database, ids))


@checked
def count_events(
    context: Context,
    ref: str,
    *,
    severity: str = "debug",
    kinds: Sequence[str] = (),
    execution: str | None = None,
) -> list[EventCount]:
    """Count the events of a sweep by kind and severity.

    Args:
        context: Where.
        ref: A sweep: its id, the beginning of it, or its name.
        severity: The least that is counted, as for `log`.
        kinds: What their kinds begin with; by default all.
        execution: Only events of this execution: its id, or the beginning of it.

    Raises:
        InputError: If there is no such sweep, execution or severity.
    """
    severities = _severities(severity)
    sweep_id = queries.find_sweep(context.database, ref).id
    only = None if execution is None else queries.find_execution(context.database, execution).id
    rows = details.event_counts(context.database, sweep_id, only)
    return [
        {"kind": row.kind, "severity": row.severity, "count": row.number}
        for row in rows
        if _matches(row.kind, row.severity, severities, kinds)
    ]


def _severities(least: str) -> Sequence[str]:
    if least in SEVERITIES:
        return SEVERITIES[SEVERITIES.index(least) :]
    near = did_you_mean(least, SEVERITIES)
    raise InputError(f"{least!r} is not a severity{near} (they are: {', '.join(SEVERITIES)})")


def _matches(kind: str, severity: str, severities: Sequence[str], kinds: Sequence[str]) -> bool:
    return severity in severities and (not kinds or kind.startswith(tuple(kinds)))


def _is_wanted(row: EventRow, severities: Sequence[str], kinds: Sequence[str], execution: str | None) -> bool:
    return _matches(row["kind"], row["severity"], severities, kinds) and execution in (None, row["execution_id"])


def _position(row: EventRow) -> LogPosition:
    return row["transaction"], row["id"]


def _pages(database: Database, sweep_id: str, after: LogPosition = START) -> Iterator[Sequence[EventRow]]:
    while page := queries.event_rows(database, sweep_id, after=after, limit=_PAGE):
        yield page
        after = _position(page[-1])


def _waiting(pages: Iterator[Sequence[EventRow] | None], interval_s: float) -> Iterator[Sequence[EventRow]]:
    """Yield pages, and wait where there are no more yet."""
    for page in pages:
        if page is None:
            time.sleep(interval_s)
        else:
            yield page


def _follow(context: Context, sweep_id: str, execution: str | None) -> Iterator[Sequence[EventRow] | None]:
    """Yield pages of events, and None after the last one at each look, until the end of what is followed was seen."""
    database, after = context.database, START
    ends: list[_SweepEnd | _ExecutionEnd] = [_SweepEnd(database, sweep_id)]
    if execution is not None:
        ends.append(_ExecutionEnd(database, execution))
    death = _Death(context, sweep_id)
    while True:
        # The status is read first: the event of the change to it is committed with it, so it will be seen.
        for end in ends:
            end.read_status()
        for page in _pages(database, sweep_id, after):
            after = _position(page[-1])
            for end in ends:
                end.see(page)
            yield page
        if any(end.is_seen for end in ends):
            return
        death.look()
        yield None


def _followed(database: Database, sweep_id: str) -> SweepRow:
    try:
        return queries.find_sweep(database, sweep_id)
    except NotFound:
        raise NotFound(f"sweep {sweep_id} was deleted while it was followed, and its events with it") from None


class _SweepEnd:
    """Whether the event that says how a sweep has ended, or that it has paused, was seen."""

    def __init__(self, database: Database, sweep_id: str) -> None:
        self._database = database
        self._sweep_id = sweep_id
        self._status = self._kind = ""

    def read_status(self) -> None:
        """Raises NotFound if the sweep was deleted."""
        self._status = _followed(self._database, self._sweep_id).status

    def see(self, page: Sequence[EventRow]) -> None:
        self._kind = next((row["kind"] for row in reversed(page) if row["kind"].startswith(_ENDS)), self._kind)

    @property
    def is_seen(self) -> bool:
        return self._status not in _OPEN and self._kind in (f"sweep.{self._status}", "execution.imported")


class _ExecutionEnd:
    """Whether the event that says how an execution has ended, that it has paused or that it waits was seen."""

    def __init__(self, database: Database, execution_id: str) -> None:
        self._database = database
        self._execution_id = execution_id
        self._status = self._kind = ""

    def read_status(self) -> None:
        self._status = queries.find_execution(self._database, self._execution_id).status

    def see(self, page: Sequence[EventRow]) -> None:
        for row in page:
            if row["execution_id"] == self._execution_id and row["kind"] in _STOPS + _GOES_ON:
                self._kind = row["kind"]

    @property
    def is_seen(self) -> bool:
        return self._status not in _OPEN and self._kind in _STOPS


class _Death:
    """Reports once that the process that ran a sweep has died."""

    def __init__(self, context: Context, sweep_id: str) -> None:
        self._context = context
        self._sweep_id = sweep_id
        self._reported = False

    def look(self) -> None:
        row = _followed(self._context.database, self._sweep_id)
        if self._reported or row.status != "running":
            return
        found = status_document(self._context.database, row)
        if any(owner["state"] == "dead" for owner in found["owners"]) and found["next"] is not None:
            self._context.report(f"{found['next']['why']}; continue with: {found['next']['command']}")
            self._reported = True


def _with_cases(database: Database, events: Iterator[EventDocument]) -> Iterator[EventDocument]:
    """Yield events with the case of their execution, each looked up once."""
    known: dict[str, str] = {}
    for event in events:
        execution = event["execution"]
        if execution is not None and execution not in known:
            if len(known) >= _MOST_KNOWN:
                known.clear()
            case, repeat = details.execution_case(database, execution)
            known[execution] = f"{case} (repeat {repeat})" if repeat else case
        event["case"] = None if execution is None else known[execution]
        yield event


def _document(row: EventRow) -> EventDocument:
    event = {
        "id": row["id"],
        "at": str(iso(row["at"])),
        "severity": row["severity"],
        "kind": row["kind"],
        "sweep": row["sweep_id"],
        "execution": row["execution_id"],
        "data": row["data"],
    }
    return cast(EventDocument, event)  # its writers and the tests hold it against its kind
