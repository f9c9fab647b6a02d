"""How many cases the margins of a sweep take: what `wtb plan` says of them before anything runs."""

from __future__ import annotations

import math

import numpy as np

from wtb.analysis.scores import Scores
from wtb.analysis.statistics.intervals import Floats
from wtb.analysis.statistics.margins import cases_for
from wtb.analysis.statistics.power.pairs import spreads
from wtb.core.documents.plan import MarginDocument
from wtb.planning.binding import Bound
from wtb.planning.prepare import Prepared
from wtb.store.database import Database
from wtb.store.limits.sessions import named_session
from wtb.store.read import baselines, queries
from wtb.store.tables.sweeps import SweepRow


def margin_documents(
    prepared: Prepared, database: Database | None, pilot: SweepRow | None = None
) -> list[MarginDocument]:
    """Return for each margin how many cases show, 80 times of 100, that no combination lost as much.

    Args:
        prepared: The sweep. All of its combinations have to show it, as `wtb regress` asks; they are taken to vary
            independently.
        database: Where earlier sweeps are, if there is one.
        pilot: A pilot of the sweep that ran.

    Returns:
        metric, margin, rows, cases (that the sweep has), needed (None where it cannot be told), sd of the differences
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
        for row in baselines.baseline_rows(database, session):
            floor = None if row.noise_floor is None else row.noise_floor["metrics"].get(metric)
            if row.sweep == bound.spec.sweep and floor and floor["compared"]:
                return floor["sd"], f"as the repeats of baseline {row.name} differ"
        earlier = queries.latest_completed(database, session, bound.spec.sweep) or pilot
        if earlier is not None:
            found = _of_sweep(database, earlier, metric, bound.spec.repeats)
            if found is not None:
                return found
    for low, high in _scales(bound, metric):
        limits = f"on its scale from {low:g} to {high:g}; a pilot (`wtb pilot`) says more"
        return (high - low) * math.sqrt(0.5), f"at worst, {limits}"
    return None, (
        f"nobody knows how far {metric} differs by itself: run the sweep once, or measure it with "
        "`wtb baseline repeat NAME SWEEP --times N`"
    )


def _of_sweep(database: Database, earlier: SweepRow, metric: str, repeats: int) -> tuple[float, str] | None:
    """Return the same by the results of one sweep, in its most uneven combination; None without scores that vary.

    Its repeats say how far a case differs from run to run. Without repeats that is at most as far as cases differ.
    """
    scores = Scores(database, earlier)
    of_repeats = _within_cases(scores.by_repeat(metric))
    if of_repeats is not None:
        return of_repeats * math.sqrt(2 / repeats), f"as the repeats of sweep {earlier.id} differ"
    found = spreads(scores.planned_table(metric).scores)
    found = found[np.isfinite(found)]
    if not found.size:
        return None
    how = f"if cases differ from run to run as from case to case in sweep {earlier.id}"
    return float(found.max()) * math.sqrt(2), f"at most, {how}"


def _within_cases(scores: Floats) -> float | None:
    """Return the standard deviation between repeats of a case, of the most uneven combination; None without repeats.

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
    measures = [one.measure(metric) for one in bound.evaluators if one.gives(metric)]
    return [one.scale for one in measures if one.scale is not None]
