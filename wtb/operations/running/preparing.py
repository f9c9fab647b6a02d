"""Preparation of what is to run: everything is checked before anything is written."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from wtb.authoring.code.fingerprint import evaluator_code
from wtb.authoring.code.import_paths import is_importable
from wtb.authoring.code.recipe import NamedEvaluator
from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.authoring.workflow import Workflow
from wtb.core.arguments import Count, Slots, checked
from wtb.core.errors import ConflictError, InputError
from wtb.core.factors import with_texts
from wtb.core.ids import new_id
from wtb.core.texts import listed_names
from wtb.core.tree.stored_code import EVALUATORS, RecordedCode, why
from wtb.core.tree.stored_spec import recorded_evaluators
from wtb.core.values import Json
from wtb.execution.described_code import bind_described, describe_code
from wtb.operations.auditing import shown_argument
from wtb.operations.context import Context
from wtb.operations.control.state_edits import coerce_values
from wtb.planning.binding import Bound, bind, draft_of
from wtb.planning.cases import CaseSource
from wtb.planning.checks import check_pool
from wtb.planning.picking import Only
from wtb.planning.prepare import MAX_CELLS, Prepared, prepare, stored_spec
from wtb.planning.publishing import IMPORTED, Code
from wtb.planning.sweep_spec import SweepSpec, load_spec, parse_single
from wtb.store.database import Database
from wtb.store.files.safe_directories import remove_tree
from wtb.store.files.workspaces import Workspaces
from wtb.store.runs import leases
from wtb.store.tables.sweeps import SweepRow
from wtb.store.tables.walls import has_walls


@shown_argument.register
def _describe_prepared(prepared: Prepared) -> Json:
    spec = prepared.bound.spec
    return {"sweep": spec.sweep, "workflow": prepared.bound.workflow.name, "cells": prepared.cells}


@checked
def prepare_file(
    file: Path,
    only: Only | None = None,
    *,
    max_cells: Count | None = None,
    session: str | None = None,
    concurrency: Slots | None = None,
) -> Prepared:
    """Prepare the sweep of a file, or a part of it, for its submission.

    Args:
        file: The sweep file.
        only: The part of it; None for all.
        max_cells: How many cells it may have, in place of the cap.
        session: In place of the file's.
        concurrency: Node runs at a time, in place of the file's.

    Returns:
        The sweep, checked.

    Raises:
        InputError: With everything that is wrong, one line each.
    """
    spec = with_options(load_spec(file), session=session, concurrency=concurrency)
    return prepare(spec, only=only, max_cells=MAX_CELLS if max_cells is None else max_cells)


@checked
def with_options(spec: SweepSpec, *, session: str | None = None, concurrency: Slots | None = None) -> SweepSpec:
    """Return a sweep with another session and another number of node runs at a time, if these are given."""
    changed = spec.model_copy(update={} if session is None else {"session": session})
    if concurrency is not None:
        changed = changed.model_copy(update={"run": spec.run.model_copy(update={"concurrency": concurrency})})
    return changed


@checked
def prepare_single(
    workflow: Workflow | str,
    input: Any,
    *,
    variants: Mapping[str, str] | None = None,
    from_node: str | None = None,
    source: str = "input",
    written: Mapping[str, str] | None = None,
    code: Code = IMPORTED,
    **keys: Any,
) -> Prepared:
    """Prepare one input for a workflow: a sweep of one cell, checked and ready to be submitted.

    Args:
        workflow: A Workflow, or the import path of one.
        input: Values by key of the state, or an object of a dataclass or pydantic model, or the state itself if that is
            a single value.
        variants: Variant by node, if it is not the default.
        from_node: The node to start at, with the input as the state.
        source: What messages call the input.
        written: Values of it that were typed as text; they are read as the types of their keys.
        code: Where the workflow comes from, if it is not given.
        **keys: Other keys of a sweep file, such as `project`, `limits` and `run`.

    Returns:
        The prepared sweep.

    Raises:
        InputError: With everything that is wrong, one line each.
    """
    path = workflow if isinstance(workflow, str) else import_path_of(workflow)
    # A sweep file is an easy mistake for a workflow, and its import would fail without saying so.
    if Path(path).suffix in (".yaml", ".yml", ".json"):
        raise InputError(f"{path!r} is a file; expected a workflow, and `wtb run` or `wtb submit` takes a sweep file")
    document = {"sweep": path, "workflow": path, "cases": [], **keys}
    spec = parse_single({**document, "vary": {node: [name] for node, name in (variants or {}).items()}})
    state = dict(input) if isinstance(input, Mapping) else input
    if written:
        bare = workflow
        if isinstance(bare, str):
            bare = code.workflow(bare, lambda text: spec.located.problem(("workflow",), text))
        state |= coerce_values(bare.facts().schema, {name: state[name] for name in written}, written)
    case = {"id": "input", "input": state}
    prepared = prepare(
        spec,
        workflow=workflow if isinstance(workflow, Workflow) else None,
        source=CaseSource(source, spec.folder, lambda: iter([(source, case)])),
        starts_at=from_node,
        code=code,
    )
    # The name was the path until the workflow was found: now it can be that of the workflow.
    named = prepared.bound.spec.model_copy(update={"sweep": prepared.bound.workflow.name})
    return replace(prepared, bound=replace(prepared.bound, spec=named))


def import_path_of(workflow: Any) -> str:
    """Return the import path of a workflow or graph; its name if no module has it.

    Of several modules that have it, one that defines its nodes is preferred, then one that others can import.
    """
    places = [
        (name, attribute)
        # Copies: another thread may import a module meanwhile.
        for name, module in list(sys.modules.items())
        if not name.startswith("wtb.")
        for attribute, candidate in list(getattr(module, "__dict__", {}).items())
        if candidate is workflow
    ]
    nodes = workflow.nodes.values() if isinstance(workflow, Workflow) else ()
    homes = {variant.fn.__module__ for node in nodes for variant in node.variants.values()}
    places.sort(key=lambda place: (place[0] not in homes, not is_importable(sys.modules[place[0]])))
    return ":".join(places[0]) if places else getattr(workflow, "name", type(workflow).__name__)


def bind_stored(context: Context, spec: SweepSpec) -> Bound:
    """Bind what was submitted to its code, wherever the code is.

    Args:
        context: Where; it says whether code is imported.
        spec: The sweep.

    Returns:
        The code. Where nothing is imported it is as workers publish it, without evaluators, which score where it runs.

    Raises:
        InputError: If it is not there.
    """
    if context.imports:
        return bind(spec)
    return bind(spec.model_copy(update={"evaluate": []}), code=context.code)


def rebind(context: Context, sweep: SweepRow) -> Bound:
    """Bind a stored sweep to its code as it is now.

    Args:
        context: Where; it says whether code is imported.
        sweep: Its row.

    Returns:
        The code, as `bind_stored` finds it. Where nothing is imported, whether it fits its pool is for who runs it.

    Raises:
        InputError: If it is not there, or does not fit its pool.
    """
    bound = bind_stored(context, stored_spec(sweep))
    if context.imports:
        check_pool(bound)
    return bound


def described_apart(context: Context, sweep: SweepRow, folder: str) -> Bound:
    """Bind a stored sweep to its code as it is now, which a node process imports and describes.

    Args:
        context: Where it is.
        sweep: Its row.
        folder: Below which that process works.

    Returns:
        The code, to be run by other node processes.

    Raises:
        WTBError: If the code is missing, cannot be imported, or does not fit its pool.
    """
    spec = stored_spec(sweep)
    with own_workspaces(context, sweep.project, folder) as (workspaces, owner):
        code = describe_code(replace(draft_of(spec), is_checked=True), spec.run, workspaces, owner)
        code.process.close()  # the run has workspaces of its own, and starts others
    bound = bind_described(spec, code)
    check_pool(bound)
    return bound


@contextmanager
def own_workspaces(context: Context, project: str, folder: str) -> Iterator[tuple[Workspaces, str]]:
    """Make a directory for a node process that runs no node, and remove it at the end of the context.

    Args:
        context: Where.
        project: Whose files the process may see.
        folder: The folder of the directory.

    Yields:
        The directory, and the name of who has it.
    """
    owner = new_id()
    workspaces = context.workspaces.of_project(project).of_runner(owner, folder, owner)
    try:
        yield workspaces, owner
    finally:
        remove_tree(workspaces.root)
        for parent in (workspaces.root.parent, workspaces.root.parent.parent):
            with suppress(OSError):  # somebody else works there
                parent.rmdir()


def check_threads(database: Database, spec: SweepSpec) -> None:
    """Refuse the thread pool for a sweep that a worker or a scheduler runs, if the database has walls.

    Args:
        database: Where the sweep is to be stored.
        spec: The sweep.

    Raises:
        InputError: If it names the thread pool, and workers have a role of their own there.
    """
    if spec.run.pool != "thread":
        return
    with database.read() as connection:
        is_walled = has_walls(connection)
    if is_walled:
        raise InputError(
            spec.located.problem(
                ("run", "pool"),
                "'run.pool: thread' runs nodes in the worker or scheduler itself, whose database role wtb_worker can "
                "read all projects; expected 'pool: process'",
            )
        )


def check_runs_elsewhere(context: Context, sweep: SweepRow) -> None:
    """Refuse to continue a sweep that only this process could run, if no code is imported here.

    Args:
        context: Where; it says whether code is imported.
        sweep: What is to continue.

    Raises:
        ConflictError: If neither workers nor another process run it.
    """
    runs = context.imports or context.local is not None or sweep.queued
    if not (runs or leases.runs_now(context.database, sweep)):
        raise ConflictError(
            f"sweep {sweep.id} was not submitted to workers, and no process runs it; continue it on a machine with "
            f"its code and the database"
        )


def accept_evaluators(
    context: Context, sweep: SweepRow, bound: Bound, *, allow: bool, extends: bool = False
) -> RecordedCode | None:
    """Check that new cells would be scored like the existing ones.

    Args:
        context: The place of the sweep; if it imports no code, published evaluators count.
        sweep: Its row.
        bound: Its present code.
        allow: Continue although they have changed.
        extends: True if the sweep is extended, which a baseline cannot be.

    Returns:
        The present evaluators, if they have changed.

    Raises:
        ConflictError: They have changed, and `allow` is false.
    """
    recorded = recorded_evaluators(sweep.spec)
    if recorded is None:
        return None
    present = bound.evaluator_code if context.imports else _published(context, sweep)
    # An evaluator that is known on one side only cannot be compared, so it is not reported as changed.
    shared_names = [name for name in present.fingerprints[EVALUATORS] if name in recorded.fingerprints[EVALUATORS]]
    changed = [(EVALUATORS, name) for name in shared_names if not recorded.has_same(present, EVALUATORS, name)]
    if changed and not allow:
        raise _changed_error(sweep, recorded, present, [name for _, name in changed], extends=extends)
    return present if changed else None


def _published(context: Context, sweep: SweepRow) -> RecordedCode:
    """Return the evaluators that are built in or published by workers; others are unknown here."""
    named = []
    for written in sweep.spec["evaluate"]:
        for name, options in written.items():
            filled = with_texts(options if isinstance(options, dict) else {}, sweep.spec.get("texts", {}))
            with suppress(InputError):
                named.append((NamedEvaluator(name, filled, ""), make_evaluator(name, filled, context.code.load)))
    return evaluator_code(named)


def _changed_error(
    sweep: SweepRow, recorded: RecordedCode, present: RecordedCode, names: list[str], *, extends: bool
) -> ConflictError:
    causes = why(recorded.code, present.code, [(EVALUATORS, name) for name in names])
    which = (
        f"evaluator {names[0]!r} has" if len(names) == 1 else f"evaluators {listed_names(list(map(repr, names)))} have"
    )
    commands = listed_names([f"`wtb score {sweep.id} --evaluate {path}`" for path in _paths(sweep, names)])
    copied = f" (for a baseline `wtb admin copy {sweep.id} --new-name NAME`, then score and extend the copy)"
    return ConflictError(
        f"sweep {sweep.name} ({sweep.id}): {which} changed since the cells that are there were scored {causes}, so new "
        f"scores would not be comparable. Score those cells again first with {commands}{copied if extends else ''}, "
        f"bring the old code back, or allow the change of code",
        argument="allow_code_change",
    )


def _paths(sweep: SweepRow, names: list[str]) -> list[str]:
    """Return the sweep file's names of evaluators."""
    recorded = recorded_evaluators(sweep.spec)
    assert recorded is not None
    every = [name for written in sweep.spec["evaluate"] for name in written]
    return [path for path, name in zip(every, recorded.fingerprints[EVALUATORS], strict=False) if name in names]
