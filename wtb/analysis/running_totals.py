"""Live figures of a running sweep for followers: counts, sums so far, and leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wtb.analysis import interim
from wtb.analysis.kept_matrix import read_matrix
from wtb.analysis.matrix.estimates import best_of
from wtb.analysis.scores import Scores
from wtb.analysis.search_history import Ledger
from wtb.core.documents.shared_types import cell_counts
from wtb.core.serialization.plain_json import iso
from wtb.core.status import CELL, FAILED_CELLS, FINAL_CELLS
from wtb.planning.metric_names import COST
from wtb.store.database import Database
from wtb.store.read import aggregates, queries, tallies
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.matrix import BestDocument
    from wtb.core.documents.sweeps import LeaderDocument, LeadersDocument, LiveDocument, LiveRow


def live(database: Database, sweep: SweepRow) -> LiveDocument:
    """Return counts and sums of a sweep as of its latest tally, rows in order; `tallies.tally` updates it.

    `done` and `failed` count cells. `n` of a metric counts cells with a score, scored failures included, and not cases
    as in the matrix; `cost_usd` is the average of succeeded cells, each as if it ran alone.
    """
    sweep_id = sweep.id
    rows: list[LiveRow] = [
        {"combination": choices, "cells": 0, "done": 0, "failed": 0, "cost_usd": None, "metrics": {}}
        for choices in queries.choices(database, sweep_id)
    ]
    counts = dict.fromkeys(CELL, 0)
    scored = Scores(database, sweep, edited=True)
    for number, status, count, usd in aggregates.outcomes_by_combination(scored.cell_groups):
        row = rows[number]
        counts[status] += count
        row["cells"] += count
        row["done"] += count if status in FINAL_CELLS else 0
        row["failed"] += count if status in FAILED_CELLS else 0
        if status == "succeeded":
            row["cost_usd"] = None if number in scored.without_cost else usd
    tallied = {(row.metric, row.combination): row for row in tallies.tally_rows(database, sweep_id)}
    for name, measure in scored.measures.items():
        if measure.figure is not None or measure.passes is not None:  # which is no mean of what is tallied
            continue
        score, failed_of = scored.failure_score(measure), scored.failed_of(name)
        for number, row in enumerate(rows):
            if name == COST and number in scored.without_cost:
                continue
            tally = tallied.get((name, number))
            count, total = (0, 0.0) if tally is None else (tally.n, tally.total)
            failed = 0 if score is None else failed_of.get(number, 0)
            if n := count + failed:
                row["metrics"][name] = {"n": n, "mean": (total + failed * (score or 0.0)) / n}
    return {
        "sweep": {"id": sweep.id, "name": sweep.name, "status": sweep.status, "reason": sweep.reason},
        "tallied_at": iso(tallies.tallied_at(database, sweep_id)),
        "cells": cell_counts(sum(counts.values()), counts),
        "rows": rows,
        "metrics": {name: {"better": measure.better} for name, measure in scored.measures.items()},
    }


def leaders(database: Database, sweep: SweepRow) -> LeadersDocument:
    """Return the leader of each metric, as a matrix made now would show it: combination, n, mean, clear and candidates.

    `as_of` says over how many of the cases; None at the end.
    """
    scored = Scores(database, sweep)
    choices = scored.choices[: scored.planned]
    seen = interim.view(database, sweep, len(choices), scored.cell_groups)
    if seen is None:
        matrix = read_matrix(database, sweep)
        best: dict[str, LeaderDocument | None] = {}
        for name, leader in matrix["best"].items():
            rows = (row["metrics"][name] for row in matrix["rows"] if row["combination"] == leader["combination"])
            leading = next(rows, None)
            best[name] = leading and _leader(leader, leading["n"], leading["mean"])
        return {"as_of": None, "best": best}
    best, ledger = {}, Ledger(database, sweep, choices)
    for name, measure in scored.measures.items():
        table = scored.planned_table(name)
        tries = ledger.tries(name)
        design = scored.design(name, table, tries.share)
        compared = seen.look(table.scores, table.cases, design, measure.scale).compared
        first = None if compared.best is None else compared.rows[compared.best]
        best[name] = None if first is None else _leader(best_of(compared, choices, tries), first.n, first.mean)
    return {"as_of": seen.as_of, "best": best}


def _leader(best: BestDocument, n: int, mean: float | None) -> LeaderDocument:
    return {
        "combination": best["combination"],
        "clear": best["clear"],
        "candidates": best["candidates"],
        "n": n,
        "mean": mean,
    }
