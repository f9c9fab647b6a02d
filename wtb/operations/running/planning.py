"""Plans: what a sweep would run and cost, before anything runs; and pilots, which run a few of its cases."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Annotated, Final

from wtb.analysis.kept_matrix import read_matrix
from wtb.analysis.sensitivity import margin_documents
from wtb.analysis.statistics.intervals import t_quantile
from wtb.core.arguments import MAX_ROWS, Number, checked
from wtb.core.documents import plan as documents
from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.core.scoring.unknown_costs import UnknownCost, cost_warnings, sentences
from wtb.core.texts import plural, took
from wtb.display.sentences import next_step
from wtb.display.text.plan import document
from wtb.execution.engine.protocol import engine_of
from wtb.execution.runtime.sweep_run import Ended, default_slots
from wtb.execution.runtime.thread_pool import slots_of
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.running.local import ShowProgress, run
from wtb.planning.binding import unchecked_levels
from wtb.planning.cases import CaseSource, case_row
from wtb.planning.estimate import Count, Estimate, estimate
from wtb.planning.picking import Only
from wtb.planning.prepare import Prepared
from wtb.store.access.sessions import Quota, check_open, find_session, no_session, session_name
from wtb.store.database import DEFAULT_SESSION, Database
from wtb.store.read import costs, queries
from wtb.store.tables.sweeps import SweepRow

METHOD: Final = "mean of the cases that ran, times all cases and repeats; 95% t interval of that mean"
_LONGEST = 190  # of a sweep's name, so that its pilot's is one, too


def pilot_of(prepared: Prepared, count: int) -> Prepared:
    """Return the sweep with `count` of its cases, drawn with its seed, and one repeat; it is called NAME-pilot."""
    spec = prepared.bound.spec
    # Drawn with the seed of the sweep: the same pilot is drawn each time that it is asked for.
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


def pilot_document(database: Database, prepared: Prepared, row: SweepRow, failed: int) -> documents.PilotDocument:
    """Return the result of a pilot with its estimate for the whole sweep.

    Args:
        database: The database that it is in.
        prepared: The whole sweep.
        row: The pilot's row.
        failed: How many of its cells failed.

    Returns:
        A document. Its `estimate` has expected, low and high for usd, tokens, node_runs and work_s (seconds in nodes);
        usd has none if the cost of any variant is not known; the ends are None if a single case ran. `wall_s` is the
        same time with as many concurrent nodes as the sweep allows.
    """
    totals = costs.case_totals(database, row.id)
    spec = prepared.bound.spec
    times = prepared.cases * spec.repeats
    estimate: documents.PilotEstimate = {
        # A sum without the costs that are not known would look like all of it.
        "usd": _interval([] if costs.unknown_costs(database, row.id) else [case.usd for case in totals], times),
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


def _interval(values: Sequence[float], times: float) -> documents.EstimatedAmount:
    if not values:
        return {"expected": None, "low": None, "high": None}
    mean = fmean(values)
    if len(values) < 2:
        return {"expected": mean * times, "low": None, "high": None}
    half = t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    # A t interval is symmetric, so that its lower end may be negative. No amount is.
    return {"expected": mean * times, "low": max(0.0, mean - half) * times, "high": (mean + half) * times}


def planned_concurrency(
    prepared: Prepared, runs: Estimate, earlier: Sequence[costs.MeasuredRuns] | None
) -> documents.PlannedConcurrency:
    """Return how many node runs are made at a time on one machine, and how long all of them take then.

    Args:
        prepared: The sweep.
        runs: The node runs of one case and repeat.
        earlier: What node runs of earlier sweeps took; None if there are none.
    """
    bound = prepared.bound
    means = costs.mean_seconds(earlier or ())
    at_once = slots_of(bound.spec.run, engine_of(bound.adapter), bound.vary, lambda: means)
    planned: documents.PlannedConcurrency = {"at_once": at_once, "is_default": bound.spec.run.concurrency is None}
    needed = {key: count for key, count in runs.by_variant.items() if count.high != 0}
    # A variant that has never run has no time, and the sum of the others would be too small.
    if needed and needed.keys() <= means.keys():
        times = prepared.cases * bound.spec.repeats
        highs = [None if count.high is None else count.high * means[key] for key, count in needed.items()]
        low = sum(count.low * means[key] for key, count in needed.items()) * times / at_once
        bounded = [high for high in highs if high is not None]
        planned["seconds"] = [low, sum(bounded) * times / at_once if len(bounded) == len(highs) else None]
    return planned


def narrow_places(
    database: Database | None,
    prepared: Prepared,
    runs: Estimate,
    earlier: Sequence[costs.MeasuredRuns] | None,
    at_once: int,
) -> list[str]:
    """Return warnings of limits that allow fewer node runs at a time than the sweep makes.

    Args:
        database: Where its session is; None if there is none yet.
        prepared: The sweep.
        runs: The node runs of one case and repeat.
        earlier: What node runs of earlier sweeps took; None if there are none.
        at_once: How many node runs it makes at a time.
    """
    means = costs.mean_seconds(earlier or ())
    times = prepared.cases * prepared.bound.spec.repeats
    warnings = []
    for name, node in prepared.bound.workflow.nodes.items():
        rules, count = node.rules, runs.executed[name].low * times
        if rules.limit is not None and rules.limit < at_once:
            warnings.append(f"node {name!r} has `limit` {rules.limit:,}, lower than the concurrency of {at_once:,}")
        seconds = max((mean for (of, _), mean in means.items() if of == name), default=0.0)
        # By Little's law, a rate of node runs that last so long keeps `rate * seconds` of them under way at a time.
        if rules.rate is not None and count and rules.rate * seconds < at_once:
            least = took(count / rules.rate)
            warnings.append(
                f"node {name!r} has `rate` {rules.rate:g}: {plural(count, 'node run')} take {least} or longer, "
                f"whatever the concurrency is"
            )
    if (quota := _quota(database, prepared)) is not None and quota < at_once:
        warnings.append(
            f"the session has a quota of {plural(quota, 'node run')} at a time, lower than the concurrency of "
            f"{at_once:,}"
        )
    return warnings


def _quota(database: Database | None, prepared: Prepared) -> int | None:
    """Return how many node runs at a time the session allows; None if there is no limit."""
    if database is None:
        return None
    try:
        session = find_session(database, session_name(prepared.bound.spec.session))
    except InputError:  # the default one of a project, which its first sweep makes
        return None
    return Quota.of(session.quota).node_runs


_SWEEPS = 20  # the newest ones, from which prices are measured
_NAMED = 3  # variants, of many that have not run


def measured_before(database: Database | None, workflow: str) -> list[costs.MeasuredRuns] | None:
    """Return what node runs of the newest sweeps of a workflow have cost and took; None if none has run."""
    ids = [] if database is None else costs.recent_sweeps(database, workflow, _SWEEPS)
    return None if database is None or not ids else costs.measured_runs(database, ids)


def planned_price(
    database: Database | None, workflow: str, runs: Estimate, times: int, earlier: Sequence[costs.MeasuredRuns] | None
) -> documents.PlannedPrice:
    """Estimate the price of a plan by the node runs of earlier sweeps.

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
    measured: dict[tuple[str, str], list[costs.MeasuredRuns]] = {}
    for measurement in earlier:
        measured.setdefault((measurement.node, measurement.variant), []).append(measurement)
    if lacking := [f"{node}={variant}" for node, variant in needed if (node, variant) not in measured]:
        return _unknown(f"{_some(lacking)} did not run in earlier sweeps of the workflow")
    used = [row for key in needed for row in measured[key]]
    ids = list(dict.fromkeys(row.sweep_id for row in used))
    reasons = [
        cost for id in ids for cost in costs.unknown_costs(database, id) if (cost["node"], cost["variant"]) in needed
    ]
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


