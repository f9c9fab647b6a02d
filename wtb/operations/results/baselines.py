"""Baselines: names for sweeps that later ones are compared with."""

from __future__ import annotations

from typing import Annotated

from wtb.analysis.comparison.noise_floor import check_code, noise_floor
from wtb.analysis.kept_matrix import judged
from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import Number
from wtb.core.classes.frozen import frozen
from wtb.core.documents.comparison import BaselineDocument, NoiseFloorDocument
from wtb.core.documents.matrix import JudgedMatrixDocument
from wtb.core.errors import ConflictError, InputError
from wtb.core.serialization.plain_json import iso
from wtb.core.status import FINAL_CELLS
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.control.pools import check_no_pool
from wtb.operations.running.local import Ran, ShowProgress, run_stored
from wtb.operations.running.preparing import rebind
from wtb.store.limits.sessions import find_session
from wtb.store.read import baselines as store
from wtb.store.read import queries
from wtb.store.read.references import SweepTarget
from wtb.store.rows.results import ListedBaseline
from wtb.store.runs.submit import submit_again
from wtb.store.tables.sweeps import SweepRow


class BaselineResult(BaselineDocument):
    """A baseline with what its sweep found."""

    matrix: JudgedMatrixDocument


@frozen
class BaselineSet:
    """What `set_baseline` or `repeat_baseline` did.

    Attributes:
        sweep: The id of the sweep that is the baseline now.
        name: The name of that sweep.
        before: The id of another sweep that was it until now; None if there was none.
        noise_floor: What repeats of it differ by, if they were run now.
        unfinished: The repeat that did not come to its end, so that no baseline was set; None if all did.
    """

    sweep: str
    name: str
    before: str | None = None
    noise_floor: NoiseFloorDocument | None = None
    unfinished: Ran | None = None


def _find_finished(context: Context, ref: str, anyway: bool) -> SweepTarget:
    """Find a sweep that is at its end. Raises ConflictError if it is not, unless anyway."""
    sweep = SweepTarget(queries.find_sweep(context.database, ref))
    counts = queries.cell_counts(context.database, sweep.id)
    open_cells = sum(count for status, count in counts.items() if status not in FINAL_CELLS)
    status = sweep.row.status
    if (open_cells or status != "completed") and not anyway:
        raise ConflictError(
            f"{sweep} is {status}, and {open_cells:,} of its cells have no outcome: continue with `wtb resume "
            f"{sweep.id}`, or set it anyway"
        )
    return sweep


@checked
@audited
def set_baseline(context: Context, name: str, ref: str, *, anyway: bool = False) -> BaselineSet:
    """Give a finished sweep a name in its session. The sweep is kept while it has one.

    It is the fixed reference of the nights that follow, too, which `regress` with `update` leaves where it is. What
    repeats measured for the same baseline is kept.

    Args:
        context: Where it is.
        name: The baseline's name; another sweep that has it loses it.
        ref: A sweep: its id, the beginning of it, or its name.
        anyway: Although it is not at its end.

    Returns:
        Which sweep is the baseline now, and which was it before.

    Raises:
        InputError: If there is no such sweep, or a baseline cannot be called so.
        ConflictError: If it is not at its end, or is being deleted.
    """
    store.check_name(name)
    return _set(context, name, _find_finished(context, ref, anyway))


