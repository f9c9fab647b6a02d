"""Comparisons of sweeps, and baselines: names for sweeps that later ones are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from wtb.analysis.comparison.compare import LOOKED_INTO, check_margin, compare_sweeps
from wtb.analysis.comparison.row_pairs import compare_two_rows
from wtb.analysis.comparison.series import compare_night, line_of_baseline
from wtb.analysis.comparison.verdicts import CANNOT_TELL, UNCLEAR, WORSE, passes
from wtb.analysis.kept_matrix import judged
from wtb.analysis.sensitivity import check_code, noise_floor
from wtb.core.arguments import AtLeastZero, Count, FromZero, Number, checked
from wtb.core.documents.comparison import (
    TELLING,
    BaselineDocument,
    ComparisonDocument,
    NoiseFloorDocument,
    RegressionDocument,
    RowComparisonDocument,
)
from wtb.core.documents.matrix import JudgedMatrixDocument
from wtb.core.errors import ConflictError, InputError
from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import iso
from wtb.core.status import FINAL_CELLS
from wtb.core.texts import plural
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.results.matrix import row_number
from wtb.operations.results.pools import check_no_pool
from wtb.operations.running.local import Ran, ShowProgress, run, run_stored
from wtb.operations.running.preparing import rebind
from wtb.planning.checks import margin_problems
from wtb.planning.picking import Only
from wtb.planning.prepare import Prepared
from wtb.store.access.sessions import find_session
from wtb.store.read import baselines as store
from wtb.store.read import queries
from wtb.store.read.details import SweepTarget
from wtb.store.read.queries import choices, find_sweep
from wtb.store.records import ListedBaseline
from wtb.store.runs.submit import submit_again
from wtb.store.tables.sweeps import SweepRow


@checked
def compare(
    context: Context,
    before: str,
    after: str,
    *,
    margin: Mapping[str, AtLeastZero] | None = None,
    looked_into: FromZero = LOOKED_INTO,
) -> ComparisonDocument:
    """Compare the results of two sweeps, of the same or of different workflows, case by case.

    Args:
        context: Where they are.
        before: The earlier one: a baseline, or a sweep's id, the beginning of it, or its name.
        after: The later one, named likewise.
        margin: By metric a loss that would matter, in the metric's unit; by default the later sweep's.
        looked_into: Of how many cells that differ the first node that does is found.

    Returns:
        The verdict and why, what was changed, and cells, combinations and metrics that differ.

    Raises:
        InputError: If there is no such sweep, or a margin that its metric cannot have.
    """
    database = context.database
    first, second = (
        store.find_baseline(database, context.session_name(), ref) or find_sweep(database, ref)
        for ref in (before, after)
    )
    check_margin(database, first, second, margin or {})
    return compare_sweeps(database, first, second, margin, looked_into=looked_into)


@checked
def compare_rows(
    context: Context,
    ref: str,
    row: FromZero | str,
    other: FromZero | str,
    *,
    metric: str | None = None,
    limit: Count = TELLING,
) -> RowComparisonDocument:
    """Compare two rows of a sweep over all cases: which wins where, by how much, and whether that may be chance.

    The test is of these two only: among many pairs, small p-values occur by chance. While the sweep runs there is
    none.

    Args:
        context: Where it is.
        ref: A sweep: its id, the beginning of it, or its name.
        row: The number of a combination, as the matrix has it, or its variants: `answer=mini`, or
            `retrieve=wide answer=mini`.
        other: That of the other one.
        metric: By which metric; None for the one that decides.
        limit: How many cases to return, those that differ most first.

    Returns:
        Wins, losses and ties of the first one, the difference with its paired test, and cases.

    Raises:
        InputError: If there is no such sweep, row or metric.
    """
    sweep = find_sweep(context.database, ref)
    every = choices(context.database, sweep.id)
    first, second = (row_number(every, name, row_name) for name, row_name in (("row", row), ("other", other)))
    return compare_two_rows(context.database, sweep, first, second, metric, limit=limit)


def is_well(verdict: str, *, strict: bool = False) -> bool:
    """Return whether the verdict of a comparison lets a test pass. With `strict`, an unclear one does not."""
    return verdict not in (WORSE, CANNOT_TELL, *([UNCLEAR] if strict else []))


@frozen
class Reference:
    """The sweep that a new one is compared with.

    Attributes:
        sweep: The row of a sweep.
        baseline: The name of the baseline that it is; None where the sweep itself was named.
    """

    sweep: SweepRow
    baseline: str | None


def _find_reference(context: Context, ref: str, session: str | None, update: bool) -> Reference:
    """Find the baseline or sweep to compare with. Raises InputError, with `update` also for what is no baseline."""
    database, session = context.database, context.session_name(session)
    baseline = store.find_baseline(database, session, ref)
    if baseline is not None:
        return Reference(baseline, ref)
    try:
        sweep = find_sweep(database, ref)
    except InputError:
        sweep = store.named_baseline(database, session, ref)  # raises, with the command that makes a sweep one
    if update:
        raise InputError(f"{ref!r} is a sweep, which cannot be updated; expected the name of a baseline")
    return Reference(sweep, None)


def passes_regression(comparison: RegressionDocument, *, strict: bool = False) -> bool:
    """Return whether the comparison of `regress` passes. Cells that fail as they did before are no regression."""
    well = is_well(comparison["verdict"], strict=strict) and not comparison["failing"]["unpaired"]
    ended = comparison["after"]["status"] == "completed"
    return ended and well and all(passes(gate, strict=strict) for gate in comparison["gates"])


@frozen
class Regression:
    """The result of `regress`: the sweep that ran, and its comparison.

    Attributes:
        ran: The sweep that ran, and how that ended.
        reference: What it was compared with.
        comparison: As of `compare`, with `baseline` and `gates`.
        updated: Whether the sweep is the baseline now.
        left_out: What of the earlier sweep was not compared, in words, so that it stays the baseline.
    """

    ran: Ran
    reference: Reference
    comparison: RegressionDocument
    updated: bool = False
    left_out: str = ""


@checked
@audited
def regress(
    context: Context,
    prepared: Prepared,
    baseline: str,
    *,
    margin: Mapping[str, AtLeastZero] | None = None,
    update: bool = False,
    strict: bool = False,
    looked_into: FromZero = LOOKED_INTO,
    progress: ShowProgress | None = None,
) -> Regression:
    """Run a sweep here and compare it with a baseline, cell by cell.

    Args:
        context: Where.
        prepared: The sweep.
        baseline: A baseline, or a sweep's id, the beginning of it, or its name.
        margin: By metric a loss that would matter, in the metric's unit; before the sweep's own.
        update: Make it the baseline if everything was compared and it passes. The reference of the nights stays.
        strict: It does not pass where the comparison is unclear, either.
        looked_into: As for `compare`.
        progress: Called several times a second with how far it is.

    Returns:
        The comparison, and whether the baseline was updated.

    Raises:
        InputError: If there is no such baseline, or a part of a sweep would become one.
        WTBError: The error that ended the run.
    """
    if update and prepared.only != Only():
        raise InputError("only a whole sweep can become the baseline, and a part of it was chosen")
    prepared = with_margin(prepared, margin or {})
    reference = _find_reference(context, baseline, prepared.bound.spec.session, update)
    ran = run(context, prepared, progress=progress)
    line = None
    # Only whole nights that ended join the line of a baseline: parts would look like losses of the rest.
    if reference.baseline is not None and prepared.only == Only() and ran.sweep.status == "completed":
        line = line_of_baseline(context.database, reference.baseline, ran.sweep)
    comparison: RegressionDocument = {
        **compare_night(context.database, reference.sweep, ran.sweep, line, looked_into=looked_into),
        "baseline": reference.baseline,
        "gates": judged(context.database, ran.sweep)["gates"],
    }
    passes_now = update and passes_regression(comparison, strict=strict)
    # A baseline that lacks a case or a metric would never be compared by it again, so that it stays the old one.
    left_out = _left_out(comparison) if passes_now else ""
    updated = passes_now and not left_out
    if line is not None:
        night = store.Night(ran.sweep.id, is_worse=comparison["verdict"] == WORSE, was_accepted=updated)
        store.add_night(context.database, reference.sweep.session_id, baseline, night)
    elif updated:
        store.set_baseline(context.database, baseline, ran.sweep.id)
    return Regression(ran, reference, comparison, updated=updated, left_out=left_out)


def _left_out(comparison: ComparisonDocument) -> str:
    """Describe the parts of the earlier sweep that were not compared; empty if all were."""
    changed = comparison["changed"]
    cases = changed["cases"]
    counts = {
        "combination": changed["combinations"]["removed"],
        "case": len(cases["removed"]) + len(cases["changed"]),
        "metric": len(changed["metrics"]["removed"]),
    }
    return ", ".join(plural(count, noun) for noun, count in counts.items() if count)


def with_margin(prepared: Prepared, margin: Mapping[str, AtLeastZero]) -> Prepared:
    """Return a sweep in which these margins replace its own. Raises InputError for margins its metrics cannot have."""
    bound = prepared.bound
    if problems := margin_problems(bound, margin).values():
        raise InputError(*(f"margin: {text}" for text in problems))
    spec = bound.spec.model_copy(update={"margin": {**bound.spec.margin, **margin}})
    return replace(prepared, bound=replace(bound, spec=spec))


class BaselineResult(BaselineDocument):
    """A baseline with the results of its sweep."""

    matrix: JudgedMatrixDocument


@frozen
class BaselineSet:
    """The result of `set_baseline` or `repeat_baseline`.

    Attributes:
        sweep: The id of the sweep that is the baseline now.
        name: The name of that sweep.
        before: The id of another sweep that was it until now; None if there was none.
        noise_floor: What repeats of it differ by, if they were run now.
        unfinished: The repeat that did not come to its end, so that no baseline was set; None if all did.
    """

    sweep: str
    name: str
    before: str | None = None
    noise_floor: NoiseFloorDocument | None = None
    unfinished: Ran | None = None


def _find_finished(context: Context, ref: str, anyway: bool) -> SweepTarget:
    """Find a sweep that is at its end. Raises ConflictError if it is not, unless `anyway`."""
    sweep = SweepTarget(queries.find_sweep(context.database, ref))
    counts = queries.cell_counts(context.database, sweep.id)
    open_cells = sum(count for status, count in counts.items() if status not in FINAL_CELLS)
    status = sweep.row.status
    if (open_cells or status != "completed") and not anyway:
        raise ConflictError(
            f"{sweep} is {status}, and {open_cells:,} of its cells have no outcome: continue with `wtb resume "
            f"{sweep.id}`, or set it anyway"
        )
    return sweep


@checked
@audited
def set_baseline(context: Context, name: str, ref: str, *, anyway: bool = False) -> BaselineSet:
    """Give a finished sweep a name in its session. The sweep is kept while it has one.

    It is the fixed reference of the nights that follow, too, which `regress` with `update` leaves where it is. What
    repeats measured for the same baseline is kept.

    Args:
        context: Where it is.
        name: The baseline's name; another sweep that has it loses it.
        ref: A sweep: its id, the beginning of it, or its name.
        anyway: Even if it has not ended.

    Returns:
        Which sweep is the baseline now, and which was it before.

    Raises:
        InputError: If there is no such sweep, or a baseline cannot be called so.
        ConflictError: If it is not at its end, or is being deleted.
    """
    store.check_name(name)
    return _set(context, name, _find_finished(context, ref, anyway))


@checked
@audited
def repeat_baseline(
    context: Context,
    name: str,
    ref: str,
    *,
    repeat: Annotated[int, Number(1, 100, whole=True)],
    anyway: bool = False,
    progress: ShowProgress | None = None,
) -> BaselineSet:
    """Run a finished sweep again to measure its noise, and give it a name in its session, as `set_baseline` does.

    Args:
        context: Where it is.
        name: The baseline's name; another sweep that has it loses it.
        ref: A sweep: its id, the beginning of it, or its name.
        repeat: Run it so many more times.
        anyway: Even if it has not ended.
        progress: Called several times a second with how far a repeat is.

    Returns:
        Which sweep is the baseline now, and which was it before; or a repeat that did not come to its end.

    Raises:
        InputError: If there is no such sweep, it cannot be run again, or a baseline cannot be called so.
        ConflictError: If it is not at its end, or is being deleted.
    """
    store.check_name(name)
    sweep = _find_finished(context, ref, anyway)
    repeats = _repeat(context, sweep.row, repeat, progress)
    # Only the last can have stopped early: repeats end with the first that does.
    if (last := repeats[-1]).sweep.status != "completed":
        return BaselineSet(sweep.id, sweep.row.name, unfinished=last)
    return _set(context, name, sweep, noise_floor(context.database, sweep.row, [ran.sweep.id for ran in repeats]))


def _set(context: Context, name: str, sweep: SweepTarget, floor: NoiseFloorDocument | None = None) -> BaselineSet:
    before = store.set_baseline(context.database, name, sweep.id, floor)
    # The same sweep again replaced nothing, so that callers do not say that one was.
    return BaselineSet(sweep.id, sweep.row.name, None if before == sweep.id else before, floor)


def _repeat(context: Context, row: SweepRow, times: int, progress: ShowProgress | None) -> list[Ran]:
    """Run a sweep again as often as asked, but stop after a run that did not come to its end."""
    if row.kind == "single":
        raise InputError(f"only a sweep can be repeated, and {row.id} is a single execution")
    check_no_pool(context.database, row, "run again")
    # The code of now must be that of the sweep: otherwise repeats would measure a change, not noise.
    bound = rebind(context, row)
    check_code(context.database, row, bound)
    repeats: list[Ran] = []
    while len(repeats) < times and all(ran.sweep.status == "completed" for ran in repeats):
        id = submit_again(context.database, row)
        context.report(f"repeat {len(repeats) + 1} of {times} ({id}): {row.cells:,} cells")
        repeats.append(run_stored(context, queries.find_sweep(context.database, id), bound, progress=progress))
    return repeats


@checked
def list_baselines(context: Context, session: str | None = None) -> list[BaselineDocument]:
    """List the baselines of a session, or all.

    Args:
        context: Where they are.
        session: Only those of this session; None for that of the context, or for all if it has none.

    Returns:
        A document for each.

    Raises:
        InputError: If there is no such session.
    """
    session = session or context.session
    if session is not None:
        find_session(context.database, session)
    return [_document(row) for row in store.baseline_rows(context.database, session)]


@checked
def show_baseline(context: Context, name: str, *, session: str | None = None) -> BaselineResult:
    """Return a baseline with the matrix of its sweep.

    Args:
        context: Where it is.
        name: The baseline's name.
        session: Its session; by default that of the context, or of the environment.

    Returns:
        Its document.

    Raises:
        InputError: If there is no such baseline.
    """
    session = context.session_name(session)
    sweep = store.named_baseline(context.database, session, name)
    row = next(row for row in store.baseline_rows(context.database, session) if row.name == name)
    return {**_document(row), "matrix": judged(context.database, sweep)}


@checked
@audited
def remove_baseline(context: Context, name: str, *, session: str | None = None) -> str:
    """Remove a baseline. Its sweep stays until the retention policy lets it go.

    Args:
        context: Where it is.
        name: The baseline's name.
        session: Its session; by default that of the context, or of the environment.

    Returns:
        The id of the sweep that it was.

    Raises:
        InputError: If there is no such baseline.
    """
    session = context.session_name(session)
    sweep = store.named_baseline(context.database, session, name)
    store.remove_baseline(context.database, session, name)
    return str(sweep.id)


def _document(row: ListedBaseline) -> BaselineDocument:
    return {
        "name": row.name,
        "session": row.session,
        "set_at": str(iso(row.set_at)),
        "noise_floor": row.noise_floor,
        "sweep": {"id": row.sweep_id, "name": row.sweep, "status": row.status, "finished_at": iso(row.finished_at)},
        "reference": row.reference_id or row.sweep_id,
        "nights": row.nights["count"] if row.nights else 0,
    }
