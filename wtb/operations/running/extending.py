"""Extensions of a sweep that has run: more cases, repeats and variants, without repeating existing cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from wtb.core.arguments import Count, Reason, Title, checked
from wtb.core.errors import ConflictError, InputError
from wtb.core.frozen import frozen
from wtb.core.tree.combinations import in_words
from wtb.core.tree.stored_code import keeping_written
from wtb.core.tree.stored_spec import StoredExtension, stored_evaluators
from wtb.core.values import Json
from wtb.display.text.added_cases import AddedExtension, PlannedExtension
from wtb.execution.runtime.code_drift import accept_tools
from wtb.execution.runtime.sweep_run import Ended, reclaim_sweep
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.payers import check_payer
from wtb.operations.running import continuing, local
from wtb.operations.running.additions import Code, changed_code, code_error, with_texts
from wtb.operations.running.copying import renamed_copy
from wtb.operations.running.extension_draft import (
    Asked,
    Draft,
    check_extensible,
    draft_extension,
    stopped_to_restart,
)
from wtb.operations.running.local import ShowProgress
from wtb.operations.running.preparing import accept_evaluators, bind_stored, check_runs_elsewhere
from wtb.planning.parameter_files import sent_texts
from wtb.planning.prepare import stored_spec
from wtb.store.control.extension import Extension, insert_extension
from wtb.store.control.row_cells import Begun
from wtb.store.control.stopped import restart_combinations
from wtb.store.read import queries
from wtb.store.runs import leases
from wtb.store.tables.sweeps import SweepRow


@frozen
class Extended(AddedExtension):
    """The result of `extend`.

    Attributes:
        ended: How the run ended, if they ran here.
    """

    ended: Ended | None = None


@checked
def plan_extension(
    context: Context,
    ref: str,
    *,
    cases: Sequence[Any] | Mapping[str, Json] | None = None,
    columns: Mapping[str, Any] | None = None,
    repeats: Count | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    typed: Mapping[str, Sequence[str]] | None = None,
    texts: Mapping[str, str] | None = None,
    new_name: Title | None = None,
    code: Code | None = None,
) -> PlannedExtension:
    """Show what `extend` would add: cells, node runs and their price. Nothing is changed.

    Args:
        context: Where.
        ref: The sweep: its id, the beginning of it, or its name.
        cases: Cases to add, as in a file of cases, or `{upload: SHA-256, name: FILE}` of a file that a server was sent.
            Those that are there with the same content are counted.
        columns: Which heading of a table is which key; by default as the sweep has it.
        repeats: Number of repeats after extending.
        vary: Node -> further variants, as in a sweep file; `node.parameter` -> further levels of a factor, any JSON:
            `1`, `1.0`, `"1"` and `true` differ.
        typed: The same as text that was typed, as on a command line: a level is read as what its parameter takes.
        texts: Texts of the files that levels name as `file://PATH#SHA256`, by SHA-256.
        new_name: The name of a copy, which would be extended instead of the sweep.
        code: Binds a sweep to its code; by default what its import path names.

    Returns:
        What it would add.

    Raises:
        InputError: If there is no such sweep, or something does not fit.
        ConflictError: If the sweep cannot be extended.
    """
    code = with_texts(code or partial(bind_stored, context), _sent_texts(vary, typed, texts))
    sweep = queries.find_sweep(context.database, ref)
    check_extensible(context, sweep, new_name)
    return draft_extension(context, sweep, Asked(cases, columns, repeats, vary, typed), code).planned


def _sent_texts(
    vary: Mapping[str, Sequence[Any]] | None, typed: Mapping[str, Sequence[str]] | None, texts: Mapping[str, str] | None
) -> dict[str, str]:
    """Return the texts to which levels refer."""
    return sent_texts(vary, texts, "vary") | sent_texts(typed, texts, "typed")


@checked
@audited
def extend(
    context: Context,
    ref: str,
    *,
    cases: Sequence[Any] | Mapping[str, Json] | None = None,
    columns: Mapping[str, Any] | None = None,
    repeats: Count | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    typed: Mapping[str, Sequence[str]] | None = None,
    texts: Mapping[str, str] | None = None,
    combination: Mapping[str, str] | None = None,
    new_name: Title | None = None,
    allow_code_change: bool = False,
    reason: Reason | None = None,
    run: bool = True,
    code: Code | None = None,
    progress: ShowProgress | None = None,
) -> Extended:
    """Add cases, repeats or variants to a sweep, and run only what is new.

    Cells that are there stay as they are. A new combination goes on from the checkpoint at which it differs from one
    that is there; new cases and repeats begin with their case. What is added counts as planned: it is ranked, and what
    the sweep had shown before counts as an earlier look at the same cases. With a new name the sweep stays as it is,
    and a copy of it is extended, with its history, scores and labels.

    Args:
        context: Where, and who extends it.
        ref: The sweep: its id, the beginning of it, or its name.
        cases: Cases to add, as in a file of cases, or `{upload: SHA-256, name: FILE}` of a file that a server was sent.
            Those that are there with the same content are counted.
        columns: Which heading of a table is which key; by default as the sweep has it.
        repeats: Number of repeats after extending.
        vary: Node -> further variants, as in a sweep file; `node.parameter` -> further levels of a factor, any JSON:
            `1`, `1.0`, `"1"` and `true` differ.
        typed: The same as text that was typed, as on a command line: a level is read as what its parameter takes.
        texts: Texts of the files that levels name as `file://PATH#SHA256`, by SHA-256.
        combination: Node -> variant: stopped combinations that choose all of these run again.
        new_name: The name of a copy, which is extended instead of the sweep. A sweep that is a baseline needs one.
        allow_code_change: Go on although code, or a tool of a server, has changed.
        reason: A reason for people.
        run: Run it here until it ends, unless workers do; else it is left to whoever resumes the sweep.
        code: Binds a sweep to its code; by default what its import path names.
        progress: Called several times a second with how far a run here is.

    Returns:
        What was added, and how it ended if it ran here.

    Raises:
        InputError: If there is no such sweep, something does not fit, or a case is there with another content.
        ConflictError: If the sweep is a pool, or a baseline and no new name is given, it is cancelled, another process
            runs it, or its code, an evaluator or a tool of a server has changed.
    """
    code = with_texts(code or partial(bind_stored, context), _sent_texts(vary, typed, texts))
    database = context.database
    sweep = queries.find_sweep(database, ref)
    # Everything below is checked before anything is written.
    check_payer(context, sweep)
    check_extensible(context, sweep, new_name)
    if run:
        check_runs_elsewhere(context, sweep)
    numbers = [] if combination is None else stopped_to_restart(context, sweep, combination)
    request = Asked(cases, columns, repeats, vary, typed, restarts=combination is not None)
    draft = draft_extension(context, sweep, request, code)
    changed = _check_code(context, draft, allow=allow_code_change)
    evaluators = accept_evaluators(context, draft.sweep, draft.levels.bound, allow=allow_code_change, extends=True)
    if new_name is not None and draft.is_empty:
        raise InputError(
            f"nothing to add to a copy of sweep {sweep.name} ({sweep.id}); copy it unchanged with `wtb admin copy`",
            argument="new_name",
        )
    if sweep.queued:
        context.publisher.check()
    else:
        reclaim_sweep(database, sweep.id)
    # In a copy, the stopped combinations of the copy are restarted, not those of the original.
    inserted, restarted = Begun(), 0
    new = None if draft.is_empty else _extension(context, draft, reason, changed)
    if new is not None and evaluators is not None:
        new.spec["evaluators"] = stored_evaluators(evaluators)
    if new is not None and new_name is not None:
        sweep, inserted, restarted = _extend_copy(context, draft, new, new_name, numbers)
    else:
        restarted = restart_combinations(database, sweep, numbers, context.by) if numbers else 0
        inserted = inserted if new is None else insert_extension(database, draft.sweep, new)
    problem = context.publisher.publish_pending(database) if sweep.queued else None
    ended = None
    if run and not sweep.queued and leases.unfinished(database, sweep.id):  # also what was added before and was lost
        bound = code(stored_spec(queries.find_sweep(database, sweep.id)))
        how = local.Code(bound, partial(local.follow, progress=progress))
        ended = continuing.resume(context, sweep.id, code=how, allow_code_change=allow_code_change).ended
    planned = replace(draft.planned, sweep=sweep.id, name=sweep.name)
    return Extended(
        **vars(planned),
        executions=len(inserted.pending),
        failed=inserted.failed,
        restarted=restarted,
        queued=sweep.queued,
        status=str(queries.find_sweep(database, sweep.id).status),
        problem=problem,
        ended=ended,
    )


def _extend_copy(
    context: Context, draft: Draft, new: Extension, name: str, numbers: Sequence[int]
) -> tuple[SweepRow, Begun, int]:
    """Copy a sweep under a name and extend the copy. Neither is visible without the other."""
    database = context.database
    with renamed_copy(context, draft.sweep, name) as copy:
        spec = new.spec.copy()
        spec["sweep"], spec["copied_from"] = name, draft.sweep.id
        # The extension publishes the copy in its own transaction, so a failure leaves neither.
        inserted = insert_extension(database, copy.sweep, replace(new, spec=spec, publish=copy.publish))
    restarted = restart_combinations(database, copy.sweep, numbers, context.by) if numbers else 0
    return copy.sweep, inserted, restarted


def _check_code(context: Context, draft: Draft, *, allow: bool) -> list[tuple[str, str]]:
    """Return the variants whose code has changed. Raises ConflictError if `allow` is false."""
    database, sweep, bound = context.database, draft.sweep, draft.levels.bound
    # New cases and repeats run every node; new variants only run the nodes after them.
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


def _extension(context: Context, draft: Draft, reason: Reason | None, changed: Sequence[tuple[str, str]]) -> Extension:
    sweep, levels, planned = queries.find_sweep(context.database, draft.sweep.id), draft.levels, draft.planned
    before = sweep.spec["repeats"]
    spec = levels.spec(sweep)
    spec["repeats"] = draft.repeats
    fingerprints = {node: dict(variants) for node, variants in levels.fingerprints(sweep).items()}
    for node, variant in changed:
        fingerprints[node][variant] = levels.bound.fingerprints[node][variant]
    if changed:
        # Recorded facts about written files stay valid for cells that exist.
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
        queues=levels.queues,
    )


def _event(planned: PlannedExtension, before: int, by: str, reason: str | None) -> dict[str, Json]:
    return {
        "cases": planned.cases,
        "combinations": [in_words(choices) for choices in planned.combinations[:100]],
        "repeats": planned.repeats - before,
        "by": by,
        "reason": reason,
    }
