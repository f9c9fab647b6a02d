"""Scoring finished cells again: from stored states and files, without running a node."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from wtb.authoring.code.recipe import NamedEvaluator, Recipe, named
from wtb.authoring.evaluation.evaluators import EvaluationTask
from wtb.core.errors import InputError
from wtb.core.tree.checkpoints import ExecutionHistory, shown
from wtb.execution.execution import Case
from wtb.execution.load import load_cases
from wtb.execution.sandbox.pool import InProcesses
from wtb.planning.prepare import stored_spec
from wtb.planning.sweep_spec import EvaluatorRef, load_spec, parse_part
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.files.safe_directories import remove_tree
from wtb.store.files.workspaces import Workspaces
from wtb.store.process_identity import identity
from wtb.store.read import queries
from wtb.store.runs import leases
from wtb.store.runs.rescore import scored_executions, write_scores
from wtb.store.runs.slots import end_runner


def rescore(database: Database, sweep: Mapping[str, Any], given: Sequence[str], file: Path | None = None) -> int:
    """Score every succeeded cell again. Scores of the same name are replaced, others stay.

    Args:
        database: The database that the sweep is in.
        sweep: Its row.
        given: Evaluators as in a sweep file; those of the sweep if empty.
        file: A sweep file to take the evaluators from.

    Returns:
        How many scores were written.

    Raises:
        InputError: If an evaluator cannot be used.
    """
    refs: list[EvaluatorRef] = []
    if given:
        listed = "".join(f"- {text}\n" for text in given)
        refs += parse_part(f"evaluate:\n{listed}", "--evaluate").evaluate
    if file is not None:
        refs += load_spec(file).evaluate
    if not refs:
        raise InputError("nothing to score by: give --evaluate NAME, or --file with the evaluators of a sweep file")
    evaluators = [NamedEvaluator(ref.name, ref.options, "") for ref in refs]
    new = [named(one) for one in evaluators]
    for one in new:
        one.check_failure_scores(sweep["spec"].get("on_failure"))
    runner = identity()
    leases.register(database, runner)  # so that what is left of it can be told from what is in use
    workspaces = workspaces_of(database)
    root = workspaces.root / sweep["session"] / sweep["id"] / runner["id"]
    own = Workspaces(workspaces.files.owned(f"{runner['id']}."), root)
    run, processors = stored_spec(sweep).run, os.cpu_count() or 1
    code = InProcesses(None, new, Recipe(None, (), evaluators), {}, run, own, runner["id"], processors)
    written = 0
    try:
        with ThreadPoolExecutor(processors) as threads:
            for chunk in scored_executions(database, sweep["id"]):
                cases = load_cases(database, sweep["id"], {row["case_number"] for row in chunk})
                tasks = [_task(database, row, cases[row["case_number"]]) for row in chunk]
                written += write_scores(database, sweep, zip(chunk, threads.map(code.score, tasks), strict=True))
    finally:
        code.close()
        remove_tree(own.root)
        end_runner(database, runner["id"])
    return written


def _task(database: Database, row: Mapping[str, Any], case: Case) -> EvaluationTask:
    history = ExecutionHistory(queries.line(database, row["head_id"]))
    head = history.latest
    assert head is not None, "a finished execution has a head"
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
