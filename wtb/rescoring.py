"""Scoring finished cells again: from stored states and files, without running a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wtb.calling import Caller
from wtb.claiming import load_cases
from wtb.errors import InputError
from wtb.evaluation import EvaluationTask, Evaluator, Score, evaluate, make_evaluator
from wtb.history import ExecutionHistory
from wtb.loading import load
from wtb.running import workspaces_of
from wtb.spec import EvaluatorRef, load_spec, parse_part
from wtb.store import reading
from wtb.store.database import Database
from wtb.store.rescoring import scored_executions, write_scores
from wtb.usercode import Surroundings


def rescore(database: Database, sweep: Mapping[str, Any], given: Sequence[str], file: Path | None = None) -> int:
    """Score every succeeded cell by evaluators written as in a sweep file. Returns how many scores were written.

    Scores of the same name are replaced, others stay. Raises InputError.
    """
    refs: list[EvaluatorRef] = []
    if given:
        listed = "".join(f"- {text}\n" for text in given)
        refs += parse_part(f"evaluate:\n{listed}", "--evaluate").evaluate
    if file is not None:
        refs += load_spec(file).evaluate
    if not refs:
        raise InputError("nothing to score by: give --evaluate NAME, or --file with the evaluators of a sweep file")
    evaluators = [_make(ref) for ref in refs]
    caller = Caller()
    surroundings = Surroundings(caller, None, workspaces_of(database))
    written = 0
    for chunk in scored_executions(database, sweep["id"]):
        cases = load_cases(database, sweep["id"], {row["case_number"] for row in chunk})
        made = [(row, _score(database, row, cases, evaluators, surroundings)) for row in chunk]
        written += write_scores(database, sweep, made)
    caller.close()
    return written


def _make(ref: EvaluatorRef) -> Evaluator:
    return make_evaluator(ref.name, ref.options, load)


def _score(
    database: Database,
    row: Mapping[str, Any],
    cases: Mapping[int, Any],
    evaluators: list[Evaluator],
    surroundings: Surroundings,
) -> list[Score]:
    case = cases[row["case_number"]]
    history = ExecutionHistory(reading.line(database, row["head_id"]))
    head = history.latest
    assert head is not None, "a finished execution has a head"
    stored = reading.load_values(database, head.state.values())
    task = EvaluationTask(
        case.id,
        case.tags,
        case.input,
        case.expected,
        {name: stored[key] for name, key in head.state.items()},
        history.path,
        head.totals,
        head.workspace,
    )
    return evaluate(task, evaluators, surroundings)
