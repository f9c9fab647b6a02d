"""How a sweep stands while its cells finish, for whoever watches it: counts, means so far, and who leads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.plain import iso
from wtb.status import CELL, FINAL_CELLS
from wtb.store import aggregates, reading, tallies
from wtb.store.database import Database

Document = dict[str, Any]


def live(database: Database, sweep: Mapping[str, Any]) -> Document:
    """How a sweep stands by what is tallied so far; `tallies.tally` brings that up to date. Rows are in order.

    done and failed count cells. n of a metric: cells with a score, not cases as in the matrix; cost_usd is per
    succeeded cell as if alone. `best` only says whose mean leads so far: combinations may have done other cases.
    """
    sweep_id = sweep["id"]
    rows: list[Document] = [
        {"combination": choices, "cells": 0, "done": 0, "failed": 0, "cost_usd": None, "metrics": {}}
        for choices in reading.choices(database, sweep_id)
    ]
    counts = dict.fromkeys(CELL, 0)
    for number, status, count, usd in aggregates.outcomes_by_combination(database, sweep_id, edited=True):
        row = rows[number]
        counts[status] += count
        row["cells"] += count
        row["done"] += count if status in FINAL_CELLS else 0
        row["failed"] += count if status in ("failed", "set_aside") else 0
        if status == "succeeded":
            row["cost_usd"] = usd
    metrics = {row["name"]: {"better": row["better"]} for row in reading.metric_rows(database, sweep_id)}
    for found in tallies.tally_rows(database, sweep_id):
        mean = found["total"] / found["n"]
        rows[found["combination"]]["metrics"][found["metric"]] = {"n": found["n"], "mean": mean}
    return {
        "sweep": {key: sweep[key] for key in ("id", "name", "status", "reason")},
        "tallied_at": iso(tallies.tallied_at(database, sweep_id)),
        "cells": {"total": sum(counts.values()), **counts},
        "rows": rows,
        "best": {name: _best(rows, name, metric["better"]) for name, metric in metrics.items()},
        "metrics": metrics,
    }


def _best(rows: list[Document], metric: str, better: str) -> Document | None:
    """Of the combinations that have a score, the first with the best mean."""
    scored = [row for row in rows if metric in row["metrics"]]
    if not scored:
        return None
    leader = (max if better == "higher" else min)(scored, key=lambda row: float(row["metrics"][metric]["mean"]))
    return {"combination": leader["combination"], **leader["metrics"][metric]}
