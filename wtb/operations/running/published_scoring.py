"""Having workers score a sweep again: its evaluators are built in, or those that workers publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wtb.authoring.evaluation.library.combining import assertions
from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import Reason
from wtb.core.classes.frozen import frozen
from wtb.core.errors import ConflictError, InputError
from wtb.core.tree.stored_spec import Limits
from wtb.display.views import progress
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.control.pools import check_no_pool
from wtb.operations.payers import check_payer
from wtb.operations.results.scoring import evaluators_of, limits_of_judging
from wtb.operations.running.submitting import check_workers
from wtb.planning.factors.parameter_files import check_no_files
from wtb.planning.publishing import PublishedCode
from wtb.planning.sweep_spec import read_evaluators
from wtb.store.control import rescore
from wtb.store.database import check_shared
from wtb.store.limits.budgets import open_budgets
from wtb.store.read import queries

_ASSERTIONS = assertions.__name__  # whose parts are written with the cases


@frozen
class Scoring:
    """What workers are asked to score again, and how far they are.

    Attributes:
        id: Its id.
        sweep: The id of the sweep.
        status: `pending` until a worker has a free slot, then `running`; in the end `succeeded`, `failed` or
            `cancelled`.
        scores: How many scores were written so far.
        workers: How many workers take from its queue now.
        left: How many executions judges were not asked about, since they have reached what they may cost.
        reason: Why some are left, or why it failed or was cancelled.
    """

    id: str
    sweep: str
    status: str
    scores: int
    workers: int
    left: int = 0
    reason: str | None = None

    @property
    def goes_on(self) -> bool:
        """Whether it has yet to come to its end."""
        return self.status in ("pending", "running")


@checked
@audited
def score_published(
    context: Context,
    ref: str,
    evaluate: Sequence[str | Mapping[str, Any]] = (),
    *,
    limits: Limits | None = None,
    anyway: bool = False,
) -> Scoring:
    """Have workers score every succeeded cell of a sweep again, without running a node.

    Args:
        context: Where; its database has what is published.
        ref: A sweep that workers ran: its id, the beginning of it, or its name.
        evaluate: Evaluators as in a sweep file: built-in ones, those that workers publish by their import paths, or
            mappings of one of them to its options.
        limits: Other limits of the sweep for what judges cost from now on, as in a sweep file: `{"judging": {...}}`.
        anyway: Also where no worker is there to do it; it waits for one then.

    Returns:
        What they are asked, whose end `show_scoring` tells.

    Raises:
        InputError: If there is no such sweep, or an evaluator or a limit cannot be used.
        ConflictError: If the sweep was not run by workers.
        BrokerError: If no worker takes from its queue.
        AccessDenied: If whoever scores acts by a token with a budget, with which the sweep was not submitted.
    """
    database = context.database
    sweep = queries.find_sweep(database, ref)
    check_payer(context, sweep)
    check_no_pool(context.database, sweep, "scored anew")
    check_shared(database)
    check_no_files(evaluate, "evaluate")
    refs = read_evaluators(evaluate)
    evaluators = [evaluator.model_dump() for evaluator in refs]
    evaluators_of(sweep, refs, PublishedCode(database).load)
    if any(_ASSERTIONS in evaluator for evaluator in evaluators) and not any(
        _ASSERTIONS in evaluator for evaluator in sweep.spec["evaluate"]
    ):
        raise InputError(
            f"what cases assert was not checked when sweep {sweep.name} ({sweep.id}) was submitted, without "
            f"{_ASSERTIONS!r} among its evaluators: submit it with that",
            argument="evaluate",
        )
    if not sweep.queued:
        raise ConflictError(
            f"sweep {sweep.name} ({sweep.id}) was not given to workers, so none has its code and its files: score it "
            f"where it was run, with `wtb score {sweep.id}`"
        )
    queue = rescore.queue_of(database, sweep.id)
    check_workers(database, {queue}, anyway, "score", "scored")
    open_budgets(database, sweep, {}, limits_of_judging(limits))
    id = rescore.ask_to_score(database, sweep.id, evaluators, queue=queue, by=context.by)
    context.publisher.publish_pending(database)
    return show_scoring(context, sweep.id, id)


@checked
def show_scoring(context: Context, ref: str, scoring: str) -> Scoring:
    """Say how far workers are with what they were asked to score.

    Args:
        context: Where.
        ref: A sweep: its id, the beginning of it, or its name.
        scoring: The id of what they were asked.

    Returns:
        How it stands.

    Raises:
        InputError: If there is none.
    """
    database = context.database
    row = rescore.find_scoring(database, queries.find_sweep(database, ref).id, scoring)
    workers = progress.takers([row.queue], progress.crew(database))
    return Scoring(row.id, row.sweep_id, row.status, row.scores, workers, row.unjudged, row.reason)


@checked
@audited
def cancel_scoring(context: Context, ref: str, scoring: str, *, reason: Reason | None = None) -> Scoring:
    """End what workers were asked to score, wherever it runs. The scores that were written stay.

    Args:
        context: Where, and who cancels it.
        ref: A sweep: its id, the beginning of it, or its name.
        scoring: The id of what they were asked.
        reason: A reason for people.

    Returns:
        How it stands.

    Raises:
        InputError: If there is none.
        ConflictError: If it has ended.
    """
    database = context.database
    row = rescore.find_scoring(database, queries.find_sweep(database, ref).id, scoring)
    with database.write() as connection:
        ended = rescore.cancel_scorings(connection, row.sweep_id, context.because(reason), row.id)
    current = show_scoring(context, row.sweep_id, row.id)
    if not ended and current.status != "cancelled":
        raise ConflictError(f"scoring {current.id} is {current.status}: there is nothing to cancel")
    return current
