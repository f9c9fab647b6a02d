"""How many cases the margins of a sweep take: what `wtb plan` says of them before anything runs."""

from __future__ import annotations

import math

import numpy as np

from wtb.analysis.scores import Scores
from wtb.analysis.statistics.margins import cases_for
from wtb.analysis.statistics.power import spreads
from wtb.core.documents.plan import MarginDocument
from wtb.planning.binding import Bound
from wtb.planning.prepare import Prepared
from wtb.store.database import Database
from wtb.store.limits.sessions import named_session
from wtb.store.read import baselines, queries
from wtb.store.rows.sweeps import SweepRow


def margin_documents(prepared: Prepared, database: Database | None) -> list[MarginDocument]:
    """For each margin how many cases show, 80 times of 100, that two sweeps of equal quality differ by less.

    That is for one combination. database: where earlier sweeps are, if there is one.

    Returns:
        metric, margin, cases (that the sweep has), needed (None where it cannot be told), sd of the differences between
        two such sweeps, and because: where that is from, or what is missing.
    """
    spec = prepared.bound.spec
    documents: list[MarginDocument] = []
    for metric, margin in spec.margin.items():
        spread, because = _spread(prepared.bound, database, metric)
        known = spread is not None and margin > 0
        if not margin:
            because = "no number of cases shows that nothing at all was lost"
        documents.append(
            {
                "metric": metric,
                "margin": margin,
                "cases": prepared.cases,
                "needed": cases_for(margin, spread) if known and spread is not None else None,
                "sd": spread,
                "because": because,
            }
        )
    return documents


def _spread(bound: Bound, database: Database | None, metric: str) -> tuple[float | None, str]:
    """The standard deviation of the differences between two sweeps in which nothing changed, and where it is from."""
    name = bound.spec.sweep
    if database is not None:
        session = named_session(database, bound.spec.session)
        for row in baselines.baseline_rows(database, session):
            floor = None if row.noise_floor is None else row.noise_floor["metrics"].get(metric)
            if row.sweep == name and floor and floor["compared"]:
                return floor["sd"], f"as the repeats of baseline {row.name} differ"
        earlier = queries.latest_completed(database, session, name)
        spread = None if earlier is None else _at_most(database, earlier, metric)
        if earlier is not None and spread is not None:
            return spread, f"at most, if cases differ from run to run as from case to case in sweep {earlier.id}"
    for low, high in _scales(bound, metric):
        return (high - low) * math.sqrt(0.5), f"at worst, on its scale from {low:g} to {high:g}"
    return None, (
        f"nobody knows how far {metric} differs by itself: run the sweep once, or measure it with "
        "`wtb baseline set NAME SWEEP --repeat N`"
    )


def _at_most(database: Database, sweep: SweepRow, metric: str) -> float | None:
    """How far two sweeps could differ by case where each scores like this one, in its most uneven combination."""
    found = spreads(Scores(database, sweep).planned_table(metric).scores)
    found = found[np.isfinite(found)]
    return float(found.max()) * math.sqrt(2) if found.size else None


def _scales(bound: Bound, metric: str) -> list[tuple[float, float]]:
    measures = [one.measure(metric) for one in bound.evaluators if one.gives(metric)]
    return [one.scale for one in measures if one.scale is not None]
