"""Comparing sweeps: two that are there, or a new one with a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from wtb.analysis.comparison.compare import LOOKED_INTO, check_margin, compare_sweeps
from wtb.analysis.comparison.row_pairs import compare_two_rows
from wtb.analysis.comparison.verdicts import CANNOT_TELL, UNCLEAR, WORSE, passes
from wtb.analysis.kept_matrix import judged
from wtb.analysis.nightly.gathering import line_of_baseline
from wtb.analysis.nightly.series import compare_night
from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import AtLeastZero, Count, FromZero
from wtb.core.classes.frozen import frozen
from wtb.core.documents.comparison import TELLING, ComparisonDocument, RegressionDocument, RowComparisonDocument
from wtb.core.errors import InputError
from wtb.core.texts import plural
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.row_names import row_number
from wtb.operations.running.local import Ran, ShowProgress, run
from wtb.planning.checks import margin_problems
from wtb.planning.data.picking import Only
from wtb.planning.prepare import Prepared
from wtb.store.read.baselines import Night, add_night, find_baseline, named_baseline, set_baseline
from wtb.store.read.queries import choices, find_sweep
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
        find_baseline(database, context.session_name(), ref) or find_sweep(database, ref) for ref in (before, after)
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

    The test is of these two alone: whoever looks at many pairs finds small p by chance. While the sweep runs there is
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
    """Return whether the verdict of a comparison lets a test pass; strict: not where it is unclear."""
    return verdict not in (WORSE, CANNOT_TELL, *([UNCLEAR] if strict else []))


@frozen
class Reference:
    """What a new sweep is compared with.

    Attributes:
        sweep: The row of a sweep.
        baseline: The name of the baseline that it is; None where the sweep itself was named.
    """

    sweep: SweepRow
    baseline: str | None


def _find_reference(context: Context, ref: str, session: str | None, update: bool) -> Reference:
    """Find the baseline or sweep to compare with. Raises InputError; update: for a sweep, which cannot be updated."""
    database, session = context.database, context.session_name(session)
    baseline = find_baseline(database, session, ref)
    if baseline is not None:
        return Reference(baseline, ref)
    try:
        sweep = find_sweep(database, ref)
    except InputError:
        sweep = named_baseline(database, session, ref)  # raises: it says how a sweep becomes one
    if update:
        raise InputError(f"{ref!r} is a sweep, which cannot be updated; expected the name of a baseline")
    return Reference(sweep, None)


def passes_regression(comparison: RegressionDocument, *, strict: bool = False) -> bool:
    """Return whether the comparison of `regress` passes: cells that fail as they did before are no regression."""
    well = is_well(comparison["verdict"], strict=strict) and not comparison["failing"]["unpaired"]
    ended = comparison["after"]["status"] == "completed"
    return ended and well and all(passes(gate, strict=strict) for gate in comparison["gates"])


@frozen
class Regression:
    """What `regress` found.

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
    if reference.baseline is not None and prepared.only == Only() and ran.sweep.status == "completed":
        line = line_of_baseline(context.database, reference.baseline, ran.sweep)
    comparison: RegressionDocument = {
        **compare_night(context.database, reference.sweep, ran.sweep, line, looked_into=looked_into),
        "baseline": reference.baseline,
        "gates": judged(context.database, ran.sweep)["gates"],
    }
    passes_now = update and passes_regression(comparison, strict=strict)
    left_out = _left_out(comparison) if passes_now else ""
    updated = passes_now and not left_out
    if line is not None:
        night = Night(ran.sweep.id, is_worse=comparison["verdict"] == WORSE, was_accepted=updated)
        add_night(context.database, reference.sweep.session_id, baseline, night)
    elif updated:
        set_baseline(context.database, baseline, ran.sweep.id)
    return Regression(ran, reference, comparison, updated=updated, left_out=left_out)


def _left_out(comparison: ComparisonDocument) -> str:
    """Say what of the earlier sweep was not compared."""
    changed = comparison["changed"]
    cases = changed["cases"]
    counts = {
        "combination": changed["combinations"]["removed"],
        "case": len(cases["removed"]) + len(cases["changed"]),
        "metric": len(changed["metrics"]["removed"]),
    }
    return ", ".join(plural(count, noun) for noun, count in counts.items() if count)


def with_margin(prepared: Prepared, margin: Mapping[str, AtLeastZero]) -> Prepared:
    """Return a sweep with other margins before its own. Raises InputError for those that its metrics cannot have."""
    bound = prepared.bound
    if problems := margin_problems(bound, margin).values():
        raise InputError(*(f"margin: {text}" for text in problems))
    spec = bound.spec.model_copy(update={"margin": {**bound.spec.margin, **margin}})
    return replace(prepared, bound=replace(bound, spec=spec))