@checked
@audited
def repeat_baseline(
    context: Context,
    name: str,
    ref: str,
    *,
    repeat: Annotated[int, Number(1, 100, whole=True)],
    anyway: bool = False,
    progress: ShowProgress | None = None,
) -> BaselineSet:
    """Run a finished sweep again to measure its noise, and give it a name in its session, as `set_baseline` does.

    Args:
        context: Where it is.
        name: The baseline's name; another sweep that has it loses it.
        ref: A sweep: its id, the beginning of it, or its name.
        repeat: Run it so many more times.
        anyway: Although it is not at its end.
        progress: Called several times a second with how far a repeat is.

    Returns:
        Which sweep is the baseline now, and which was it before; or a repeat that did not come to its end.

    Raises:
        InputError: If there is no such sweep, it cannot be run again, or a baseline cannot be called so.
        ConflictError: If it is not at its end, or is being deleted.
    """
    store.check_name(name)
    sweep = _find_finished(context, ref, anyway)
    repeats = _repeat(context, sweep.row, repeat, progress)
    if (last := repeats[-1]).sweep.status != "completed":
        return BaselineSet(sweep.id, sweep.row.name, unfinished=last)
    return _set(context, name, sweep, noise_floor(context.database, sweep.row, [ran.sweep.id for ran in repeats]))


def _set(context: Context, name: str, sweep: SweepTarget, floor: NoiseFloorDocument | None = None) -> BaselineSet:
    before = store.set_baseline(context.database, name, sweep.id, floor)
    return BaselineSet(sweep.id, sweep.row.name, None if before == sweep.id else before, floor)


def _repeat(context: Context, row: SweepRow, times: int, progress: ShowProgress | None) -> list[Ran]:
    """Run a sweep again, until it was done so many times or one did not come to its end."""
    if row.kind == "single":
        raise InputError(f"only a sweep can be repeated, and {row.id} is a single execution")
    check_no_pool(context.database, row, "run again")
    bound = rebind(context, row)
    check_code(context.database, row, bound)
    repeats: list[Ran] = []
    while len(repeats) < times and all(ran.sweep.status == "completed" for ran in repeats):
        id = submit_again(context.database, row)
        context.report(f"repeat {len(repeats) + 1} of {times} ({id}): {row.cells:,} cells")
        repeats.append(run_stored(context, queries.find_sweep(context.database, id), bound, progress=progress))
    return repeats


@checked
def list_baselines(context: Context, session: str | None = None) -> list[BaselineDocument]:
    """List the baselines of a session, or all.

    Args:
        context: Where they are.
        session: Only those of this session; None for that of the context, or for all if it has none.

    Returns:
        A document for each.

    Raises:
        InputError: If there is no such session.
    """
    session = session or context.session
    if session is not None:
        find_session(context.database, session)
    return [_document(row) for row in store.baseline_rows(context.database, session)]


@checked
def show_baseline(context: Context, name: str, *, session: str | None = None) -> BaselineResult:
    """Return a baseline with the matrix of its sweep.

    Args:
        context: Where it is.
        name: The baseline's name.
        session: Its session; by default that of the context, or of the environment.

    Returns:
        Its document.

    Raises:
        InputError: If there is no such baseline.
    """
    session = context.session_name(session)
    sweep = store.named_baseline(context.database, session, name)
    row = next(row for row in store.baseline_rows(context.database, session) if row.name == name)
    return {**_document(row), "matrix": judged(context.database, sweep)}


@checked
@audited
def remove_baseline(context: Context, name: str, *, session: str | None = None) -> str:
    """Remove a baseline. Its sweep stays until the retention policy lets it go.

    Args:
        context: Where it is.
        name: The baseline's name.
        session: Its session; by default that of the context, or of the environment.

    Returns:
        The id of the sweep that it was.

    Raises:
        InputError: If there is no such baseline.
    """
    session = context.session_name(session)
    sweep = store.named_baseline(context.database, session, name)
    store.remove_baseline(context.database, session, name)
    return str(sweep.id)


def _document(row: ListedBaseline) -> BaselineDocument:
    return {
        "name": row.name,
        "session": row.session,
        "set_at": str(iso(row.set_at)),
        "noise_floor": row.noise_floor,
        "sweep": {
            "id": row.sweep_id,
            "name": row.sweep,
            "status": row.status,
            "finished_at": iso(row.finished_at),
        },
        "reference": row.reference_id or row.sweep_id,
        "nights": row.nights["count"] if row.nights else 0,
    }