def _price(count: Count, measured: Sequence[costs.MeasuredRuns], times: int) -> tuple[float, float | None]:
    mean = sum(row.usd for row in measured) / sum(row.node_runs for row in measured)
    if count.high is None:
        return count.low * times * mean, None if mean else 0.0
    return count.low * times * mean, count.high * times * mean


def _unknown(because: str) -> documents.PlannedPrice:
    return {"usd": None, "node_runs": 0, "sweeps": 0, "because": because}


def _some(names: Sequence[str]) -> str:
    more = f" and {plural(len(names) - _NAMED, 'more variant')}" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


@frozen
class Planned:
    """The plan of a sweep.

    Attributes:
        document: Combinations, cases, cells, and node runs as [low, high] by node; how many cases each margin takes; of
            a pilot what it found.
        pilot: How the pilot ended; None without one.
    """

    document: documents.PlanDocument
    pilot: Ended | None = None


@checked
def plan(context: Context, prepared: Prepared) -> Planned:
    """Show what a sweep would run. The database need not be there.

    Args:
        context: Where.
        prepared: The sweep.

    Returns:
        The plan.

    Raises:
        InputError: If its session is not there.
        ConflictError: If its session takes no new sweeps.
    """
    return _plan(context, prepared, None, None)


@checked
@audited
def run_pilot(
    context: Context,
    prepared: Prepared,
    *,
    pilot: Annotated[int, Number(2, MAX_ROWS, whole=True)],
    progress: ShowProgress | None = None,
) -> Planned:
    """Run a few cases of a sweep, drawn with its seed, as a sweep of its own, and estimate what all will cost.

    Args:
        context: Where.
        prepared: The sweep.
        pilot: Number of cases to run.
        progress: Called several times a second with how far the pilot is.

    Returns:
        The plan, with what the pilot found.

    Raises:
        InputError: If its session is not there.
        ConflictError: If its session takes no new sweeps.
    """
    return _plan(context, prepared, pilot, progress)


