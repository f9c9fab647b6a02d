"""What a planned sweep will cost, by what node runs of the same workflow and variants have cost in earlier sweeps."""

from __future__ import annotations

from collections.abc import Sequence

from wtb.core.documents.plan import PlannedPrice
from wtb.core.scoring.unknown_costs import sentences
from wtb.core.texts import plural
from wtb.planning.estimate import Count, Estimate
from wtb.store.database import Database
from wtb.store.read.costs import MeasuredRuns, measured_runs, recent_sweeps, unknown_costs

_SWEEPS = 20  # the newest ones, from which prices are measured
_NAMED = 3  # variants, of many that have not run


def measured_before(database: Database | None, workflow: str) -> list[MeasuredRuns] | None:
    """Return what node runs of the newest sweeps of a workflow have cost and took; None if none has run."""
    ids = [] if database is None else recent_sweeps(database, workflow, _SWEEPS)
    return None if database is None or not ids else measured_runs(database, ids)


def planned_price(
    database: Database | None,
    workflow: str,
    runs: Estimate,
    times: int,
    earlier: Sequence[MeasuredRuns] | None,
) -> PlannedPrice:
    """Estimate the price of a plan.

    Args:
        database: Where earlier sweeps are; None if there is none yet.
        workflow: The name of its workflow.
        runs: The node runs of one case and repeat.
        times: How many cases x repeats there are.
        earlier: What `measured_before` returned.

    Returns:
        The price, without retries and evaluators, and what it is measured by; or why it is not known.
    """
    if database is None or earlier is None:
        return _unknown(f"no sweep of workflow {workflow!r} has run here")
    needed = {key: count for key, count in runs.by_variant.items() if count.high != 0}
    measured: dict[tuple[str, str], list[MeasuredRuns]] = {}
    for measurement in earlier:
        measured.setdefault((measurement.node, measurement.variant), []).append(measurement)
    if lacking := [f"{node}={variant}" for node, variant in needed if (node, variant) not in measured]:
        return _unknown(f"{_some(lacking)} did not run in earlier sweeps of the workflow")
    used = [row for key in needed for row in measured[key]]
    ids = list(dict.fromkeys(row.sweep_id for row in used))
    reasons = [cost for id in ids for cost in unknown_costs(database, id) if (cost["node"], cost["variant"]) in needed]
    if reasons:
        return _unknown("; ".join(sentences(reasons)))
    usd = [_price(count, measured[key], times) for key, count in needed.items()]
    highs = [high for _, high in usd if high is not None]
    return {
        "usd": [sum(low for low, _ in usd), sum(highs) if len(highs) == len(usd) else None],
        "node_runs": sum(row.node_runs for row in used),
        "sweeps": len(ids),
        "because": None,
    }


def _price(count: Count, measured: Sequence[MeasuredRuns], times: int) -> tuple[float, float | None]:
    mean = sum(row.usd for row in measured) / sum(row.node_runs for row in measured)
    if count.high is None:
        return count.low * times * mean, None if mean else 0.0
    return count.low * times * mean, count.high * times * mean


def _unknown(because: str) -> PlannedPrice:
    return {"usd": None, "node_runs": 0, "sweeps": 0, "because": because}


def _some(names: Sequence[str]) -> str:
    more = f" and {plural(len(names) - _NAMED, 'more variant')}" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
