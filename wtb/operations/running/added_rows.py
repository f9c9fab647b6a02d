"""Rows added to a sweep that has run: what one case suggested, for every case, from where it differs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from wtb.analysis import interim
from wtb.authoring.graph import reachable, successors
from wtb.config.field_types import is_import_path, variant_name
from wtb.core.arguments import Reason, checked
from wtb.core.errors import ConflictError, InputError, meant_or_known
from wtb.core.frozen import frozen
from wtb.core.tree.combinations import in_words
from wtb.core.tree.stored_spec import KEY, Addition, additions
from wtb.core.values import Json
from wtb.execution.runtime.sweep_run import Ended, reclaim_sweep
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.control.rollback import find_checkpoint
from wtb.operations.payers import check_payer
from wtb.operations.running import continuing, local
from wtb.operations.running.additions import Choices, Code, changed_code, code_error, with_levels, with_texts
from wtb.operations.running.local import ShowProgress
from wtb.operations.running.preparing import bind_stored, check_runs_elsewhere
from wtb.planning.binding import Bound, with_changed_levels
from wtb.planning.parameter_files import sent_texts
from wtb.planning.prepare import MAX_CELLS, stored_spec
from wtb.planning.sweep_spec import Variant, derived
from wtb.store.control.extension import Extension, insert_extension
from wtb.store.control.fork_points import NewRow, Origin
from wtb.store.database import Database
from wtb.store.read import aggregates, evidence, queries
from wtb.store.read.details import find_one
from wtb.store.read.lineage import line, marks
from wtb.store.records import Mark
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.sweeps import SweepRow


@frozen
class AddedRow:
    """The result of `add_row`.

    Attributes:
        sweep: The id of the sweep.
        name: Its name.
        combination: The number of the new row.
        choices: Node -> variant, of all varied nodes.
        base: The same of the row that it was made from.
        suggested_by: The id of the case that suggested it, which does not count for it.
        cells: How many cells it has.
        executions: Ids of those that are to run.
        failed: How many cells failed before they came to what differs, as the other row's did.
        node_runs: How many node runs are expected: as many as the other row took from there on.
        queued: Whether workers run them.
        status: Of the sweep now.
        problem: Why workers could not be reached; None if they were, or none are needed.
        ended: How the run ended, if they ran here.
    """

    sweep: str
    name: str
    combination: int
    choices: Choices
    base: Choices
    suggested_by: str
    cells: int
    executions: tuple[str, ...]
    failed: int
    node_runs: int
    queued: bool
    status: str
    problem: str | None = None
    ended: Ended | None = None


@frozen
class _Origin:
    """The origin of a row: an execution that has cells, or a fork of one.

    Attributes:
        execution: The named execution.
        combinations: Numbers of the combinations that it, or the execution it was forked from, stands for.
        variants: Node -> variant, for given nodes.
        at: The checkpoint after which the row differs, if one was named.
        ran: Nodes that had run by then.
        next: The nodes that follow it.
    """

    execution: ExecutionRow
    combinations: Sequence[int]
    variants: Mapping[str, Variant]
    at: str | None = None
    ran: frozenset[str] = frozenset()
    next: tuple[str, ...] = ()


@frozen
class _Draft:
    """A row before its variants are bound: the row that it differs from, and the nodes in which it does."""

    origin: _Origin
    base: int
    differing: Mapping[str, Variant]


@checked
@audited
def add_row(
    context: Context,
    ref: str,
    at: str | None = None,
    *,
    variants: Mapping[str, Variant] | None = None,
    texts: Mapping[str, str] | None = None,
    reason: Reason | None = None,
    run: bool = True,
    code: Code | None = None,
    progress: ShowProgress | None = None,
) -> AddedRow:
    """Run the changes of a fork for every case, as another row of its sweep.

    Each cell goes on from the checkpoint at which its case first came to a node that differs, so nothing before that
    runs again. Values that a person typed hold for their own case and are not taken along. The row is exploratory: the
    case that suggested it is left out of its figures, and it is never the best by itself.

    Args:
        context: Where, and who adds it.
        ref: The execution, by its id or the beginning of it: of one case, or a fork of that.
        at: The checkpoint, or the node, after which it differs. It is checked, and may be left out.
        variants: Node -> variant; those of a fork are taken from there.
        texts: Texts of the files that levels name as `file://PATH#SHA256`, by SHA-256.
        reason: A reason for people.
        run: Run it here until it ends, unless workers do; else it is left to whoever resumes the sweep.
        code: Binds a sweep to its code; by default what its import path names.
        progress: Called several times a second with how far a run here is.

    Returns:
        The row, and how it ended if it ran here.

    Raises:
        InputError: If there is no such execution, nothing differs or something does not fit, or values were typed.
        ConflictError: If the row is there already, another process runs the sweep, it is cancelled, the code of what is
            to run has changed, or cells of the row that it is made from have no outcome yet.
    """
    code = with_texts(code or partial(bind_stored, context), sent_texts(variants, texts, "variants"))
    database = context.database
    execution = find_one(database, ref)
    sweep = queries.find_sweep(database, execution.sweep_id)
    check_payer(context, sweep)
    if sweep.kind == "single":
        raise InputError(f"execution {execution.id} is a single execution, so there are no other cases")
    every = queries.choices(database, sweep.id)
    _check_size(sweep, every)
    if run:
        check_runs_elsewhere(context, sweep)
    present = code(stored_spec(sweep))
    row_choices = [every[n] for n in execution.combinations] if execution.choices is None else [execution.choices]
    origin = _origin(database, execution, at, with_changed_levels(present, variants or {}, row_choices))
    origin = replace(origin, variants={node: _named(sweep, node, form) for node, form in origin.variants.items()})
    draft = _draft(origin, every, present)
    _check_way(draft, present)
    addition, new = _extension(context, sweep, draft, reason, (present, code))
    choices = dict(new.rows[0].choices)
    if choices in every:
        raise ConflictError(
            f"sweep {sweep.name} ({sweep.id}) has the row {in_words(choices)} already; `wtb resume "
            f"{sweep.id}` runs what is open of it, `wtb retry {sweep.id}` what failed"
        )
    # Before anything is written: a broker that cannot be reached would leave the new cells without workers.
    if sweep.queued:
        context.publisher.check()
    else:
        reclaim_sweep(database, sweep.id)
    inserted = insert_extension(database, sweep, new)
    problem = context.publisher.publish_pending(database) if sweep.queued else None
    ended = _run_here(context, sweep.id, code, progress) if run and not sweep.queued else None
    return AddedRow(
        sweep=sweep.id,
        name=sweep.name,
        combination=addition.combination,
        choices=choices,
        base=every[draft.base],
        suggested_by=addition.case,
        cells=inserted.cells,
        executions=tuple(inserted.pending),
        failed=inserted.failed,
        node_runs=inserted.node_runs,
        queued=sweep.queued,
        status=str(queries.find_sweep(database, sweep.id).status),
        problem=problem,
        ended=ended,
    )


def _run_here(context: Context, sweep_id: str, code: Code, progress: ShowProgress | None) -> Ended | None:
    """Resume a sweep with its code as it is bound now, the row included."""
    bound = code(stored_spec(queries.find_sweep(context.database, sweep_id)))
    how = local.Code(bound, partial(local.follow, progress=progress))
    return continuing.resume(context, sweep_id, code=how).ended


def _named(sweep: SweepRow, node: str, form: Variant) -> Variant:
    """Return the name of a variant if an earlier row has added it to the sweep; otherwise its form.

    For a variant that was made for a fork it is that form, so that the sweep gets it as its own.
    """
    listed = sweep.spec["vary"].get(node, "all")
    present = [] if isinstance(listed, str) else listed
    of_forks = sweep.spec.get("fork_variants", {}).get(node, ())
    variant = form = derived(form, of_forks)
    if isinstance(form, str) and is_import_path(form):
        variant = {"name": variant_name(form), "with": form}
    if isinstance(variant, Mapping):
        if any(fork_variant["name"] == variant.get("name") and fork_variant != variant for fork_variant in of_forks):
            raise InputError(
                f"a fork has another variant {variant['name']!r} of node {node!r}: give this one another name"
            )
        return str(variant["name"]) if variant in present else form
    if form in [level["name"] for level in present]:
        return form
    return next((fork_variant for fork_variant in of_forks if fork_variant["name"] == form), form)


def _origin(database: Database, execution: ExecutionRow, at: str | None, variants: Mapping[str, Variant]) -> _Origin:
    if execution.choices is not None:
        if at is not None:
            raise InputError(f"execution {execution.id} is a fork: it goes on from where it was forked")
        return _of_fork(database, execution, variants)
    if not variants:
        raise InputError("the new row equals another one; expected another variant of a node")
    if at is None:
        return _Origin(execution, execution.combinations, variants)
    target = find_checkpoint(database, execution, at)
    with database.read() as connection:
        way = line(marks(connection, [target.id]), target.id)
    return _Origin(execution, execution.combinations, variants, target.id, _ran(way), target.next)


def _of_fork(database: Database, fork: ExecutionRow, variants: Mapping[str, Variant]) -> _Origin:
    """Return the origin for a fork, or a fork of a fork: where its line leaves that of an execution with cells."""
    if fork.edited:
        raise InputError(
            f"execution {fork.id} has values that a person typed: they hold for its own case only, so they cannot "
            f"be those of every case; fork without them, or name the execution that it came from, and the variants"
        )
    # Forks have no cells; the row starts from the first ancestor that has.
    forks, root = [fork.id], fork
    while (root := queries.find_execution(database, root.parent_id or "")).choices is not None:
        forks.append(root.id)
    with database.read() as connection:
        way = line(marks(connection, [fork.head_id]), fork.head_id)
    before = [mark for mark in way if mark.execution_id not in forks]
    if not before:
        raise ConflictError(f"the checkpoint at which execution {fork.id} was forked was removed by `wtb admin gc`")
    at = before[-1]
    choices = {**(fork.choices or {}), **variants}
    return _Origin(fork, root.combinations, choices, at.id, _ran(before), tuple(at.position["next"]))


def _ran(way: Sequence[Mark]) -> frozenset[str]:
    return frozenset(writer[0] for mark in way for writer in mark.writers)


def _draft(origin: _Origin, every: Sequence[Choices], present: Bound) -> _Draft:
    """Choose the row to start from: of the execution's combinations, the one that differs least."""
    nodes = present.workflow.nodes
    if unknown := [node for node in origin.variants if node not in nodes]:
        raise InputError(*(f"the workflow has no node {node!r}{meant_or_known(node, nodes)}" for node in unknown))
    differences = {number: _differing(every[number], origin.variants, present) for number in origin.combinations}
    # The fewer nodes differ, the later the row leaves its base, and the fewer node runs it needs.
    least = min(map(len, differences.values()))
    closest = [number for number, differing in differences.items() if len(differing) == least]
    if len(closest) > 1:
        unsaid = [node for node in every[closest[0]] if len({every[number][node] for number in closest}) > 1]
        raise InputError(
            f"execution {origin.execution.id} stands for {len(closest):,} combinations, which differ in "
            f"{', '.join(unsaid)}: choose a variant of that, too"
        )
    base = closest[0]
    if not differences[base]:
        raise InputError(
            f"nothing differs from {in_words(every[base])}: choose another variant of a node; code that was changed "
            f"needs a variant of its own"
        )
    return _Draft(origin, base, differences[base])


