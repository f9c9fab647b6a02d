"""Events of a sweep, also while they are written."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Literal, cast

from wtb.core.arguments import Interval, checked
from wtb.core.documents.all_events import EventCount, EventDocument
from wtb.core.errors import InputError, NotFound, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import iso, readable
from wtb.display.views.sweeps import status_document
from wtb.operations.context import Context
from wtb.operations.inspection.ends import DECISIVE, Death, Ends
from wtb.store.bulk import parts
from wtb.store.database import Database
from wtb.store.log import START, LogPosition, last_position, log_rows
from wtb.store.read import details, queries
from wtb.store.read.details import find
from wtb.store.runs.leases import sweep_statuses
from wtb.store.tables.control import InvocationRow
from wtb.store.tables.sweeps import EventRow, SweepRow

PART: Final = 100  # events whose values are in memory at a time
_DIGESTS: Final = {"node_run.succeeded": "writes", "execution.completed": "result"}  # kind -> key of its data


def with_values(database: Database, events: Sequence[EventDocument]) -> Iterator[EventDocument]:
    """Yield events with the values that nodes wrote, their results, and arguments and results of tool calls.

    Values that were removed since are left out.
    """
    for part in parts(events, PART):
        values = details.stored_values(database, [digest for event in part for digest in _digests(event).values()])
        calls = _calls(database, part)
        for event in part:
            event_data = cast("dict[str, Any]", event["data"])
            if event["kind"] in _DIGESTS:
                digests = _digests(event).items()
                event_data["values"] = {key: readable(values[digest]) for key, digest in digests if digest in values}
            elif (call := calls.get(_identity(event_data))) is not None and event["kind"] == "tool.called":
                event_data["arguments"] = readable(call.arguments.encode())
                event_data["result"] = None if call.result is None else readable(call.result.encode())
            yield event


def _digests(event: EventDocument) -> Mapping[str, str]:
    key = _DIGESTS.get(event["kind"])
    digests: Mapping[str, str] = cast("dict[str, Any]", event["data"]).get(key, {}) if key else {}
    return digests


def _calls(database: Database, events: Iterable[EventDocument]) -> dict[tuple[object, ...], InvocationRow]:
    reported = [cast("dict[str, Any]", event["data"]) for event in events if event["kind"] == "tool.called"]
    ids = sorted({str(call["node_run"]) for call in reported if "number" in call})
    rows = queries.invocation_rows(database, ids) if ids else []
    return {(row.node_run_id, row.attempt, row.number): row for row in rows}


def _identity(call: Mapping[str, Any]) -> tuple[object, ...]:
    return call.get("node_run"), call.get("attempt"), call.get("number")


SEVERITIES: Final = ("debug", "info", "warning", "error")

_PAGE = 1000
_MOST_KNOWN = 100_000  # executions whose cases are remembered


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
    values: bool = False,
) -> Iterator[EventDocument]:
    """Return the events of a sweep, the oldest first, read as they are taken.

    Args:
        context: Where; it is reported if the process that runs the sweep has died meanwhile.
        ref: A sweep, or an execution whose events alone are meant: its id, the beginning of it, or a name.
        severity: The least that is returned: debug, info, warning or error.
        kinds: What their kinds begin with, such as `cell` or `node_run.failed`; by default all.
        execution: Only events of this execution: its id, or the beginning of it.
        follow: Wait for more until the sweep ends or pauses, or the execution does or waits for a person.
        interval_s: Seconds between two looks, if they are followed.
        cases: Name the case of each event's execution, and the variants of its combination.
        values: Add what nodes wrote, results, and the arguments of tools, of which the log has digests or nothing.

    Returns:
        The events.

    Raises:
        InputError: If there is no such sweep, execution or severity.
    """
    severities = severities_from(severity)
    database = context.database
    sweep_id, only = _followed_ids(database, ref, execution)
    pages = _waiting(_follow(context, sweep_id, only), interval_s) if follow else read_pages(database, sweep_id)
    documents = ([event_document(row) for row in page if _is_wanted(row, severities, kinds, only)] for page in pages)
    events = chain.from_iterable(with_values(database, page) if values else page for page in documents)
    return _with_cases(database, sweep_id, events) if cases else events


@checked
def follow_events(
    context: Context, ref: str, *, severity: str = "debug", kinds: Sequence[str] = (), values: bool = False
) -> Iterator[Sequence[EventDocument] | None]:
    """Yield the events of a sweep in batches, until it ends or pauses, or the execution does or waits for a person.

    It never waits: it yields None if there is nothing more yet, and its caller waits then.

    Args:
        context: Where, as for `log`.
        ref: A sweep, or an execution whose events alone are meant: its id, the beginning of it, or a name.
        severity: The least that is returned: debug, info, warning or error.
        kinds: Prefixes of the kinds of events; by default all.
        values: Add what nodes wrote, results, and the arguments of tools.

    Raises:
        InputError: If there is no such sweep, execution or severity.
    """
    severities = severities_from(severity)
    database = context.database
    sweep_id, only = _followed_ids(database, ref, None)
    for page in _follow(context, sweep_id, only):
        if page is None:
            yield None
            continue
        events = [event_document(row) for row in page if _is_wanted(row, severities, kinds, only)]
        yield list(with_values(database, events)) if values else events


@checked
def iter_events(
    context: Context,
    ref: str,
    *,
    severity: str = "debug",
    kinds: Sequence[str] = (),
    after: Literal["now"] | None = None,
    interval_s: Interval = 0.5,
) -> Iterator[EventDocument]:
    """Yield the events of a sweep as they are written, for ever.

    Args:
        context: Where.
        ref: A sweep: its id, the beginning of it, or its name.
        severity: The least that is returned: debug, info, warning or error.
        kinds: Prefixes of the kinds of events; by default all.
        after: `now` for what is yet to come; by default all from the beginning.
        interval_s: Seconds between two looks at a database; a server sends events at once.

    Returns:
        Events, the oldest first: all of them, and none twice.

    Raises:
        InputError: If there is no such sweep or severity.
    """
    selection = select_events(context, ref, severity=severity, kinds=kinds)
    position = START
    if after is not None:
        with context.database.read() as connection:
            position = last_position(connection, selection.sweep)
    while True:
        page = events_after(context, selection, position)
        yield from page.events
        position = page.upto
        if page.is_last:
            time.sleep(interval_s)


@frozen
class Page:
    """A page of a sweep's log after a position.

    Attributes:
        events: Those that were asked for, the oldest first.
        upto: The position up to which the log was read.
        is_last: Whether there was no more.
        positions: That of each event.
    """

    events: Sequence[EventDocument]
    upto: LogPosition
    is_last: bool
    positions: Sequence[LogPosition] = ()


@frozen
class Selection:
    """Events of one sweep, by severity and kind; made by `select_events`, which checks them."""

    sweep: str
    severities: tuple[str, ...]
    kinds: tuple[str, ...]
    cases: bool = False
    ends: bool = False
    values: bool = False

    @property
    def page(self) -> int:
        """Number of events that are read at a time."""
        return PART if self.values else _PAGE


@checked
def select_events(
    context: Context,
    ref: str,
    *,
    severity: str = "debug",
    kinds: Sequence[str] = (),
    cases: bool = False,
    ends: bool = False,
    values: bool = False,
) -> Selection:
    """Return which events of a sweep are meant, for `events_after`.

    Args:
        context: Where.
        ref: A sweep: its id, the beginning of it, or its name.
        severity: The least that is meant, as for `log`.
        kinds: Prefixes of the kinds of events; by default all.
        cases: Name the case and the variants of each, as for `log`.
        ends: Those, too, by which one knows whether there is more to come; see `Ends`.
        values: Add what nodes wrote, results, and the arguments of tools.

    Raises:
        InputError: If there is no such sweep or severity.
    """
    sweep = queries.find_sweep(context.database, ref).id
    return Selection(sweep, tuple(severities_from(severity)), tuple(sorted(set(kinds))), cases, ends, values)


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
    kinds, severities = _asked_for(selection)
    with context.database.read() as connection:
        # Up to here all can be read, also where nothing of it was asked for.
        # The end is read before the rows: whatever is committed in between belongs to the next page.
        end = last_position(connection, selection.sweep) if kinds or severities else after
        rows = list(
            log_rows(
                connection,
                selection.sweep,
                kinds=kinds,
                severities=severities,
                after=after,
                limit=selection.page,
                is_settled=True,
            )
        )
    # Rows beyond `until` still count as read for the page size, or the reader would take the page for the last one.
    read = [row for row in rows if until is None or position_of(row) <= until]
    selected = [row for row in read if _is_selected(row, selection)]
    events, positions = list(map(event_document, selected)), list(map(position_of, selected))
    if selection.values:
        events = list(with_values(context.database, events))
    if selection.cases:
        events = list(_with_cases(context.database, selection.sweep, events))
    is_last = len(read) < selection.page
    if is_last and until is not None:
        return Page(events, until, is_last, positions)
    last = position_of(read[-1]) if read else after
    return Page(events, max(last, end) if is_last else last, is_last, positions)


def last_event(context: Context, selection: Selection) -> LogPosition:
    """Return the position of the last event of a sweep that can be read."""
    with context.database.read() as connection:
        return last_position(connection, selection.sweep)


def sweeps_there(context: Context, ids: Collection[str]) -> set[str]:
    """Return which of some sweeps still exist."""
    return set(sweep_statuses(context.database, ids))


@checked
def count_events(
    context: Context, ref: str, *, severity: str = "debug", kinds: Sequence[str] = (), execution: str | None = None
) -> list[EventCount]:
    """Count the events of a sweep by kind and severity.

    Args:
        context: Where.
        ref: A sweep, or an execution whose events alone are meant: its id, the beginning of it, or a name.
        severity: The least that is counted, as for `log`.
        kinds: Prefixes of the kinds of events; by default all.
        execution: Only events of this execution: its id, or the beginning of it.

    Returns:
        A kind, a severity and a count for each.

    Raises:
        InputError: If there is no such sweep, execution or severity.
    """
    severities = severities_from(severity)
    sweep_id, only = _followed_ids(context.database, ref, execution)
    rows = details.event_counts(context.database, sweep_id, only)
    return [
        {"kind": row.kind, "severity": row.severity, "count": row.number}
        for row in rows
        if matches(row.kind, row.severity, severities, kinds)
    ]


def _followed_ids(database: Database, ref: str, execution: str | None) -> tuple[str, str | None]:
    """Find the sweep that a reference means, and the execution whose events alone are meant, if one is.

    Raises:
        InputError: If there is no such sweep or execution, or two executions are named.
    """
    target = find(database, ref)
    only = None if execution is None else queries.find_execution(database, execution).id
    if target.kind == "sweep":
        return target.id, only
    if only not in (None, target.id):
        raise InputError(f"{ref!r} is an execution, and so is {execution!r}; name a sweep, or one execution only")
    return target.row.sweep_id, target.id


def severities_from(least: str) -> Sequence[str]:
    """Return a severity and those above it. Raises InputError if it is none."""
    if least in SEVERITIES:
        return SEVERITIES[SEVERITIES.index(least) :]
    near = did_you_mean(least, SEVERITIES)
    raise InputError(f"{least!r} is not a severity{near} (they are: {', '.join(SEVERITIES)})")


def _asked_for(selection: Selection) -> tuple[Sequence[str], Sequence[str]]:
    """Return the kinds and severities of a selection for the query, which may find more; empty for all."""
    if selection.ends:
        return (*selection.kinds, *sorted(DECISIVE)) if selection.kinds else (), ()
    return selection.kinds, () if len(selection.severities) == len(SEVERITIES) else selection.severities


def _is_selected(row: EventRow, selection: Selection) -> bool:
    return matches(row["kind"], row["severity"], selection.severities, selection.kinds) or (
        selection.ends and row["kind"] in DECISIVE
    )


def matches(kind: str, severity: str, severities: Sequence[str], kinds: Sequence[str]) -> bool:
    """Return whether an event has one of the severities, and a kind with one of the prefixes; none matches any."""
    return severity in severities and (not kinds or kind.startswith(tuple(kinds)))


def _is_wanted(row: EventRow, severities: Sequence[str], kinds: Sequence[str], execution: str | None) -> bool:
    return matches(row["kind"], row["severity"], severities, kinds) and execution in (None, row["execution_id"])


def position_of(row: EventRow) -> LogPosition:
    """Return the position of an event in the log."""
    return row["transaction"], row["id"]


def read_pages(database: Database, sweep_id: str, after: LogPosition = START) -> Iterator[Sequence[EventRow]]:
    """Yield the events of a sweep after a position, a page at a time, until there are no more."""
    while page := queries.event_rows(database, sweep_id, after=after, limit=_PAGE):
        yield page
        after = position_of(page[-1])


def _waiting(pages: Iterator[Sequence[EventRow] | None], interval_s: float) -> Iterator[Sequence[EventRow]]:
    """Yield pages, and wait whenever there are no more yet."""
    for page in pages:
        if page is None:
            time.sleep(interval_s)
        else:
            yield page


def _follow(context: Context, sweep_id: str, execution: str | None) -> Iterator[Sequence[EventRow] | None]:
    """Yield pages of events, and None after the last one at each look, until the end was seen."""
    database, after = context.database, START
    only = None if execution is None else (execution, lambda: queries.find_execution(database, execution).status)
    ends = Ends(lambda: _followed(database, sweep_id).status, only)
    death = Death(context.report)
    while True:
        # Statuses first: an end that they show has its event in the pages that are read next.
        ends.read_statuses()
        for page in read_pages(database, sweep_id, after):
            after = position_of(page[-1])
            ends.see((row["kind"], row["execution_id"]) for row in page)
            yield page
        if ends.are_seen:
            return
        row = _followed(database, sweep_id)
        if row.status == "running":
            death.look(status_document(database, row))
        yield None


def _followed(database: Database, sweep_id: str) -> SweepRow:
    try:
        return queries.find_sweep(database, sweep_id)
    except NotFound:
        raise NotFound(f"sweep {sweep_id} was deleted while it was followed, and its events with it") from None


def _with_cases(database: Database, sweep_id: str, events: Iterable[EventDocument]) -> Iterator[EventDocument]:
    """Yield events with the case of their execution, looked up once, and the variants of their combination."""
    case_names: dict[str, str] = {}
    choices = queries.choices(database, sweep_id)
    for event in events:
        execution = event["execution"]
        if execution is not None and execution not in case_names:
            if len(case_names) >= _MOST_KNOWN:
                # A sweep followed for days may have millions of executions.
                case_names.clear()
            case, repeat = details.execution_case(database, execution)
            case_names[execution] = f"{case} (repeat {repeat})" if repeat else case
        event["case"] = None if execution is None else case_names[execution]
        number = event["data"].get("combination")
        if isinstance(number, int) and 0 <= number < len(choices):
            event["choices"] = choices[number]
        yield event


def event_document(row: EventRow) -> EventDocument:
    """Return an event as it is shown."""
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
