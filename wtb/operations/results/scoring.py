"""New scores for finished cells: from stored states and files, without running a node."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from wtb.authoring.code.fingerprint import evaluator_code
from wtb.authoring.code.import_paths import load
from wtb.authoring.code.recipe import NamedEvaluator, Recipe
from wtb.authoring.evaluation.declarations import BY_PATH, make_evaluator
from wtb.authoring.evaluation.evaluators import EvaluationTask, Evaluator
from wtb.authoring.evaluation.evaluators import evaluate as evaluate_cell
from wtb.authoring.workflow import Workflow
from wtb.config.run_options import redactor_of
from wtb.core.arguments import AnyPath, checked
from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.core.ids import new_id
from wtb.core.scoring.measure import Score
from wtb.core.scoring.scores import CALLS_AT_ONCE
from wtb.core.stop import Stop, Stopped
from wtb.core.tree.checkpoints import visible_state
from wtb.core.tree.history import ExecutionHistory
from wtb.core.tree.stored_spec import Limits
from wtb.execution.engine.executor import Surroundings
from wtb.execution.engine.redacting import redacted_score
from wtb.execution.execution import Case
from wtb.execution.load import load_cases
from wtb.execution.runtime.budgets import Budgets
from wtb.execution.sandbox.framing import NO_CODE
from wtb.execution.sandbox.pool import InProcesses, UserCode
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.payers import check_payer
from wtb.operations.results.pools import check_no_pool
from wtb.planning.parameter_files import check_no_files
from wtb.planning.prepare import stored_spec
from wtb.planning.sweep_spec import EvaluatorRef, load_evaluators, read_evaluators, read_limits
from wtb.store.access.budgets import open_budgets
from wtb.store.access.reservations import settle
from wtb.store.control.rescore import Also, record_evaluators, scored_executions, write_scores
from wtb.store.database import Database
from wtb.store.files.safe_directories import remove_tree
from wtb.store.files.workspaces import Workspaces
from wtb.store.process_identity import identity
from wtb.store.read import queries
from wtb.store.runs import leases
from wtb.store.runs.slots import end_runner
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.sweeps import SweepRow


@frozen
class Scored:
    """The result of `score`.

    Attributes:
        sweep: The id of the sweep.
        scores: How many scores were written.
        left: How many executions judges were not asked about, since they have reached what they may cost.
        reason: Why, in words.
    """

    sweep: str
    scores: int
    left: int = 0
    reason: str | None = None


_Scorer = Callable[[ExecutionRow, EvaluationTask], list[Score] | None]  # None where judges may cost no more


class _Direct:
    """Call functions directly, without a deadline: a judge keeps its own."""

    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)


@checked
@audited
def score(
    context: Context,
    ref: str,
    evaluate: Sequence[str | Mapping[str, Any]] = (),
    *,
    file: AnyPath | None = None,
    at_once: int = CALLS_AT_ONCE,
    limits: Limits | None = None,
) -> Scored:
    """Score every succeeded cell again, without running a node. Scores of the same name are replaced, others stay.

    Args:
        context: Where.
        ref: A sweep: its id, the beginning of it, or its name.
        evaluate: Evaluators as in a sweep file: names, import paths, or mappings of one of them to its options.
        file: A sweep file to take evaluators from.
        at_once: How many cells judges are asked about at a time.
        limits: Other limits of the sweep for what judges cost from now on, as in a sweep file: `{"judging": {...}}`.

    Returns:
        How many scores were written.

    Raises:
        InputError: If there is no such sweep, or an evaluator or a limit cannot be used.
        AccessDenied: If whoever scores acts by a token with a budget, with which the sweep was not submitted.
    """
    file = None if file is None else Path(file)
    database = context.database
    sweep = queries.find_sweep(database, ref)
    check_payer(context, sweep)
    check_no_pool(context.database, sweep, "scored anew")
    check_no_files(evaluate, "evaluate")
    refs = [*read_evaluators(evaluate), *(load_evaluators(file) if file is not None else ())]
    # Evaluators are made before anything is written, so that a wrong one leaves the sweep as it was.
    evaluators = evaluators_of(sweep, refs, load)
    if at_once < 1:
        raise InputError(f"at_once is {at_once}; expected at least 1")
    open_budgets(database, sweep, {}, limits_of_judging(limits))
    runner = identity()
    leases.register(database, runner)  # so that what is left of it can be told from what is in use
    try:
        return score_by(database, context.workspaces, sweep, evaluators, at_once=at_once, runner_id=runner.id)
    finally:
        end_runner(database, runner.id)


Named = tuple[NamedEvaluator, Evaluator]


def evaluators_of(sweep: SweepRow, refs: Sequence[EvaluatorRef], resolve: Callable[[str], Any]) -> list[Named]:
    """Make the evaluators that a sweep is to be scored by.

    Args:
        sweep: The sweep.
        refs: What was asked for.
        resolve: Returns what stands at an import path.

    Raises:
        InputError: If there is nothing to score by, or something of it cannot be used.
    """
    if not refs:
        raise InputError("no evaluator is given; name one, or a sweep file with evaluators")
    evaluators = [
        (NamedEvaluator(ref.name, ref.options, ""), make_evaluator(ref.name, ref.options, resolve)) for ref in refs
    ]
    # Options may fit by themselves and still not this sweep, with its failures and repeats.
    for _, evaluator in evaluators:
        evaluator.check_failure_scores(sweep.spec.get("on_failure"))
        if (problem := evaluator.problem_of_repeats(int(sweep.spec["repeats"]))) is not None:
            raise InputError(problem)
    return evaluators


def score_by(
    database: Database,
    workspaces: Workspaces,
    sweep: SweepRow,
    evaluators: Sequence[Named],
    *,
    at_once: int | None,
    runner_id: str,
    stop: Stop | None = None,
    also: Also | None = None,
) -> Scored:
    """Score a sweep, with everything checked before. `score` does so.

    Args:
        database: Where.
        workspaces: Where files are kept.
        sweep: The sweep.
        evaluators: From `evaluators_of`.
        at_once: How many cells judges are asked about at a time, by threads of this process; None to have one node
            process do all, judges included, as a slot of a worker does.
        runner_id: The runner that does it, which the database knows.
        stop: No further cell is scored once it is requested.
        also: Is called within each transaction that writes scores, first and with how many; what it raises ends all.

    Raises:
        Stopped: Once the stop is requested.
    """
    # A judge is no user code, and waits: threads of this process ask many at a time, where processes would be few.
    asking = [(by, evaluator) for by, evaluator in evaluators if by.name in BY_PATH or evaluator.may_ask_judges]
    judges = [] if at_once is None else asking
    own_code = [named for named in evaluators if named not in judges]
    # A worker may run nodes of it in the same directory, too.
    own = workspaces.of_project(sweep.project).of_runner(runner_id, sweep.id, runner_id, new_id())
    run, processors = stored_spec(sweep).run, 1 if at_once is None else os.cpu_count() or 1
    recipe = Recipe(None, (), [by for by, _ in own_code])
    code = InProcesses(
        UserCode(None, [evaluator for _, evaluator in own_code], recipe, NO_CODE), run, own, runner_id, processors
    )
    surroundings = Surroundings(_Direct(), None, own)
    judging = _Judging(database, sweep, runner_id)
    in_processes = judging.by(code.score) if asking and not judges else _unlimited(code.score)
    scorers = {in_processes: ThreadPoolExecutor(processors)}
    if judges:
        ask = judging.by(lambda task: _all_scores(task, [evaluator for _, evaluator in judges], surroundings))
        scorers[ask] = ThreadPoolExecutor(at_once)
    redactor = redactor_of(sweep.spec.get("redact"))
    written = unscored = 0
    try:
        for chunk in _scored(scorers, _tasks(database, sweep.id), stop or Stop()):
            rows_with_scores = [(row, [scores for scores in results if scores is not None]) for row, results in chunk]
            unscored += sum(None in results for _, results in chunk)
            # Rows without any score are left out: nothing is to be replaced there.
            scored = [
                (row, [redacted_score(score, redactor) for score in chain(*results)])
                for row, results in rows_with_scores
                if any(results)
            ]
            written += write_scores(database, sweep, scored, also)
    finally:
        for threads in scorers.values():
            threads.shutdown(cancel_futures=True)
        code.close()
        remove_tree(own.root)
        with suppress(OSError):  # its worker runs nodes of the sweep
            own.root.parent.rmdir()
    # Partial scores are not recorded as the sweep's evaluators: other cells still have those of before.
    if not unscored:
        written_as = [{by.name: dict(by.options)} for by, _ in evaluators]
        record_evaluators(database, sweep.id, written_as, evaluator_code(evaluators))
    return Scored(sweep.id, written, unscored, judging.stop.reason if unscored else None)


def _unlimited(score: Callable[[EvaluationTask], list[Score]]) -> _Scorer:
    return lambda row, task: score(task)


class _Judging:
    """The limits on the costs of a sweep's judges."""

    def __init__(self, database: Database, sweep: SweepRow, runner_id: str) -> None:
        self.stop = Stop()
        self._database = database
        self._budgets = Budgets(database, sweep, runner_id, Workflow("scored").facts(), self.stop)

    def by(self, ask: Callable[[EvaluationTask], list[Score]]) -> _Scorer:
        """Return a scorer that asks judges about an execution. It returns None once a limit is reached."""

        def score(row: ExecutionRow, task: EvaluationTask) -> list[Score] | None:
            try:
                with self._budgets.judging(row.id) as costs_of:
                    scores = ask(task)
                    # Costs are settled at once, so that the next question already counts them.
                    if rows := costs_of(scores):
                        with self._database.write() as connection:
                            settle(connection, rows)
            except Stopped:
                return None
            return scores

        return score


