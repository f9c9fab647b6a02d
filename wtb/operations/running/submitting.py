"""Submission of sweeps and single inputs to workers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Annotated

from wtb.analysis.gates import check_gates
from wtb.authoring.breakpoints import stops
from wtb.core.arguments import Number, checked
from wtb.core.errors import BrokerError, InputError
from wtb.core.frozen import frozen
from wtb.core.texts import plural
from wtb.display.views import progress
from wtb.operations.auditing import audited, note
from wtb.operations.context import Context, Publisher
from wtb.operations.running.local import CREATED, announcement, signed
from wtb.operations.running.preparing import check_threads
from wtb.planning.prepare import Prepared
from wtb.planning.sweep_spec import SingleSpec
from wtb.store.database import Database, check_shared
from wtb.store.files.locations import check_files


@frozen
class Submitted:
    """The result of `submit`: what workers were given.

    Attributes:
        sweep: The id of the sweep.
        name: Its name.
        cells: How many cells it has.
        workers: How many workers take from its queues now.
        problem: Why workers could not be reached; it starts when the broker is back. None if they were.
        held: Whether it begins only when somebody resumes it.
        here: Whether this process runs it, and no worker.
    """

    sweep: str
    name: str
    cells: int
    workers: int
    problem: str | None = None
    held: bool = False
    here: bool = False

    @property
    def started(self) -> bool:
        """True if it starts at once."""
        return self.problem is None and (self.here or self.workers > 0) and not self.held


@checked
@audited
def submit(
    context: Context,
    prepared: Prepared,
    *,
    priority: Annotated[int, Number(-1_000, 1_000, whole=True)] | None = None,
    anyway: bool = False,
    breakpoints: Sequence[str] = (),
    until: str | None = None,
    create_only: bool = False,
) -> Submitted:
    """Give a sweep or a single input to the workers, whole or not at all.

    Args:
        context: Where.
        prepared: What is to run.
        priority: Higher priorities run first; None for the sweep file's.
        anyway: Also where no worker is there to run it, or no broker is named.
        breakpoints: Where it pauses: `[before|after] NODE [if CONDITION]`.
        until: A node to pause after.
        create_only: Of a single input: begin only when somebody resumes it.

    Returns:
        Its id, and whether it starts at once.

    Raises:
        InputError: If the database or the broker cannot be used for workers, or a gate or breakpoint is not there.
        BrokerError: If no worker takes from one of its queues, or no broker is named; nothing was submitted.
    """
    database, spec = context.database, prepared.bound.spec
    if create_only and not isinstance(spec, SingleSpec):
        raise InputError("only a single input can be created without beginning it, and this is a sweep")
    if context.local is not None:
        # A process that runs sweeps itself needs neither a broker nor workers.
        return _submit_here(context, prepared, breakpoints, until, create_only)
    check_shared(database)
    publisher = context.publisher  # imports Celery meanwhile
    check_threads(database, spec)
    places = stops(prepared.bound.workflow, breakpoints, until)
    check_gates(database, spec)
    # All is checked before anything is stored: a sweep that was stored cannot be refused any more.
    workers = check_workers(database, prepared.queues, anyway)
    check_files(database, context.workspaces)
    _check_broker(publisher, anyway)
    effective_priority = spec.run.priority if priority is None else priority
    mine = signed(context, prepared)
    hold_reason = CREATED if create_only else None
    sweep_id = mine.submit(
        database,
        context.workspaces,
        queued=True,
        priority=effective_priority,
        breakpoints=places,
        hold_reason=hold_reason,
    )
    note(sweep=sweep_id)
    if create_only:
        context.report(announcement(prepared, sweep_id))
        return Submitted(sweep_id, spec.sweep, prepared.cells, workers, held=True)
    context.report(announcement(prepared, sweep_id, f"; {plural(workers, 'worker')} to run it"))
    return Submitted(sweep_id, spec.sweep, prepared.cells, workers, publisher.publish_pending(database))


def _submit_here(
    context: Context, prepared: Prepared, breakpoints: Sequence[str], until: str | None, create_only: bool
) -> Submitted:
    """Store a sweep or a single input, and let this process run it unless it is only created."""
    assert context.local is not None, "its caller has looked"
    spec = prepared.bound.spec
    places = stops(prepared.bound.workflow, breakpoints, until)
    check_gates(context.database, spec)
    mine = replace(signed(context, prepared), served=True)
    hold_reason = CREATED if create_only else None
    sweep_id = mine.submit(context.database, context.workspaces, breakpoints=places, hold_reason=hold_reason)
    note(sweep=sweep_id)
    context.report(announcement(prepared, sweep_id))
    if not create_only:
        context.local.start(sweep_id)
    return Submitted(sweep_id, spec.sweep, prepared.cells, 0, held=create_only, here=True)


def check_workers(
    database: Database, queues: Collection[str | None], anyway: bool, do: str = "submit", done: str = "submitted"
) -> int:
    """Count the workers that take from some queues.

    Args:
        database: The database of the workers.
        queues: The queues.
        anyway: Allow a queue that has no worker.
        do: What is asked of the workers, for messages.
        done: The same as a participle.

    Raises:
        BrokerError: If one of the queues has no worker, unless `anyway`.
    """
    crew = progress.crew(database)
    missing = progress.without_worker(queues, crew)
    if missing and not anyway:
        names = ", ".join(map(repr, missing))
        commands = ", ".join(f"`{progress.worker_command(queue)}`" for queue in missing)
        raise BrokerError(
            f"no worker takes from the queue{'s'[: len(missing) > 1]} {names}, so nothing was {done}: start one "
            f"with {commands}, or {do} it anyway, and it waits for one",
            argument="anyway",
        )
    return progress.takers(queues, crew)


def _check_broker(publisher: Publisher, anyway: bool) -> None:
    """Wait until the broker answers or cannot be reached.

    Raises:
        BrokerError: If none is named, unless `anyway`.
        InputError: If `check` refuses the broker.
    """
    publisher.check()
    problem = publisher.problem()
    # A broker that is named and away is no reason to refuse: rows wait in the database until it is back.
    if publisher.url is None and problem is not None and not anyway:
        raise BrokerError(f"{problem}; nothing was submitted")
