"""The code of a fire: node processes import it, and the process of the fire knows it by their description.

That process holds the URL of the database, which a module that it imports could read. A sweep that names the thread
pool is imported there all the same, unless the database has walls.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from wtb.core.ids import new_id
from wtb.core.serialization.user_modules import without_user_code
from wtb.execution.described_code import bind_described, describe_code, run_described
from wtb.execution.runtime.sweep_run import StartCode
from wtb.execution.sandbox.prepared_sweep import prepared_apart
from wtb.operations.context import Context
from wtb.operations.running.preparing import check_threads, rebind, with_options
from wtb.planning.binding import Bound, draft_of
from wtb.planning.checks import check_pool
from wtb.planning.prepare import Prepared, prepare, stored_spec
from wtb.planning.sweep_spec import load_spec
from wtb.store.files.safe_directories import remove_tree
from wtb.store.files.workspaces import Workspaces
from wtb.store.limits.sessions import session_name
from wtb.store.rows.sweeps import SweepRow
from wtb.store.runs.submit import project_of_submission

FIRE = "the process of a fire"


@contextmanager
def prepared_fire(context: Context, file: Path, session: str | None) -> Iterator[Prepared]:
    """Prepare the sweep of a fire, to be submitted within this context.

    Args:
        context: Where the schedule is.
        file: The sweep file.
        session: The session of the schedule.

    Yields:
        The sweep, checked.

    Raises:
        WTBError: With everything that is wrong, one line each.
    """
    spec = with_options(load_spec(file), session=session)
    if spec.run.pool == "thread":
        check_threads(context.database, spec)
        with without_user_code(None):
            yield prepare(spec)
        return
    project = project_of_submission(context.database, session_name(spec.session), spec.project)
    with (
        _own_workspaces(context, project) as (workspaces, owner),
        prepared_apart(spec, file, workspaces, owner) as prepared,
    ):
        yield prepared


@contextmanager
def code_of_fire(context: Context, sweep: SweepRow) -> Iterator[tuple[Bound, StartCode | None]]:
    """Bind the stored sweep of a fire to its code as it is now, to run within this context.

    Args:
        context: Where it is.
        sweep: Its row.

    Yields:
        The code, and what runs it in node processes; None if this process has imported it.

    Raises:
        WTBError: If the code is missing, or does not fit its pool.
    """
    spec = stored_spec(sweep)
    if spec.run.pool == "thread":
        check_threads(context.database, spec)
        with without_user_code(None):
            yield rebind(context, sweep), None
        return
    with _own_workspaces(context, sweep.project) as (workspaces, owner):
        code = describe_code(replace(draft_of(spec), is_checked=True), spec.run, workspaces, owner)
        code.process.close()  # the run has workspaces of its own, and starts others
    bound = bind_described(spec, code)
    check_pool(bound)
    yield bound, partial(run_described, bound, code, is_ready=False)


@contextmanager
def _own_workspaces(context: Context, project: str) -> Iterator[tuple[Workspaces, str]]:
    """A directory for a node process that runs no node, and the name of who has it."""
    owner = new_id()
    workspaces = context.workspaces.of_project(project).of_runner(owner, "fires", owner)
    try:
        yield workspaces, owner
    finally:
        remove_tree(workspaces.root)
        for folder in (workspaces.root.parent, workspaces.root.parent.parent):
            with suppress(OSError):  # somebody else works there
                folder.rmdir()