def limits_of_judging(limits: Limits | None) -> Limits:
    """Check limits, which may be of judges only. Raises InputError."""
    read = read_limits(limits or {})
    if other := sorted(set(read) - {"judging"}):
        raise InputError(
            f"{other[0]!r} limits what a sweep runs; expected a limit of judges, such as judging.usd", argument="limits"
        )
    return read


def _tasks(database: Database, sweep_id: str) -> Iterator[list[tuple[ExecutionRow, EvaluationTask]]]:
    for chunk in scored_executions(database, sweep_id):
        cases = load_cases(database, sweep_id, {row.case_number for row in chunk})
        yield [(row, _task(database, row, cases[row.case_number])) for row in chunk]


def _all_scores(task: EvaluationTask, evaluators: Sequence[Evaluator], surroundings: Surroundings) -> list[Score]:
    scores: list[Score] = []
    scores += evaluate_cell(task, evaluators, surroundings, scores.extend)
    return scores


_ScoredRows = list[tuple[ExecutionRow, list[list[Score] | None]]]


def _scored(
    scorers: Mapping[_Scorer, ThreadPoolExecutor],
    chunks: Iterable[list[tuple[ExecutionRow, EvaluationTask]]],
    stop: Stop,
) -> Iterator[_ScoredRows]:
    """Yield the scores of each chunk by all scorers.

    A chunk is yielded after the next one is submitted, so that no scorer idles until the slowest ends.
    """

    def unless_stopped(scorer: _Scorer, row: ExecutionRow, task: EvaluationTask) -> list[Score] | None:
        stop.check()
        return scorer(row, task)

    before: list[tuple[ExecutionRow, list[Future[list[Score] | None]]]] = []
    for chunk in chunks:
        submitted = [
            (row, [threads.submit(unless_stopped, scorer, row, task) for scorer, threads in scorers.items()])
            for row, task in chunk
        ]
        if before:
            yield _results(before)
        before = submitted
    if before:
        yield _results(before)


def _results(submitted: Iterable[tuple[ExecutionRow, list[Future[list[Score] | None]]]]) -> _ScoredRows:
    return [(row, [future.result() for future in futures]) for row, futures in submitted]


def _task(database: Database, row: ExecutionRow, case: Case) -> EvaluationTask:
    assert row.head_id is not None, "a finished execution has a head"
    history = ExecutionHistory(queries.line(database, row.head_id))
    head = history.latest
    assert head is not None, "a head is on its line"
    state = visible_state(head.state)
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
