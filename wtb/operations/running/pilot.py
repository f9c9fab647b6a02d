"""A pilot: a few cases of a sweep are really run, to tell what the whole will cost.

The estimate is the mean of a case's totals times the number of cases and repeats; its interval is Student's t interval
of that mean at 95%, times the same, and not below zero. Node runs that combinations share are counted as executed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Final

from wtb.analysis.statistics.intervals import t_quantile
from wtb.core.documents.plan import EstimatedAmount, PilotDocument, PilotEstimate
from wtb.execution.runtime.sweep_run import default_slots
from wtb.planning.cases import CaseSource, case_row
from wtb.planning.data.picking import Only
from wtb.planning.prepare import Prepared
from wtb.store.database import Database
from wtb.store.read.costs import case_totals, unknown_costs
from wtb.store.tables.sweeps import SweepRow

METHOD: Final = "mean of the cases that ran, times all cases and repeats; 95% t interval of that mean"
_LONGEST = 190  # of a sweep's name, so that its pilot's is one, too


def pilot_of(prepared: Prepared, count: int) -> Prepared:
    """Return the sweep with `count` of its cases, drawn with its seed, and one repeat; it is called NAME-pilot."""
    spec = prepared.bound.spec
    places = set(random.Random(spec.seed).sample(range(prepared.cases), min(count, prepared.cases)))
    cases = [case for place, case in enumerate(prepared.picked()) if place in places]
    clusters = [cluster for place, cluster in enumerate(prepared.clusters) if place in places]
    small = spec.model_copy(update={"sweep": f"{spec.sweep[:_LONGEST]}-pilot", "repeats": 1, "gates": ()})
    source = CaseSource(
        prepared.source.name, spec.folder, lambda: ((f"case {case.id!r}", case_row(case)) for case in cases)
    )
    return replace(
        prepared,
        bound=replace(prepared.bound, spec=small),
        source=source,
        cases=len(cases),
        only=Only(),
        clusters=clusters,
        findings=(),
        sampled_from=None,
    )


def pilot_document(database: Database, prepared: Prepared, row: SweepRow, failed: int) -> PilotDocument:
    """Return the result of a pilot, and what it says of the whole sweep.

    Args:
        database: The database that it is in.
        prepared: The whole sweep.
        row: The pilot's row.
        failed: How many of its cells failed.

    Returns:
        A document. Its `estimate` has expected, low and high for usd, tokens, node_runs and work_s (seconds in nodes);
        usd has none if the cost of any variant is not known;
        the ends are None if a single case ran. `wall_s` is the same time with as many concurrent nodes as the sweep
        allows.
    """
    totals = case_totals(database, row.id)
    spec = prepared.bound.spec
    times = prepared.cases * spec.repeats
    estimate: PilotEstimate = {
        "usd": _interval([] if unknown_costs(database, row.id) else [case.usd for case in totals], times),
        "tokens": _interval([case.tokens for case in totals], times),
        "node_runs": _interval([case.node_runs for case in totals], times),
        "work_s": _interval([case.work_s for case in totals], times),
    }
    at_once = default_slots(database, prepared.bound)
    slots = min(at_once, times * len(prepared.choices))
    return {
        "sweep": row.id,
        "status": row.status,
        "reason": row.reason,
        "cases": len(totals),
        "of": prepared.cases,
        "repeats": spec.repeats,
        "failed_cells": failed,
        "method": METHOD,
        "estimate": estimate,
        "wall_s": _interval([case.work_s for case in totals], times / slots),
        "concurrency": at_once,
    }


def _interval(values: Sequence[float], times: float) -> EstimatedAmount:
    if not values:
        return {"expected": None, "low": None, "high": None}
    mean = fmean(values)
    if len(values) < 2:
        return {"expected": mean * times, "low": None, "high": None}
    half = t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return {"expected": mean * times, "low": max(0.0, mean - half) * times, "high": (mean + half) * times}