def _plan(context: Context, prepared: Prepared, pilot: int | None, progress: ShowProgress | None) -> Planned:
    # A plan writes nothing, so that a database that is not there is not made for it.
    database = _existing(context.database)
    _check_session(database, session_name(prepared.bound.spec.session), prepared.bound.spec.project)
    runs = estimate(prepared.bound.workflow, prepared.choices, share=prepared.bound.spec.run.share)
    ran = None
    if pilot is not None:
        # A pilot has to be stored, so that now the database is made.
        context.database.prepare()
        ran = run(context, pilot_of(prepared, pilot), progress=progress)
        database = context.database
    planned = document(prepared, runs, margin_documents(prepared, database, None if ran is None else ran.sweep))
    if database is not None and (last := _last_sweep(database, prepared)) is not None:
        planned["last_sweep"] = last
    name = prepared.bound.workflow.name
    earlier = measured_before(database, name)
    narrow: list[str] = []
    if context.imports:  # else workers run it, whose slots decide
        concurrency = planned["concurrency"] = planned_concurrency(prepared, runs, earlier)
        narrow = narrow_places(database, prepared, runs, earlier, concurrency["at_once"])
    if ran is None:
        times = prepared.cases * prepared.bound.spec.repeats
        planned["price"] = planned_price(database, name, runs, times, earlier)
        _warn(planned, prepared, [] if database is None else _last_unknown_costs(database, prepared), narrow)
        return Planned(planned)
    counts = queries.cell_counts(context.database, ran.sweep.id)
    failed = sum(counts.get(status, 0) for status in ("failed", "set_aside", "cancelled"))
    planned["pilot"] = pilot_document(context.database, prepared, ran.sweep, failed)
    _warn(planned, prepared, costs.unknown_costs(context.database, ran.sweep.id), narrow)
    return Planned(planned, ran.ended)


def _last_sweep(database: Database, prepared: Prepared) -> documents.LastSweepDocument | None:
    """Return what the last sweep of this name leaves open by its primary metric; None if nothing."""
    spec = prepared.bound.spec
    last = queries.latest_completed(database, session_name(spec.session), spec.sweep)
    matrix = None if last is None else read_matrix(database, last)
    if matrix is None or (metric := matrix["primary"]) is None:
        return None
    sentence = next_step(matrix, metric).strip()
    if not sentence:
        return None
    return {
        "sweep": matrix["sweep"]["id"],
        "metric": metric,
        "cases": matrix["best"][metric]["cases"],
        "next_step": sentence,
    }


def _warn(planned: documents.PlanDocument, prepared: Prepared, reasons: list[UnknownCost], narrow: list[str]) -> None:
    """Add warnings to a plan: unknown costs, a dollar limit that cannot be kept, and limits of its speed."""
    planned["unknown_costs"] = reasons
    warnings = cost_warnings(reasons, prepared.bound.spec.limits.usd, ended=False)
    planned["warnings"] = [*unchecked_levels(prepared.bound), *warnings, *narrow]


def _last_unknown_costs(database: Database, prepared: Prepared) -> list[UnknownCost]:
    """Return the costs that the last sweep of the workflow could not count, for variants that this one runs too."""
    bound = prepared.bound
    last = costs.last_sweep_of(database, bound.workflow.name)
    reasons = [] if last is None else costs.unknown_costs(database, last)
    return [reason for reason in reasons if reason["variant"] in bound.vary.get(reason["node"], [reason["variant"]])]


def _existing(database: Database) -> Database | None:
    """Return the database at the right version; None if there is none yet."""
    if not database.exists():
        return None
    database.prepare()
    return database


def _check_session(database: Database | None, name: str, project: str | None) -> None:
    """Refuse a session that would not take the sweep.

    The default session is always there, so that no database has to be.
    """
    if database is not None:
        check_open(database, name, project)
    elif name != DEFAULT_SESSION:
        raise no_session(name)
