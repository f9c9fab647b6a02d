"""The code of a fire: node processes import it, and the process of the fire knows it by their description.

That process holds the URL of the database, which a module that it imports could read. A sweep that names the thread
pool is imported there all the same, unless the database has walls.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wtb.core.serialization.user_modules import without_user_code
from wtb.execution.sandbox.prepared_sweep import prepared_apart
from wtb.operations.context import Context
from wtb.operations.running.preparing import check_threads, described_apart, own_workspaces, rebind, with_options
from wtb.planning.binding import Bound
from wtb.planning.prepare import Prepared, prepare, stored_spec
from wtb.planning.sweep_spec import load_spec
from wtb.store.limits.sessions import session_name
from wtb.store.runs.submit import project_of_submission
from wtb.store.tables.sweeps import SweepRow

FIRE = "the process of a fire"
FIRES = "fires"  # the folder of its node processes


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
        own_workspaces(context, project, FIRES) as (workspaces, owner),
        prepared_apart(spec, file, workspaces, owner) as prepared,
    ):
        yield prepared


@contextmanager
def code_of_fire(context: Context, sweep: SweepRow) -> Iterator[Bound]:
    """Bind the stored sweep of a fire to its code as it is now, to run within this context.

    Args:
        context: Where it is.
        sweep: Its row.

    Yields:
        The code, which node processes run unless the sweep names the thread pool.

    Raises:
        WTBError: If the code is missing, or does not fit its pool.
    """
    spec = stored_spec(sweep)
    if spec.run.pool == "thread":
        check_threads(context.database, spec)
        with without_user_code(None):
            yield rebind(context, sweep)
        return
    yield described_apart(context, sweep, FIRES)
