"""Figures over time: what nodes recorded with `ctx.metric`, and what their processes used while they ran for long."""

from __future__ import annotations

from collections.abc import Iterable

from wtb.core.documents.costs import AllSeriesDocument, NodeSeries, SeriesOf
from wtb.core.serialization.plain_json import iso
from wtb.execution.engine.resource_usage import SAMPLE
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.read.details import cases_of
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.sweeps import EventRow, SweepRow

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
        events = [one for one in events if one["execution_id"] == row.id or one["data"].get("node_run") in runs]
    series = _series(events)
    cases = cases_of(database, sorted({one["execution"] for one in series if one["execution"] is not None}))
    for one in series:
        one["case"] = cases.get(one["execution"] or "")
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
    """Where one node run was tried several times, its series continues with the next attempt."""
    points: dict[tuple[str, str], list[tuple[str, float]]] = {}
    first: dict[tuple[str, str], tuple[EventRow, str]] = {}
    for event in events:
        data = event["data"]
        measured = event["kind"] == SAMPLE
        values = {key: data[key] for key in MEASURED if key in data} if measured else {str(data["name"]): data["value"]}
        for name, value in values.items():
            assert isinstance(value, int | float), "a figure is a number"
            key = (str(data.get("node_run")), f"{event['kind']} {name}")
            first.setdefault(key, (event, name))
            points.setdefault(key, []).append((iso(event["at"]), value))
    return [_one(*first[key], sorted(samples, key=lambda point: point[0])) for key, samples in points.items()]


def _one(event: EventRow, name: str, points: list[tuple[str, float]]) -> NodeSeries:
    """A series of the node run of its first event."""
    data, measured = event["data"], event["kind"] == SAMPLE
    values = [value for _, value in points]
    return {
        "node_run": None if data.get("node_run") is None else str(data["node_run"]),
        "execution": event["execution_id"],
        "case": None,
        "node": str(data["node"]),
        "variant": str(data["variant"]),
        "name": name,
        "measured": measured,
        "unit": MEASURED[name] if measured else None,
        "points": points,
        "n": len(values),
        "min": min(values),
        "last": values[-1],
        "max": max(values),
    }
