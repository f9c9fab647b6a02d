"""What a sweep would run, before anything runs."""

from __future__ import annotations

from typing import Annotated

from wtb.analysis.cases_needed import margin_documents
from wtb.analysis.kept_matrix import read_matrix
from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import MOST, Number
from wtb.core.classes.frozen import frozen
from wtb.core.documents.plan import LastSweepDocument, PlanDocument
from wtb.core.scoring.unknown_costs import UnknownCost, cost_warnings
from wtb.display.matrix.sentences import next_step
from wtb.display.text.plan import document
from wtb.execution.runtime.sweep_run import Ended
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.growth.measured_prices import measured_before, planned_price
from wtb.operations.growth.planned_time import narrow_places, planned_concurrency
from wtb.operations.running.local import ShowProgress, run
from wtb.operations.running.pilot import pilot_document, pilot_of
from wtb.planning.estimate import estimate
from wtb.planning.factors.changes import unchecked_levels
from wtb.planning.prepare import Prepared
from wtb.store.database import DEFAULT_SESSION, Database
from wtb.store.limits.sessions import check_open, no_session, session_name
from wtb.store.read import queries
from wtb.store.read.costs import last_sweep_of, unknown_costs


@frozen
class Planned:
    """What a sweep would run.

    Attributes:
        document: Combinations, cases, cells, and node runs as [low, high] by node; how many cases each margin takes;
            of a pilot what it found.
        pilot: How the pilot ended; None without one.
    """

    document: PlanDocument
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
    pilot: Annotated[int, Number(2, MOST, whole=True)],
    progress: ShowProgress | None = None,
) -> Planned:
    """Run a few cases of a sweep, drawn with its seed, as a sweep of its own, and estimate what all will cost.

    Args:
        context: Where.
        prepared: The sweep.
        pilot: How many cases to run.
        progress: Called several times a second with how far the pilot is.

    Returns:
        The plan, with what the pilot found.

    Raises:
        InputError: If its session is not there.
        ConflictError: If its session takes no new sweeps.
    """
    return _plan(context, prepared, pilot, progress)


def _plan(context: Context, prepared: Prepared, pilot: int | None, progress: ShowProgress | None) -> Planned:
    database = _existing(context.database)
    _check_session(database, session_name(prepared.bound.spec.session), prepared.bound.spec.project)
    runs = estimate(prepared.bound.workflow, prepared.choices, share=prepared.bound.spec.run.share)
    ran = None
    if pilot is not None:
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
    _warn(planned, prepared, unknown_costs(context.database, ran.sweep.id), narrow)
    return Planned(planned, ran.ended)


def _last_sweep(database: Database, prepared: Prepared) -> LastSweepDocument | None:
    """Return what the last sweep of this name leaves open by the metric that decides."""
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


def _warn(planned: PlanDocument, prepared: Prepared, reasons: list[UnknownCost], narrow: list[str]) -> None:
    """Add to a plan the costs that are not known, that its dollar limit cannot be kept, and limits of its speed."""
    planned["unknown_costs"] = reasons
    costs = cost_warnings(reasons, prepared.bound.spec.limits.usd, ended=False)
    planned["warnings"] = [*unchecked_levels(prepared.bound), *costs, *narrow]


def _last_unknown_costs(database: Database, prepared: Prepared) -> list[UnknownCost]:
    """Return what the last sweep of the workflow could not count, of variants that this one runs."""
    bound = prepared.bound
    last = last_sweep_of(database, bound.workflow.name)
    reasons = [] if last is None else unknown_costs(database, last)
    return [reason for reason in reasons if reason["variant"] in bound.vary.get(reason["node"], [reason["variant"]])]


def _existing(database: Database) -> Database | None:
    """Return the database at the right version; None if there is none yet."""
    if not database.exists():
        return None
    database.prepare()
    return database


def _check_session(database: Database | None, name: str, project: str | None) -> None:
    """Refuse a session that would not take the sweep. The default one is always there, so no database needs to be."""
    if database is not None:
        check_open(database, name, project)
    elif name != DEFAULT_SESSION:
        raise no_session(name)
