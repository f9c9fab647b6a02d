"""Extending a sweep that has run: more cases, more repeats and more variants, without running again what it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import Count, Reason
from wtb.core.errors import ConflictError, InputError, meant_or_known
from wtb.core.texts import plural
from wtb.core.tree.added_rows import additions
from wtb.core.tree.combinations import in_words
from wtb.core.tree.stored_code import keeping_written
from wtb.core.tree.stored_spec import StoredExtension
from wtb.execution.runtime.code_drift import accept_tools
from wtb.execution.runtime.sweep_run import Ended, take_over
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.control.pools import check_no_pool
from wtb.operations.growth.estimating import Amount, estimate_runs
from wtb.operations.growth.levels import Choices, Code, Levels, changed_code, code_error, with_levels
from wtb.operations.growth.new_cases import NewCases, read_new_cases
from wtb.operations.growth.new_rows import Grown, count_at_most, new_rows
from wtb.operations.payers import check_payer
from wtb.operations.running import continuing, local
from wtb.operations.running.local import ShowProgress
from wtb.operations.running.preparing import bind_stored, check_runs_elsewhere
from wtb.planning.binding import Bound
from wtb.planning.prepare import MAX_CELLS, matching, stored_spec
from wtb.planning.sweep_spec import Variant, VariantRef, read_variants
from wtb.store.growth.extension import Extension, insert_extension
from wtb.store.growth.fork_points import NewRow
from wtb.store.growth.row_cells import Begun
from wtb.store.growth.stopped import restart_combinations, stopped_of
from wtb.store.read import baselines, evidence, queries
from wtb.store.rows.sweeps import SweepRow
from wtb.store.runs import leases

_NOTHING = "nothing to add; expected cases, more repeats, variants or a stopped combination"


@dataclass(frozen=True)
class PlannedExtension:
    """What `extend` would add.

    Attributes:
        sweep: The id of the sweep.
        name: Its name.
        cases: How many cases are new.
        present: How many of the given cases are there already, with the same content.
        held_out: How many of them `holdout` leaves out.
        combinations: The new combinations.
        repeats: How many repeats there would be.
        cells: How many cells would be added.
        node_runs: How many node runs they take, at least and at most; None if there is no bound.
        usd: The same in US dollars, by what node runs of this sweep have cost; None if that is not known.
        notes: Sentences about the cases and variants.
    """

    sweep: str
    name: str
    cases: int
    present: int
    held_out: int
    combinations: tuple[Choices, ...]
    repeats: int
    cells: int
    node_runs: Amount
    usd: Amount | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Extended(PlannedExtension):
    """What `extend` added.

    Attributes:
        executions: How many executions are to run.
        failed: How many cells failed before they came to what differs, as those of other combinations did.
        restarted: How many cells of stopped combinations run again.
        queued: Whether workers run them.
        status: Of the sweep now.
        problem: Why workers could not be notified; None if they were, or none are needed.
        ended: How the run ended, if they ran here.
    """

    executions: int
    failed: int
    restarted: int
    queued: bool
    status: str
    problem: str | None = None
    ended: Ended | None = None


@dataclass(frozen=True)
class _Draft:
    """An extension that is checked against the sweep."""

    sweep: SweepRow
    levels: Levels
    every: Sequence[Choices]
    rows: Sequence[NewRow]
    cases: NewCases
    repeats: int
    planned: PlannedExtension

    @property
    def is_empty(self) -> bool:
        return not self.planned.cells


@checked
def plan_extension(
    context: Context,
    ref: str,
    *,
    cases: Sequence[Any] | None = None,
    repeats: Count | None = None,
    vary: Mapping[str, Sequence[Variant]] | None = None,
    code: Code | None = None,
) -> PlannedExtension:
    """Show what `extend` would add: cells, node runs and their price. Nothing is changed.

    Args:
        context: Where.
        ref: The sweep: its id, the beginning of it, or its name.
        cases: Cases to add, as in a file of cases. Those that are there with the same content are counted.
        repeats: How many repeats there are to be.
        vary: Node -> further variants, as in a sweep file.
        code: Binds a sweep to its code; by default what its import path names.

    Returns:
        What it would add.

    Raises:
        InputError: If there is no such sweep, or something does not fit.
        ConflictError: If the sweep cannot be extended.
    """
    sweep = queries.find_sweep(context.database, ref)
    _check_extensible(context, sweep)
    return _draft(context, sweep, (cases, repeats, vary), code or partial(bind_stored, context)).planned


@checked
@audited
def extend(
    context: Context,
    ref: str,
    *,
    cases: Sequence[Any] | None = None,
    repeats: Count | None = None,
    vary: Mapping[str, Sequence[Variant]] | None = None,
    combination: Mapping[str, str] | None = None,
    allow_code_change: bool = False,
    reason: Reason | None = None,
    run: bool = True,
    code: Code | None = None,
    progress: ShowProgress | None = None,
) -> Extended:
    """Add cases, repeats or variants to a sweep, and run only what is new.

    Cells that are there stay as they are. A new combination goes on from the checkpoint at which it differs from one
    that is there; new cases and repeats begin with their case. What is added counts as planned: it is ranked, and what
    the sweep had shown before counts as an earlier look at the same cases.

    Args:
        context: Where, and who extends it.
        ref: The sweep: its id, the beginning of it, or its name.
        cases: Cases to add, as in a file of cases. Those that are there with the same content are counted.
        repeats: How many repeats there are to be.
        vary: Node -> further variants, as in a sweep file.
        combination: Node -> variant: stopped combinations that choose all of these run again.
        allow_code_change: Go on although code, or a tool of a server, has changed.
        reason: A reason for people.
        run: Run it here until it ends, unless workers do; else it is left to whoever resumes the sweep.
        code: Binds a sweep to its code; by default what its import path names.
        progress: Called several times a second with how far a run here is.

    Returns:
        What was added, and how it ended if it ran here.

    Raises:
        InputError: If there is no such sweep, something does not fit, or a case is there with another content.
        ConflictError: If the sweep is a baseline or a pool, it is cancelled, another process runs it, or its code or a
            tool of a server has changed.
    """
    database = context.database
    sweep = queries.find_sweep(database, ref)
    check_payer(context, sweep)
    _check_extensible(context, sweep)
    if run:
        check_runs_elsewhere(context, sweep)
    code = code or partial(bind_stored, context)
    numbers = [] if combination is None else _stopped_numbers(context, sweep, combination)
    draft = _draft(context, sweep, (cases, repeats, vary), code, restarts=combination is not None)
    changed = _check_code(context, draft, allow=allow_code_change)
    if sweep.queued:
        context.notifier.check()
    else:
        take_over(database, sweep.id)
    restarted = restart_combinations(database, sweep, numbers, context.by) if numbers else 0
    begun = Begun()
    if not draft.is_empty:
        begun = insert_extension(database, draft.sweep, _extension(context, draft, reason, changed))
    problem = context.notifier.notify_pending(database) if sweep.queued else None
    ended = None
    if run and not sweep.queued and leases.unfinished(database, sweep.id):  # also what was added before and was lost
        bound = code(stored_spec(queries.find_sweep(database, sweep.id)))
        how = local.Code(bound, partial(local.follow, progress=progress))
        ended = continuing.resume(context, sweep.id, code=how, allow_code_change=allow_code_change).ended
    return Extended(
        **{name: getattr(draft.planned, name) for name in PlannedExtension.__dataclass_fields__},
        executions=len(begun.pending),
        failed=begun.failed,
        restarted=restarted,
        queued=sweep.queued,
        status=str(queries.find_sweep(database, sweep.id).status),
        problem=problem,
        ended=ended,
    )


def _check_extensible(context: Context, sweep: SweepRow) -> None:
    """Reject a sweep that cannot be extended."""
    database = context.database
    if sweep.kind == "single":
        raise InputError(f"{sweep.id} is a single execution; expected a sweep", argument="ref")
    if sweep.status == "cancelled":
        raise ConflictError(f"sweep {sweep.name} ({sweep.id}) is cancelled for good: nothing of it runs any more")
    check_no_pool(database, sweep, "extended")
    if names := baselines.names_of(database, sweep.id):
        raise ConflictError(
            f"sweep {sweep.name} ({sweep.id}) is the baseline {', '.join(map(repr, names))}: what others are compared "
            f"with must stay as it is. Name another sweep with `wtb baseline set`, or submit a new sweep"
        )


Asked = tuple[Sequence[Any] | None, int | None, Mapping[str, Sequence[Variant]] | None]


def _stopped_numbers(context: Context, sweep: SweepRow, combination: Choices) -> list[int]:
    """Return the numbers of the stopped combinations that choose so."""
    stopped = stopped_of(context.database, sweep.id)
    return [
        number for number in matching(queries.choices(context.database, sweep.id), combination) if number in stopped
    ]


def _draft(context: Context, sweep: SweepRow, asked: Asked, code: Code, *, restarts: bool = False) -> _Draft:
    """Check an extension against the sweep. Raises InputError or ConflictError."""
    cases, repeats, vary = asked
    if cases is None and repeats is None and not vary and not restarts:
        raise InputError(_NOTHING)
    before = sweep.spec["repeats"]
    if repeats is not None and repeats < before:
        raise InputError(
            f"sweep {sweep.id} has {plural(before, 'repeat')}; expected at least as many", argument="repeats"
        )
    present = code(stored_spec(sweep))
    added, notes = _new_levels(sweep, present, vary or {})
    if added:
        _check_varies(sweep)
    levels = with_levels(sweep, present, code, added)
    every = queries.choices(context.database, sweep.id)
    spec = levels.bound.spec
    known = [{**levels.defaults, **row} for row in every]
    baseline = sweep.spec.get("baseline_row")
    grown = Grown(spec, known, None if baseline is None else {**levels.defaults, **baseline}, levels.names)
    has = evidence.case_count(context.database, sweep.id)
    _check_size(sweep, (len(every) + count_at_most(grown), has + len(cases or ()), repeats or before))
    rows = new_rows(grown)
    new_cases = NewCases() if cases is None else read_new_cases(context, sweep, levels.bound, cases)
    after = repeats or before
    cells = (len(every) + len(rows)) * (has + len(new_cases.cases)) * after - len(every) * has * before
    runs, usd = estimate_runs(
        context.database,
        sweep,
        levels.bound.workflow,
        (known, [row.choices for row in rows]),
        (has * before, (has + len(new_cases.cases)) * after - has * before),
    )
    planned = PlannedExtension(
        sweep.id,
        sweep.name,
        len(new_cases.cases),
        new_cases.present,
        new_cases.held_out,
        tuple(row.choices for row in rows),
        after,
        cells,
        runs,
        usd,
        (*notes, *new_cases.notes),
    )
    return _Draft(sweep, levels, every, rows, new_cases, after, planned)


def _check_varies(sweep: SweepRow) -> None:
    """Reject new combinations where they cannot be planned."""
    if additions(sweep.spec):
        raise ConflictError(
            f"sweep {sweep.name} ({sweep.id}) has exploratory rows, which stand after those that were planned: add "
            f"cases and repeats only, or submit a new sweep with these variants"
        )
    if sweep.status == "running":
        raise ConflictError(
            f"sweep {sweep.name} ({sweep.id}) is running, so where new combinations would begin still moves: "
            f"`wtb pause {sweep.id}` first, extend it, then `wtb resume {sweep.id}`; cases and repeats can be added now"
        )


def _new_levels(
    sweep: SweepRow, present: Bound, vary: Mapping[str, Sequence[Variant]]
) -> tuple[dict[str, list[Variant]], list[str]]:
    """Return the variants that the sweep does not have yet, by node, and sentences about the others."""
    nodes = present.workflow.nodes
    if unknown := [node for node in vary if node not in nodes]:
        raise InputError(
            *(f"the workflow has no node {node!r}{meant_or_known(node, nodes)}" for node in unknown), argument="vary"
        )
    added: dict[str, list[Variant]] = {}
    notes: list[str] = []
    for node, refs in read_variants(vary).items():
        listed = present.spec.vary.get(node, ())
        known = {ref.name: ref for ref in listed} if not isinstance(listed, str) else {}
        recorded = {*known, *(sweep.fingerprints.get(node, {}) if listed == "all" else ())}
        if node not in present.spec.vary:
            recorded = {nodes[node].default}
        for ref in refs:
            if ref.name not in recorded:
                added.setdefault(node, []).append(ref.name if ref.is_own else ref.model_dump(mode="json"))
                continue
            _check_same(node, ref, known.get(ref.name))
            notes.append(f"the sweep has {node}={ref.name} already")
    return added, notes


def _check_same(node: str, ref: VariantRef, known: VariantRef | None) -> None:
    if not ref.is_own and ref != known:
        raise InputError(
            f"node {node!r} has another variant {ref.name!r} in this sweep: give this one a name of its own",
            argument="vary",
        )


def _check_size(sweep: SweepRow, sizes: tuple[int, int, int]) -> None:
    combinations, cases, repeats = sizes
    if (cells := combinations * cases * repeats) > MAX_CELLS:
        raise InputError(
            f"sweep {sweep.id} would have {combinations:,} combinations x {cases:,} cases x {repeats:,} repeats = "
            f"{cells:,} cells; at most {MAX_CELLS:,} are allowed"
        )


def _check_code(context: Context, draft: _Draft, *, allow: bool) -> list[tuple[str, str]]:
    """Return the variants whose code has changed. Raises ConflictError if they must not have."""
    database, sweep, bound = context.database, draft.sweep, draft.levels.bound
    runs_all = draft.cases.cases or draft.repeats > sweep.spec["repeats"]
    changed = changed_code(database, sweep, bound, None if runs_all else list(draft.levels.names))
    if changed and not allow:
        advice = (
            "so new cells would not be comparable with those that are there; bring the old code back, submit a new "
            "sweep, or allow the change of code"
        )
        error = code_error(database, sweep, bound, changed, advice)
        raise ConflictError(str(error), argument="allow_code_change")
    if bound.workflow.versions:
        accept_tools(database, sweep, bound, allow=allow)
    return changed


def _extension(context: Context, draft: _Draft, reason: Reason | None, changed: Sequence[tuple[str, str]]) -> Extension:
    sweep, levels, planned = queries.find_sweep(context.database, draft.sweep.id), draft.levels, draft.planned
    before = sweep.spec["repeats"]
    spec = levels.spec(sweep)
    spec["repeats"] = draft.repeats
    fingerprints = {node: dict(variants) for node, variants in levels.fingerprints(sweep).items()}
    for node, variant in changed:
        fingerprints[node][variant] = levels.bound.fingerprints[node][variant]
    if changed:
        spec["code"] = keeping_written(levels.bound.code, sweep.spec.get("code"))
    numbers = [len(draft.every) + place for place in range(len(draft.rows))]
    record: StoredExtension = {
        "at": 0.0,  # these four are known when it is written
        "seen": False,
        "cells": 0,
        "first_case": 0,
        "by": context.by,
        "reason": reason,
        "cases": planned.cases,
        "repeats": [before, draft.repeats],
        "combinations": numbers,
    }
    return Extension(
        spec,
        fingerprints,
        levels.queue_for,
        _event(planned, before, context.by, reason),
        context.by,
        rows=draft.rows,
        defaults=levels.defaults,
        repeats=draft.repeats,
        cases=draft.cases.cases,
        clusters=draft.cases.clusters,
        record=record,
    )


def _event(planned: PlannedExtension, before: int, by: str, reason: str | None) -> dict[str, Any]:
    return {
        "cases": planned.cases,
        "combinations": [in_words(choices) for choices in planned.combinations[:100]],
        "repeats": planned.repeats - before,
        "by": by,
        "reason": reason,
    }
