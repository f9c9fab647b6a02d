"""The power of a sweep: the cases that its margins need, and the noise between runs without any change (A/A)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from wtb.analysis.comparison.pairing import match, read_outcomes, read_scores
from wtb.analysis.scores import Scores
from wtb.analysis.statistics.intervals import Floats
from wtb.analysis.statistics.margins import cases_for
from wtb.analysis.statistics.power import spreads
from wtb.core.documents.comparison import FloorDocument, NoiseFloorDocument
from wtb.core.documents.plan import MarginDocument
from wtb.core.errors import ConflictError
from wtb.core.tree.stored_code import why
from wtb.planning.binding import Bound
from wtb.planning.environment import changed_tools, present_tools
from wtb.planning.prepare import Prepared
from wtb.store.access.sessions import named_session
from wtb.store.database import Database
from wtb.store.read import baselines, queries
from wtb.store.runs import leases
from wtb.store.tables.sweeps import SweepRow


def margin_documents(
    prepared: Prepared, database: Database | None, pilot: SweepRow | None = None
) -> list[MarginDocument]:
    """Return for each margin how many cases show, with a power of 80%, that no combination lost as much.

    Args:
        prepared: The sweep. All of its combinations have to show it, as `wtb regress` asks; they are taken to vary
            independently.
        database: Where earlier sweeps are, if there is one.
        pilot: A pilot of the sweep that ran.

    Returns:
        metric, margin, rows, cases (that the sweep has), needed (None if it is unknown), sd of the differences
        between two sweeps of equal quality, and because: where that is from, or what is missing.
    """
    spec, rows = prepared.bound.spec, len(prepared.choices)
    documents: list[MarginDocument] = []
    for metric, margin in spec.margin.items():
        spread, because = _spread(prepared.bound, database, metric, pilot)
        if not margin:
            because = "no number of cases shows that nothing at all was lost"
        needed = cases_for(margin, np.full(rows, spread)) if margin > 0 and spread is not None else None
        documents.append(
            {
                "metric": metric,
                "margin": margin,
                "rows": rows,
                "cases": prepared.cases,
                "needed": needed,
                "sd": spread,
                "because": because,
            }
        )
    return documents


def _spread(bound: Bound, database: Database | None, metric: str, pilot: SweepRow | None) -> tuple[float | None, str]:
    """Return the standard deviation of the differences between two sweeps of equal quality, and where it is from."""
    if database is not None:
        session = named_session(database, bound.spec.session)
        # Sources from the most to the least specific: repeats of the same sweep measure noise alone, an earlier sweep
        # may mix it with the spread of cases, and a scale is only an upper bound.
        for row in baselines.baseline_rows(database, session):
            floor = None if row.noise_floor is None else row.noise_floor["metrics"].get(metric)
            if row.sweep == bound.spec.sweep and floor and floor["compared"]:
                return floor["sd"], f"as the repeats of baseline {row.name} differ"
        earlier = queries.latest_completed(database, session, bound.spec.sweep) or pilot
        if earlier is not None:
            earlier_spread = _of_sweep(database, earlier, metric, bound.spec.repeats)
            if earlier_spread is not None:
                return earlier_spread
    for low, high in _scales(bound, metric):
        limits = f"on its scale from {low:g} to {high:g}; a pilot (`wtb pilot`) gives a better estimate"
        # The variance of scores on a scale is at most a quarter of its width squared, and a difference of two sweeps
        # has twice that.
        return (high - low) * math.sqrt(0.5), f"at worst, {limits}"
    return None, (
        f"nobody knows how far {metric} differs by itself: run the sweep once, or measure it with "
        "`wtb baseline repeat NAME SWEEP --times N`"
    )


def _of_sweep(database: Database, earlier: SweepRow, metric: str, repeats: int) -> tuple[float, str] | None:
    """Return the same estimated from the results of one sweep, for its most uneven combination; None if scores do not
    vary.

    Repeats measure how far a case differs from run to run. Without repeats, the spread of the cases is an upper bound.
    """
    scores = Scores(database, earlier)
    of_repeats = _within_cases(scores.by_repeat(metric))
    if of_repeats is not None:
        return of_repeats * math.sqrt(2 / repeats), f"as the repeats of sweep {earlier.id} differ"
    row_spreads = _known_spreads(scores.planned_table(metric).scores)
    if not row_spreads.size:
        return None
    how = f"if cases differ from run to run as from case to case in sweep {earlier.id}"
    return float(row_spreads.max()) * math.sqrt(2), f"at most, {how}"


def _within_cases(scores: Floats) -> float | None:
    """Return the standard deviation between repeats of a case, for the most uneven combination; None without repeats.

    scores: (combination, case, repeat, score) of each cell.
    """
    largest = None
    for combination in np.unique(scores[:, 0]):
        mine = scores[scores[:, 0] == combination]
        place = np.unique(mine[:, 1], return_inverse=True)[1]
        counts = np.bincount(place)
        if (freedom := int((counts - 1).sum())) > 0:
            means = np.bincount(place, mine[:, 3]) / counts
            variance = float(((mine[:, 3] - means[place]) ** 2).sum()) / freedom
            largest = max(largest or 0.0, math.sqrt(variance))
    return largest


def _scales(bound: Bound, metric: str) -> list[tuple[float, float]]:
    measures = [evaluator.measure(metric) for evaluator in bound.evaluators if evaluator.gives(metric)]
    return [measure.scale for measure in measures if measure.scale is not None]


def check_code(database: Database, sweep: SweepRow, bound: Bound) -> None:
    """Reject a sweep whose code or server tools have changed, because it cannot be repeated.

    Raises:
        ConflictError: Code of the sweep or a tool of a server has changed.
    """
    recorded, present = leases.recorded_code(database, sweep), bound.present_code
    if changed := recorded.changed(present):
        names = ", ".join(f"{node}={variant}" for node, variant in changed)
        causes = why(recorded.code, present.code, changed)
        raise ConflictError(
            f"sweep {sweep.id}: the code of {names} has changed since it ran {causes}, so another run would be no "
            f"repeat of it; run the sweep file anew with `wtb run`, and name that one"
        )
    if tools := changed_tools(sweep.spec, present_tools(bound.workflow)):
        raise ConflictError(
            f"sweep {sweep.id}: servers have changed {', '.join(tools)} since it ran, so another run would be no "
            f"repeat of it; run the sweep file anew with `wtb run`, and name that one"
        )


def noise_floor(database: Database, sweep: SweepRow, repeats: Sequence[str]) -> NoiseFloorDocument:
    """Measure by how much repeats of a sweep differ from it.

    Args:
        database: Where all of them are.
        sweep: Its row.
        repeats: The ids of its repeats.

    Returns:
        repeats, sweeps (their ids), cells and metrics by name. Each has `compared`, the number of pairs of cells;
        `differ`, the share of pairs that differ; `sd`, the standard deviation of the differences within a combination,
        in the unit of the metric; and `deterministic`, whether all pairs are equal.
    """
    failing: list[Floats] = []
    scored: dict[str, list[Floats]] = {}
    measures = queries.measures(database, sweep.id)
    for id in repeats:
        repeat = queries.find_sweep(database, id)
        pairs = match(database, sweep, repeat)
        repeat_outcomes = read_outcomes(database, sweep, repeat, pairs)
        failing.append(repeat_outcomes.after - repeat_outcomes.before)
        # An evaluator that fails in one run only is a difference of that cell, too.
        for scores in read_scores(database, sweep, repeat, pairs, measures, repeat_outcomes.lost):
            failing[-1][scores.lost | scores.regained] = 1.0
            scored.setdefault(scores.metric, []).append(scores.differences)
    return {
        "repeats": len(repeats),
        "sweeps": list(repeats),
        "cells": _floor(np.vstack(failing)),
        "metrics": {name: _floor(np.vstack(tables)) for name, tables in scored.items()},
    }


def _known_spreads(rows: Floats) -> Floats:
    each = spreads(rows)
    return each[np.isfinite(each)]


def _floor(differences: Floats) -> FloorDocument:
    """Summarize rows of differences, each of one combination in one repeat."""
    compared = np.isfinite(differences)
    count, differ = int(compared.sum()), int(np.count_nonzero(differences[compared]))
    row_spreads = _known_spreads(differences)
    spread = math.sqrt(float((row_spreads**2).mean())) if row_spreads.size else 0.0
    return {
        "compared": count,
        "differ": differ / count if count else 0.0,
        "sd": spread,
        "deterministic": count > 0 and not differ,
    }
