"""Scoring finished cells again: from stored states and files, without running a node."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wtb.authoring.code.recipe import NamedEvaluator, Recipe, named
from wtb.authoring.evaluation.evaluators import EvaluationTask
from wtb.core.arguments.checking import checked
from wtb.core.errors import InputError
from wtb.core.tree.checkpoints import ExecutionHistory, shown
from wtb.execution.execution import Case
from wtb.execution.load import load_cases
from wtb.execution.sandbox.heads import NO_CODE
from wtb.execution.sandbox.pool import InProcesses, UserCode
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.planning.prepare import stored_spec
from wtb.planning.sweep_spec import load_spec, read_evaluators
from wtb.store.control.rescore import scored_executions, write_scores
from wtb.store.database import Database
from wtb.store.files.safe_directories import remove_tree
from wtb.store.files.workspaces import Workspaces
from wtb.store.process_identity import identity
from wtb.store.read import queries
from wtb.store.rows.executions import ExecutionRow
from wtb.store.runs import leases
from wtb.store.runs.slots import end_runner


@dataclass(frozen=True)
class Scored:
    """What `score` did.

    Attributes:
        sweep: The id of the sweep.
        scores: How many scores were written.
    """

    sweep: str
    scores: int


@checked
@audited
def score(
    context: Context, ref: str, *, evaluate: Sequence[str | Mapping[str, Any]] = (), file: Path | None = None
) -> Scored:
    """Score every succeeded cell again, without running a node. Scores of the same name are replaced, others stay.

    Args:
        context: Where.
        ref: A sweep: its id, the beginning of it, or its name.
        evaluate: Evaluators as in a sweep file: names, import paths, or mappings of one of them to its options.
        file: A sweep file to take evaluators from.

    Returns:
        How many scores were written.

    Raises:
        InputError: If there is no such sweep, or an evaluator cannot be used.
    """
    database = context.database
    sweep = queries.find_sweep(database, ref)
    refs = [*read_evaluators(evaluate), *(load_spec(file).evaluate if file is not None else ())]
    if not refs:
        raise InputError("nothing to score by: name an evaluator, or a sweep file that has some")
    evaluators = [NamedEvaluator(ref.name, ref.options, "") for ref in refs]
    new = [named(one) for one in evaluators]
    for one in new:
        one.check_failure_scores(sweep.spec.get("on_failure"))
    runner = identity()
    leases.register(database, runner)  # so that what is left of it can be told from what is in use
    workspaces = context.workspaces
    root = workspaces.root / sweep.session / sweep.id / runner.id
    own = Workspaces(workspaces.files.owned(f"{runner.id}."), root)
    run, processors = stored_spec(sweep).run, os.cpu_count() or 1
    code = InProcesses(UserCode(None, new, Recipe(None, (), evaluators), NO_CODE), run, own, runner.id, processors)
    written = 0
    try:
        with ThreadPoolExecutor(processors) as threads:
            for chunk in scored_executions(database, sweep.id):
                cases = load_cases(database, sweep.id, {row.case_number for row in chunk})
                tasks = [_task(database, row, cases[row.case_number]) for row in chunk]
                written += write_scores(database, sweep, zip(chunk, threads.map(code.score, tasks), strict=True))
    finally:
        code.close()
        remove_tree(own.root)
        end_runner(database, runner.id)
    return Scored(sweep.id, written)


def _task(database: Database, row: ExecutionRow, case: Case) -> EvaluationTask:
    assert row.head_id is not None, "a finished execution has a head"
    history = ExecutionHistory(queries.line(database, row.head_id))
    head = history.latest
    assert head is not None, "a head is on its line"
    state = shown(head.state)
    stored = queries.load_values(database, state.values())
    return EvaluationTask(
        case.id,
        case.tags,
        case.input,
        case.expected,
        {name: stored[key] for name, key in state.items()},
        history.path,
        head.totals,
        head.workspace,
    )