def _differing(choices: Choices, variants: Mapping[str, Variant], present: Bound) -> dict[str, Variant]:
    nodes = present.workflow.nodes
    return {node: form for node, form in variants.items() if choices.get(node, nodes[node].default) != form}


def _check_way(draft: _Draft, present: Bound) -> None:
    """Check that the differing nodes run after the named checkpoint, and not before it."""
    origin, workflow = draft.origin, present.workflow
    if origin.at is None:
        return
    following = reachable(successors(workflow), origin.next)
    problems = [
        f"node {node!r} does not run after checkpoint {origin.at}" for node in draft.differing if node not in following
    ]
    problems += [
        f"node {node!r} runs before checkpoint {origin.at}, too, and a row has one variant of it: name an earlier one"
        for node in draft.differing
        if node in origin.ran and node in following
    ]
    if problems:
        raise InputError(*problems)


def _extension(
    context: Context, sweep: SweepRow, draft: _Draft, reason: Reason | None, code: tuple[Bound, Code]
) -> tuple[Addition, Extension]:
    """Bind the sweep with the row's variants, and return what is recorded."""
    present, bind_again = code
    levels = with_levels(sweep, present, bind_again, {node: [form] for node, form in draft.differing.items()})
    changed = {node: names[0] for node, names in levels.names.items()}
    every = queries.choices(context.database, sweep.id)
    row_choices = {**levels.defaults, **every[draft.base], **changed}
    choices = {node: row_choices[node] for node in levels.bound.vary}
    # Only the code after the difference runs, so only that has to be unchanged.
    if different := changed_code(context.database, sweep, levels.bound, changed):
        advice = (
            "so the row would not be comparable with the others; bring the old code back, and give what was changed "
            "on purpose a variant of its own"
        )
        raise code_error(context.database, sweep, levels.bound, different, advice)
    addition = _addition(context, sweep, draft, len(every), changed, reason)
    spec = levels.spec(sweep)
    spec[KEY] = [*sweep.spec.get(KEY, ()), addition.document()]
    details: dict[str, Json] = {
        "combination": {**choices},
        "from": addition.execution,
        "case": addition.case,
        "by": addition.by,
        "reason": addition.reason,
    }
    row = NewRow(choices, [Origin(draft.base, frozenset(changed))])
    return addition, Extension(
        spec,
        levels.fingerprints(sweep),
        levels.queue_for,
        details,
        context.by,
        rows=[row],
        defaults=levels.defaults,
        strict=True,
    )


def _addition(
    context: Context, sweep: SweepRow, draft: _Draft, number: int, changed: Choices, reason: Reason | None
) -> Addition:
    database, execution = context.database, draft.origin.execution
    case = execution.case_number
    (row,) = queries.case_rows(database, sweep.id, {case}).values()
    clusters = evidence.clusters(database, sweep.id)
    alike = {other for other, cluster in clusters.items() if cluster == clusters.get(case)} | {case}
    for earlier in additions(sweep.spec):  # what suggested a row has suggested what is made from it
        if earlier.combination == draft.base:
            alike.update(earlier.left_out)
    return Addition(
        combination=number,
        base=draft.base,
        changed=changed,
        case=row.id,
        left_out=tuple(sorted(alike)),
        execution=execution.id,
        at=draft.origin.at,
        by=context.by,
        reason=reason,
        added_at=time.time(),
        final=interim.because(sweep, aggregates.cell_groups(database, sweep.id)) is None,
    )


def _check_size(sweep: SweepRow, every: Sequence[Choices]) -> None:
    cells = sweep.cells + sweep.cells // len(every)
    if cells > MAX_CELLS:
        raise InputError(f"sweep {sweep.id} would have {cells:,} cells; at most {MAX_CELLS:,} are allowed")
