"""Figures over time: what nodes recorded with `ctx.metric`, and what their processes used while they ran for long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from wtb.core.serialization.plain_json import iso
from wtb.core.tree.checkpoints import ExecutionHistory
from wtb.execution.engine.resource_usage import SAMPLE
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.read.details import cases_of

METRIC = "node.metric"
MEASURED = {"rss": "bytes", "cpu": "% of a core", "files": "open", "processes": ""}  # and the unit of each

Document = dict[str, Any]
Row = Mapping[str, Any]


def metrics_document(database: Database, kind: str, row: Row) -> Document:
    """Series of a sweep or of an execution with all that led to it, one for each node run and name.

    Args:
        database: Where it is.
        kind: "sweep" or "execution".
        row: The row of that kind.
    """
    of = row["id"] if kind == "sweep" else row["sweep_id"]
    events = queries.event_rows(database, of, kinds=[METRIC, SAMPLE])
    if kind == "execution":
        runs = _runs_before(database, row)
        events = [one for one in events if one["execution_id"] == row["id"] or one["data"].get("node_run") in runs]
    series = _series(events)
    cases = cases_of(database, sorted({one["execution"] for one in series}))
    return {kind: {"id": row["id"]}, "series": [{**one, "case": cases.get(one["execution"])} for one in series]}


def _runs_before(database: Database, execution: Row) -> set[str]:
    if execution["head_id"] is None:
        return set()
    history = ExecutionHistory(queries.line(database, execution["head_id"]))
    return {writer.node_run for checkpoint in history.checkpoints for writer in checkpoint.writers}


def _series(events: Iterable[Row]) -> list[Document]:
    """Where one node run was tried several times, its series goes on with the next attempt."""
    found: dict[tuple[str, str], Document] = {}
    for event in events:
        data = event["data"]
        measured = event["kind"] == SAMPLE
        values = {key: data[key] for key in MEASURED if key in data} if measured else {data["name"]: data["value"]}
        for name, value in values.items():
            one = found.setdefault(
                (str(data.get("node_run")), f"{event['kind']} {name}"),
                {
                    "node_run": data.get("node_run"),
                    "execution": event["execution_id"],
                    "node": data["node"],
                    "variant": data["variant"],
                    "name": name,
                    "measured": measured,
                    "unit": MEASURED[name] if measured else None,
                    "points": [],
                },
            )
            one["points"].append([iso(event["at"]), value])
    for one in found.values():
        one["points"].sort(key=lambda point: str(point[0]))
        values_ = [value for _, value in one["points"]]
        one |= {"n": len(values_), "min": min(values_), "last": values_[-1], "max": max(values_)}
    return list(found.values())
