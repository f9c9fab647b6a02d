"""Fork an execution: another one continues beside it from a checkpoint, with changes."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from wtb.authoring.graph import queue_of, reachable, successors
from wtb.config.field_types import is_import_path
from wtb.core.arguments import Reason, checked
from wtb.core.errors import ConflictError, InputError, meant_or_known, quoted_names
from wtb.core.factors import texts_of
from wtb.core.frozen import frozen
from wtb.core.tree.run_order import agreed
from wtb.core.values import State
from wtb.execution.runtime.sweep_run import is_being_run
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.control.continuation import RunBy
from wtb.operations.control.rollback import NamedCheckpoint, find_checkpoint
from wtb.operations.control.state_edits import check_reach, checked_changes
from wtb.operations.payers import check_payer
from wtb.operations.running.local import run_fork
from wtb.operations.running.preparing import check_runs_elsewhere, rebind
from wtb.planning.binding import Bound, with_changed_levels, with_fork_variants
from wtb.planning.parameter_files import sent_texts
from wtb.planning.sweep_spec import Variant, derived, read_variants
from wtb.planning.variant_forms import VariantRef
from wtb.store.control.forks import NewFork, insert_fork, reopen_sweep
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.read.details import find_one
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.sweeps import SweepRow


@frozen
class Forked:
    """An execution that continues beside another one. It owns no cell, so no matrix changes.

    Attributes:
        execution: Its id.
        sweep: The id of its sweep.
        status: Its status now; if it ran here, the one in which that ended.
        reason: Why it has that status.
        run_by: Who runs it.
        problem: Why workers could not be reached; they find it later.
    """

    execution: str
    sweep: str
    status: str
    reason: Reason | None
    run_by: RunBy
    problem: str | None = None


@checked
@audited
def fork(
    context: Context,
    ref: str,
    at: str | None = None,
    *,
    set: State | None = None,
    written: Mapping[str, str] | None = None,
    variants: Mapping[str, Variant] | None = None,
    texts: Mapping[str, str] | None = None,
    reason: Reason | None = None,
    run: bool = True,
    bound: Bound | None = None,
) -> Forked:
    """Run on from a checkpoint with changes, beside the original: here until it ends, or by the workers of its sweep.

    Args:
        context: Where, and who forks it.
        ref: The original's id, or the beginning of it.
        at: A checkpoint's id, or a node; its head if None.
        set: Other values by key of the state.
        written: Values of `set` that were typed as text; they are read as the types of their keys.
        variants: Variant by node, for nodes that follow, in place of the original's: a name, or as a sweep file has
            one that it makes, such as `{"name": "more", "of": "default", "k": 9}` with another parameter.
        texts: Texts of the files that levels name as `file://PATH#SHA256`, by SHA-256.
        reason: A reason for people.
        run: Run it; else it is paused.
        bound: The sweep's code; imported if None.

    Returns:
        The new execution, and who runs it.

    Raises:
        InputError: If something does not fit, or if the original's cells do not agree on a variant that follows.
        ConflictError: If the sweep is cancelled, or if a variant is to be made and another process runs it.
    """
    read = sent_texts(variants, texts, "variants")
    database = context.database
    origin = find_one(database, ref)
    # Who submitted a sweep by a token with a budget pays for it, so others must not let it spend more.
    sweep = queries.find_sweep(database, origin.sweep_id)
    check_payer(context, sweep)
    bound = bound or rebind(context, sweep)
    bound = replace(bound, spec=bound.spec.with_texts(read))
    # Checked before the fork is written: a fork that nobody can run would stay pending.
    if run:
        check_runs_elsewhere(context, sweep)
    execution_id, bound = add_fork(
        context,
        origin.id,
        bound=bound,
        at=at,
        set=set,
        written=written,
        variants=variants,
        reason=reason,
        paused=not run,
    )
    who, problem = _run(context, sweep, execution_id, bound) if run else (RunBy.nobody, None)
    row = queries.find_execution(database, execution_id)
    return Forked(execution_id, sweep.id, row.status, row.reason, who, problem)


def _run(context: Context, sweep: SweepRow, execution_id: str, bound: Bound) -> tuple[RunBy, str | None]:
    """Run a fork where its sweep runs, or here. Return who runs it, and the reason if no task was sent."""
    if sweep.queued:
        if reopen_sweep(context.database, sweep.id, by=context.by) == "paused":
            return RunBy.nobody, None
        return RunBy.workers, context.publisher.publish_pending(context.database)
    if is_being_run(context.database, sweep):
        return RunBy.another_process, None
    if context.local is not None:
        context.local.start(sweep.id, execution=execution_id)
        return RunBy.here, None
    run_fork(context, sweep, execution_id, bound)
    return RunBy.here, None


def add_fork(
    context: Context,
    ref: str,
    *,
    bound: Bound,
    at: str | None = None,
    set: State | None = None,
    written: Mapping[str, str] | None = None,
    variants: Mapping[str, Variant] | None = None,
    reason: Reason | None = None,
    paused: bool = False,
) -> tuple[str, Bound]:
    """Add an execution as `fork` does, without running it: it is paused, or pending for whoever runs the sweep.

    Returns:
        Its id, and the code with what was made for it.
    """
    database = context.database
    origin = find_one(database, ref)
    if at is None:
        at = origin.head_id
    if at is None:
        raise InputError(f"execution {origin.id} has not started, so it has no checkpoint to fork from")
    target = find_checkpoint(database, origin, at)
    changes = checked_changes(bound, set or {}, written)
    check_reach(database, bound, target.id, changes)
    origin_choices = _load_choices(database, origin)
    names, new_variants = _read(bound, with_changed_levels(bound, variants or {}, origin_choices))
    choices = _choices(origin, bound, target, names, new_variants, origin_choices)
    if new_variants:
        _check_nobody_runs(database, origin)
        bound = with_fork_variants(bound, {node: [ref] for node, ref in new_variants.items()}, context.code)
    documents = {node: ref.model_dump(mode="json") for node, ref in new_variants.items()}
    new = NewFork(
        target.id,
        choices=choices,
        new_variants=documents,
        texts=texts_of(documents, bound.spec.texts),
        changes=changes,
        queue=queue_of(bound.workflow, target.next),
        by=context.by,
        reason=reason,
        paused=paused,
    )
    return insert_fork(database, origin, new), bound


def _read(bound: Bound, variants: Mapping[str, Variant]) -> tuple[dict[str, str], dict[str, VariantRef]]:
    """Read the variants of a fork. Return the name of each by its node, and those that have to be made."""
    nodes = bound.workflow.nodes
    forms = {
        node: derived(form, [ref.model_dump(mode="json") for ref in bound.spec.fork_variants.get(node, ())])
        for node, form in variants.items()
        if not isinstance(form, str) or is_import_path(form)
    }
    refs = {
        node: ref
        for node, (ref,) in read_variants({node: [form] for node, form in forms.items()}, bound.spec.texts).items()
    }
    names = {node: form for node, form in variants.items() if isinstance(form, str)}
    listed = {node: [*bound.spec.fork_variants.get(node, ()), *_listed(bound, node)] for node in refs}
    new_variants = {
        node: ref
        for node, ref in refs.items()
        if not (node in nodes and ref.name in nodes[node].variants and (ref.is_own or ref in listed[node]))
    }
    return {**names, **{node: ref.name for node, ref in refs.items()}}, new_variants


def _listed(bound: Bound, node: str) -> Sequence[VariantRef]:
    listed = bound.spec.variants.get(node, ())
    return () if isinstance(listed, str) else listed


def _check_nobody_runs(database: Database, origin: ExecutionRow) -> None:
    """Reject variants that the running process does not have: workers look for new ones, others bound their code."""
    sweep = queries.find_sweep(database, origin.sweep_id)
    if not sweep.queued and is_being_run(database, sweep):
        raise ConflictError(
            f"another process runs sweep {sweep.id} with the variants from its start: wait for its end, "
            f"or `wtb pause {sweep.id}` first; or choose a variant that the workflow has"
        )


def _load_choices(database: Database, origin: ExecutionRow) -> Sequence[Mapping[str, str]]:
    """Return the choices of a fork, or the combinations of an execution's cells."""
    if origin.choices is not None:
        return [origin.choices]
    every = queries.choices(database, origin.sweep_id)
    return [every[number] for number in origin.combinations]


