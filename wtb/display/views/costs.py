"""Spending and figures over time, as documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

from wtb.core.documents.plan import AllSeriesDocument, CostRow, CostsDocument, CostTotal, NodeSeries, SeriesOf
from wtb.core.serialization.plain_json import iso
from wtb.execution.engine.resource_usage import SAMPLE
from wtb.store.database import Database
from wtb.store.read import costs, queries
from wtb.store.read.costs import Spent, Which
from wtb.store.read.details import cases_of
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.sweeps import EventRow, SweepRow

NO_MODEL: Final = "(none)"  # spent without a call that names a model
_FIGURES: Final = (
    *("usd", "tokens_in", "tokens_out", "attempts", "calls"),
    *("failed_attempts", "failed_usd", "innocent_attempts", "innocent_usd"),
)
_OF_ATTEMPTS: Final = dict.fromkeys(("attempts", "failed_attempts", "innocent_attempts"))  # not known by model
_OF_TOOLS: Final = ("failed_calls", "duration_s", "reversed_calls")
_OF_CALLS: Final = ("usd", "tokens_in", "tokens_out")
_APART: Final = ("failed_usd", "innocent_usd")
_LEAST: Final = 1e-9  # of money: a difference of sums below that is rounding


def costs_document(database: Database, by: Sequence[str], which: Which) -> CostsDocument:
    """Rows by what was asked for, the dearest first, and the total.

    Failed attempts are in it, and shown apart; so are innocent ones, which ended with the process of another attempt.
    Attempts are None by model, and what is gone since has only usd. By tool the rows are of calls of tools.
    """
    rest = [name for name in by if name not in ("model", "tool")]
    attempts = costs.of_attempts(database, rest, which)
    called = (costs.of_tools if "tool" in by else costs.of_calls)(database, by, which)
    removed = [*costs.of_collected(database, by, which), *costs.of_deleted(database, by, which)]
    if "tool" in by:
        rows = called
    else:
        rows = [*(_by_model if "model" in by else _with_calls)(attempts, called, rest), *removed]
    sorted_rows = sorted(rows, key=lambda row: (-row.amount("usd"), *map(str, row.key(by))))
    # From attempts instead of rows, because rows by tool are calls, which are only a part of what attempts spent.
    whole = {name: sum(row.amount(name) for row in [*attempts, *removed]) for name in _FIGURES}
    of_tools = {name: sum(row.amount(name) for row in rows) for name in _OF_TOOLS} if "tool" in by else {}
    return {
        "by": list(by),
        "since": iso(which.since),
        "rows": [_row(by, row) for row in sorted_rows],
        "total": cast("CostTotal", {**whole, "calls": sum(row.amount("calls") for row in called), **of_tools}),
        "unknown": costs.unknown_costs_of(database, which),
    }


def _with_calls(attempts: Iterable[Spent], called: Iterable[Spent], rest: Sequence[str]) -> list[Spent]:
    counts = {row.key(rest): row.amount("calls") for row in called}
    return [row.but(calls=counts.get(row.key(rest), 0)) for row in attempts]


def _by_model(attempts: Iterable[Spent], called: Sequence[Spent], rest: Sequence[str]) -> list[Spent]:
    """Calls by their model; what attempts spent beyond them, and calls without a model, as one more of each."""
    named = [row.but(**_OF_ATTEMPTS) for row in called if row.names["model"] is not None]
    remaining = []
    for row in attempts:
        mine = [call for call in named if call.key(rest) == row.key(rest)]
        beyond = {name: row.amount(name) - sum(call.amount(name) for call in mine) for name in (*_OF_CALLS, *_APART)}
        other, apart = ({name: beyond[name] for name in names} for names in (_OF_CALLS, _APART))
        nameless = (call for call in called if call.names["model"] is None and call.key(rest) == row.key(rest))
        unnamed = sum(call.amount("calls") for call in nameless)
        if abs(other["usd"]) < _LEAST:
            other["usd"] = 0.0
        if any(other.values()) or unnamed:
            apart = {name: usd if abs(usd) >= _LEAST else 0.0 for name, usd in apart.items()}
            remainder = row.but(**other, **apart, **_OF_ATTEMPTS, calls=unnamed)
            remaining.append(Spent({**remainder.names, "model": NO_MODEL}, remainder.figures))
    return named + remaining


def _row(by: Sequence[str], row: Spent) -> CostRow:
    names = [*by, *(["sweep_name"] if "sweep" in by else [])]
    group = {name: row.names[name] for name in names}
    figures = (*_FIGURES, *_OF_TOOLS) if "tool" in by else _FIGURES
    return cast("CostRow", {**group, **{name: row.figures.get(name) for name in figures}})


METRIC = "node.metric"
MEASURED = {"rss": "bytes", "cpu": "% of a core", "files": "open", "processes": ""}  # and the unit of each


def metrics_document(database: Database, row: SweepRow | ExecutionRow) -> AllSeriesDocument:
    """Series of a sweep or of an execution with all that led to it, one for each node run and name.

    Args:
        database: Where it is.
        row: Which of them.
    """
    of = row.id if isinstance(row, SweepRow) else row.sweep_id
    events = queries.event_rows(database, of, kinds=[METRIC, SAMPLE])
    if isinstance(row, ExecutionRow):
        runs = _runs_before(database, row)
        # Node runs are shared, so another execution may have recorded the steps that led to this one.
        events = [event for event in events if event["execution_id"] == row.id or event["data"].get("node_run") in runs]
    series = _series(events)
    cases = cases_of(
        database, sorted({node_series["execution"] for node_series in series if node_series["execution"] is not None})
    )
    for node_series in series:
        node_series["case"] = cases.get(node_series["execution"] or "")
    of_which: SeriesOf = {"id": row.id}
    if isinstance(row, SweepRow):
        return {"sweep": of_which, "series": series}
    return {"execution": of_which, "series": series}


def _runs_before(database: Database, execution: ExecutionRow) -> set[str]:
    if execution.head_id is None:
        return set()
    line = queries.line(database, execution.head_id)
    return {writer.node_run for checkpoint in line for writer in checkpoint.writers}


def _series(events: Iterable[EventRow]) -> list[NodeSeries]:
    """Return a series for each node run and name. The series of a node run goes over all its attempts."""
    points: dict[tuple[str, str], list[tuple[str, float]]] = {}
    first: dict[tuple[str, str], tuple[EventRow, str]] = {}
    for event in events:
        details = event["data"]
        measured = event["kind"] == SAMPLE
        values = (
            {key: details[key] for key in MEASURED if key in details}
            if measured
            else {str(details["name"]): details["value"]}
        )
        for name, figure in values.items():
            assert isinstance(figure, int | float), "a figure is a number"
            # A node may record a metric by the name of a measurement, such as `cpu`.
            key = (str(details.get("node_run")), f"{event['kind']} {name}")
            first.setdefault(key, (event, name))
            points.setdefault(key, []).append((iso(event["at"]), figure))
    return [_node_series(*first[key], sorted(samples, key=lambda point: point[0])) for key, samples in points.items()]


def _node_series(event: EventRow, name: str, points: list[tuple[str, float]]) -> NodeSeries:
    """A series of the node run of its first event."""
    details, measured = event["data"], event["kind"] == SAMPLE
    values = [figure for _, figure in points]
    return {
        "node_run": None if details.get("node_run") is None else str(details["node_run"]),
        "execution": event["execution_id"],
        "case": None,
        "node": str(details["node"]),
        "variant": str(details["variant"]),
        "name": name,
        "measured": measured,
        "unit": MEASURED[name] if measured else None,
        "points": points,
        "n": len(values),
        "min": min(values),
        "last": values[-1],
        "max": max(values),
    }
