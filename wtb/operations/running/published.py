"""Planning and submitting what is sent from elsewhere, with the code as workers publish it.

Nothing of it is imported or read here: neither code nor files, programs or environment of this machine are of those who
send it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from wtb.authoring.evaluation.combining import assertions
from wtb.config.credentials import split_url
from wtb.config.yaml_reader import Located, read
from wtb.core.arguments import Count, Number, Reason, checked
from wtb.core.documents.plan import PlanDocument
from wtb.core.errors import ConflictError, InputError
from wtb.core.frozen import frozen
from wtb.core.questions import Approval
from wtb.core.tree.stored_spec import Limits
from wtb.core.values import SweepKeys
from wtb.display.views import progress
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.payers import check_payer
from wtb.operations.results.pools import check_no_pool
from wtb.operations.results.scoring import evaluators_of, limits_of_judging
from wtb.operations.running.planning import plan
from wtb.operations.running.preparing import prepare_single, with_options
from wtb.operations.running.previews import with_uploaded_cases
from wtb.operations.running.submitting import Submitted, check_workers, submit
from wtb.planning.case_columns import CaseTable, names_files
from wtb.planning.cases import case_row, read_cases
from wtb.planning.parameter_files import check_no_files, read_parameter_files, sent_texts
from wtb.planning.picking import Only
from wtb.planning.prepare import MAX_CELLS, Prepared, prepare
from wtb.planning.publishing import PublishedCode
from wtb.planning.sweep_spec import SweepSpec, parse_spec, read_evaluators, spec_of
from wtb.store.access.budgets import open_budgets
from wtb.store.control import rescore
from wtb.store.database import check_shared
from wtb.store.read import queries

_WEB = ("http", "https")


def sweep_to_send(file: Path) -> dict[str, Any]:
    """Read a sweep file, with its cases, as it is sent to where it is planned or submitted.

    Args:
        file: The sweep file.

    Returns:
        Its keys, with the texts of files that its parameters name, and its cases as a list, or as a table: only where
        they are planned are the keys of the state known.

    Raises:
        InputError: If something is wrong with it, or with a file that it names.
    """
    document = read(file)
    # The texts of parameter files are sent along: the other machine does not have the files.
    document = replace(document, data=read_parameter_files(document.data, file.parent, Located(document)))
    return keys_to_send(spec_of(document), document.data)


def keys_to_send(spec: SweepSpec, document: SweepKeys) -> dict[str, Any]:
    """Return the keys of a sweep as they are sent, with its cases.

    Args:
        spec: The sweep.
        document: Its keys.

    Raises:
        InputError: If something is wrong with its file of cases.
    """
    keys = {"sweep": spec.sweep, **document}
    if isinstance(spec.cases, str):
        source = read_cases(spec.cases, spec.folder, spec.located, columns=spec.columns)
        source.check()
        keys["cases"] = source.table() or [case_row(case) for case in source]
    return keys


@checked
def plan_published(
    context: Context,
    keys: SweepKeys,
    *,
    part: Only | None = None,
    max_cells: Count | None = None,
    session: str | None = None,
) -> PlanDocument:
    """Tell what a sweep would run, by what workers publish of its workflow.

    Args:
        context: Where; its database has what is published.
        keys: The sweep, by the keys of a sweep file: its workflow is one that workers publish, its cases are a
            list, or `{upload: SHA-256, name: FILE}` of a file that a server was sent.
        part: The part of it; None for all.
        max_cells: How many cells it may have, in place of the cap.
        session: In place of its own.

    Returns:
        Combinations, cases, cells, and node runs as [low, high] by node; how many cases each margin takes.

    Raises:
        InputError: With everything that is wrong, or that cannot be sent.
        ConflictError: If its session takes no new sweeps.
    """
    return plan(context, _prepared(context, keys, part, max_cells, session)).document


@checked
@audited
def submit_published(
    context: Context,
    keys: SweepKeys,
    *,
    part: Only | None = None,
    max_cells: Count | None = None,
    session: str | None = None,
    priority: Annotated[int, Number(-1_000, 1_000, whole=True)] | None = None,
    anyway: bool = False,
    breakpoints: Sequence[str] = (),
    until: str | None = None,
) -> Submitted:
    """Give a sweep of a workflow that workers publish to them, whole or not at all.

    Args:
        context: Where; its database has what is published.
        keys: The sweep, by the keys of a sweep file: its workflow is one that workers publish, its cases are a
            list, or `{upload: SHA-256, name: FILE}` of a file that a server was sent.
        part: The part of it; None for all.
        max_cells: How many cells it may have, in place of the cap.
        session: In place of its own.
        priority: Higher priorities run first; None for its own.
        anyway: Also where no worker is there to run it, or no broker is named.
        breakpoints: Where it pauses: `[before|after] NODE [if CONDITION]`.
        until: A node to pause after.

    Returns:
        Its id, and whether it starts at once.

    Raises:
        InputError: With everything that is wrong, or that cannot be sent.
        BrokerError: If no worker takes from one of its queues, or no broker is named; nothing was submitted.
        ConflictError: If its session takes no new sweeps.
    """
    prepared = _prepared(context, keys, part, max_cells, session)
    return submit(context, prepared, priority=priority, anyway=anyway, breakpoints=breakpoints, until=until)


@checked
@audited
def start_published(
    context: Context,
    workflow: str,
    input: Any,
    *,
    variants: Mapping[str, str] | None = None,
    from_node: str | None = None,
    breakpoints: Sequence[str] = (),
    until: str | None = None,
    mode: str | None = None,
    approval: Approval | None = None,
    project: str | None = None,
    session: str | None = None,
    limits: Limits | None = None,
    written: Mapping[str, str] | None = None,
    texts: Mapping[str, str] | None = None,
    create_only: bool = False,
) -> Submitted:
    """Submit one input for a published workflow.

    Args:
        context: Where; its database has what is published.
        workflow: Its registered name.
        input: Values by key of the state, or the state itself if that is a single value.
        variants: Variant by node, if it is not the default.
        from_node: The node to start at, with the input as the state.
        breakpoints: Where it pauses: `[before|after] NODE [if CONDITION]`.
        until: A node to pause after.
        mode: `interactive` (people answer in place of models; the default) or `autonomous`.
        approval: When people are asked to let it go on.
        project: Its project.
        session: Its session, in place of the one of the context.
        limits: As in a sweep file.
        written: Values of the input that were typed as text; they are read as the types of their keys.
        texts: Texts of the files that levels name as `file://PATH#SHA256`, by SHA-256.
        create_only: Begin only when somebody resumes it.

    Returns:
        Its id, and whether it starts at once.

    Raises:
        InputError: With everything that is wrong.
        BrokerError: If no broker is named; nothing was submitted.
    """
    read = sent_texts(variants, texts, "variants")
    prepared = prepare_single(
        workflow,
        input,
        variants=variants,
        from_node=from_node,
        written=written,
        code=context.published_code,
        run={name: option for name, option in (("mode", mode), ("approval", approval)) if option is not None},
        project=project,
        session=session or context.session,
        limits=dict(limits or {}),
        texts=read,
    )
    # Without workers it waits: a single input is cheap to store, and a worker may start at any time.
    return submit(context, prepared, anyway=True, breakpoints=breakpoints, until=until, create_only=create_only)


def _prepared(
    context: Context, keys: SweepKeys, part: Only | None, max_cells: int | None, session: str | None
) -> Prepared:
    """Check a sweep that was sent. Raises InputError."""
    spec = with_options(parse_spec(with_uploaded_cases(context.database, keys)), session=session or context.session)
    if problems := list(_of_this_machine(spec)):
        raise InputError(*problems, argument="keys")
    limit = MAX_CELLS if max_cells is None else max_cells
    return prepare(spec, only=part, max_cells=limit, code=context.published_code)


def _of_this_machine(spec: SweepSpec) -> Iterator[str]:
    """Yield problems with keys that name something of the machine that the sweep was sent to."""

    def problem(*place: str | int, text: str) -> str:
        return spec.located.problem(place, text)

    files = "a case names files, and nothing is read here; put what they hold into its input"
    if isinstance(spec.cases, str):
        yield problem(
            "cases", text=f"{spec.cases!r} names a file or code, which the server does not read; send the cases"
        )
    elif isinstance(spec.cases, CaseTable):
        if names_files(spec.cases, spec.columns):
            yield problem("cases", text=files)
    elif any(isinstance(case, Mapping) and case.get("files") for case in spec.cases):
        yield problem("cases", text=files)
    if spec.files_from:
        yield problem("files_from", text="it names folders, and nothing is read here")
    if spec.run.env is not None:
        yield problem("run", "env", text="the variables of nodes are set on the machines of workers")
    if spec.run.pool == "thread":
        yield problem("run", "pool", text="thread would give nodes access to their worker's secrets; expected process")
    for server in spec.mcp:
        yield problem("mcp", server, text="the workflow names servers of tools, on the machines of workers")
    yield from _targets_of_this_machine(spec)


def _targets_of_this_machine(spec: SweepSpec) -> Iterator[str]:
    for number, target in enumerate(spec.notify):
        parts = split_url(target.to)
        if parts is None or parts.scheme not in _WEB:
            text = "it is a command, and none is run here; expected a URL"
        elif target.allow_private:
            text = "it allows private addresses; from elsewhere only public ones are"
        else:
            continue
        yield spec.located.problem(("notify", number), text)


_ASSERTIONS = assertions.__name__  # whose parts are written with the cases


@frozen
class Scoring:
    """A request to workers to score a sweep again, and how far they are.

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
    def is_open(self) -> bool:
        """True if it has yet to come to its end."""
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
        The scoring that they were sent; `show_scoring` returns its end.

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
    # Made and thrown away: a wrong option is refused here, and not later by a worker.
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
            f"sweep {sweep.name} ({sweep.id}) was not submitted to workers, so none has its code and files; score it "
            f"on the machine that ran it, with `wtb score {sweep.id}`"
        )
    queue = rescore.queue_of(database, sweep.id)
    check_workers(database, {queue}, anyway, "score", "scored")
    open_budgets(database, sweep, {}, limits_of_judging(limits))
    id = rescore.ask_to_score(database, sweep.id, evaluators, queue=queue, by=context.by)
    context.publisher.publish_pending(database)
    return show_scoring(context, sweep.id, id)


@checked
def show_scoring(context: Context, ref: str, scoring: str) -> Scoring:
    """Show the progress of a scoring on workers.

    Args:
        context: Where.
        ref: A sweep: its id, the beginning of it, or its name.
        scoring: The id of what they were asked.

    Returns:
        Its state.

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
        Its state.

    Raises:
        InputError: If there is none.
        ConflictError: If it has ended.
    """
    database = context.database
    row = rescore.find_scoring(database, queries.find_sweep(database, ref).id, scoring)
    with database.write() as connection:
        ended = rescore.cancel_scorings(connection, row.sweep_id, context.because(reason), row.id)
    current = show_scoring(context, row.sweep_id, row.id)
    # It may have ended meanwhile; the row that was read first would not show it.
    if not ended and current.status != "cancelled":
        raise ConflictError(f"scoring {current.id} is {current.status}: there is nothing to cancel")
    return current