def _choices(
    origin: ExecutionRow,
    bound: Bound,
    target: NamedCheckpoint,
    variants: Mapping[str, str],
    new_variants: Container[str],
    origin_choices: Sequence[Mapping[str, str]],
) -> dict[str, str]:
    """Return the variants of a fork: its origin's, if all of its cells agree, and the requested ones.

    Args:
        origin: The execution that it is forked from.
        bound: The code.
        target: The checkpoint.
        variants: The requested variants by node.
        new_variants: The nodes for which a variant is made.
        origin_choices: The choices of the origin's cells.
    """
    nodes = bound.workflow.nodes
    following = reachable(successors(bound.workflow), target.next) & nodes.keys()
    problems = []
    for node, variant in variants.items():
        if node not in nodes:
            problems.append(f"the workflow has no node {node!r}{meant_or_known(node, nodes)}")
        elif variant not in nodes[node].variants and node not in new_variants:
            hint = meant_or_known(variant, nodes[node].variants)
            problems.append(f"node {node!r} has no variant {variant!r}{hint}")
        elif node not in following:
            names = ", ".join(name for name in nodes if name in following) or "none"
            problems.append(f"node {node!r} does not run after {target.words} (what does: {names})")
    same = agreed(origin_choices)
    # A shared execution stands for several combinations; a fork runs one, so it needs a single variant of each later
    # node.
    for node in following - same.keys() - variants.keys():
        of = sorted({row[node] for row in origin_choices if node in row})
        if of:
            problems.append(
                f"the cells of execution {origin.id} choose {quoted_names(of)} for node {node!r}: pick one of "
                f"them as its variant"
            )
    if problems:
        raise InputError(*sorted(problems))
    return {**same, **variants}
