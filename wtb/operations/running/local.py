"""Runs in this process: of a prepared sweep, or of what is pending of a stored one."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from types import FrameType
from typing import Protocol

from wtb.analysis.gates import check_gates
from wtb.analysis.sweep_ends import freeze
from wtb.authoring.breakpoints import Breakpoint, stops
from wtb.core.arguments import checked
from wtb.core.errors import InputError, StoreError, WTBError
from wtb.core.frozen import frozen
from wtb.core.status import ENDED_SWEEPS
from wtb.core.stop import INTERRUPTED
from wtb.core.tree.stored_spec import Limits
from wtb.execution.runtime.sweep_run import Ended, ForkRun, SweepRun, new_run
from wtb.execution.state import Progress
from wtb.operations.auditing import audited, note
from wtb.operations.context import Context
from wtb.operations.policy_rules import find_policies
from wtb.planning.binding import Bound
from wtb.planning.prepare import Prepared
from wtb.planning.sweep_spec import SingleSpec
from wtb.store.read import queries
from wtb.store.tables.sweeps import SweepRow


def signed(context: Context, prepared: Prepared) -> Prepared:
    """Return a sweep signed by who submits it, with the policies that its nodes are held to.

    Args:
        context: The database, and who submits the sweep.
        prepared: The sweep.

    Raises:
        InputError: If the policies of this process are wrong.
    """
    policies = find_policies()
    for_nodes = None if policies is None else policies.recorded(context.principal)
    return replace(prepared, submitted_by=context.by, policies=for_nodes)


ShowProgress = Callable[[Progress], None]

CREATED = "created, and not begun"  # why an execution is paused that nobody has resumed yet
LOOK_S = 0.1  # between two looks at a run


@frozen
class Ran:
    """A sweep that ran here to its end or pause.

    Attributes:
        sweep: Its row now.
        ended: How the run ended.
    """

    sweep: SweepRow
    ended: Ended

    @property
    def interrupted(self) -> bool:
        """True if somebody stopped the run by Ctrl-C or a signal."""
        return self.ended.status == "paused" and self.ended.reason == INTERRUPTED


class RunHere(Protocol):
    """A function that runs in this process what was made ready: to its end as `follow` does, or in the background."""

    def __call__(self, context: Context, run: SweepRun, grace: float) -> Ran:
        """Run it. Returns how it ended, or that it is running."""


@frozen
class Code:
    """The code of a sweep and the function that runs it here, if these are not the usual ones.

    Attributes:
        bound: The code.
        run: Runs it.
    """

    bound: Bound
    run: RunHere


@checked
@audited
def begin(
    context: Context,
    prepared: Prepared,
    *,
    breakpoints: Sequence[str] = (),
    until: str | None = None,
    pdb: bool = False,
) -> SweepRun:
    """Submit a sweep or a single input for this process to run. `follow` runs it.

    Args:
        context: Where.
        prepared: What is to run.
        breakpoints: Where it pauses: `[before|after] NODE [if CONDITION]`.
        until: A node to pause after.
        pdb: Run one cell on this thread, under the debugger.

    Raises:
        InputError: If a gate, breakpoint or session is not there.
        ConflictError: If the session's quota allows no node run.
    """
    # Options are checked before the sweep is stored: afterwards it would be there, and have to be cancelled.
    places = check_options(prepared, breakpoints=breakpoints, until=until, pdb=pdb)
    check_gates(context.database, prepared.bound.spec)
    mine = signed(context, prepared)
    sweep_id = mine.submit(context.database, context.workspaces, breakpoints=places)
    note(sweep=sweep_id)
    run = new_run(context.database, sweep_id, prepared.bound, context.workspaces, pdb=pdb)
    context.report(announcement(prepared, sweep_id))
    return run


@checked
@audited
def create(context: Context, prepared: Prepared, *, breakpoints: Sequence[str] = (), until: str | None = None) -> str:
    """Store a single execution that begins when somebody resumes it.

    Args:
        context: Where.
        prepared: What is to run.
        breakpoints: Where it pauses: `[before|after] NODE [if CONDITION]`.
        until: A node to pause after.

    Returns:
        Its id.

    Raises:
        InputError: If a breakpoint or session is not there.
        ConflictError: If the session's quota allows no node run.
    """
    places = check_options(prepared, breakpoints=breakpoints, until=until)
    mine = signed(context, prepared)
    sweep_id = mine.submit(context.database, context.workspaces, breakpoints=places, hold_reason=CREATED)
    note(sweep=sweep_id)
    context.report(announcement(prepared, sweep_id))
    return sweep_id


@checked
def check_options(
    prepared: Prepared, *, breakpoints: Sequence[str] = (), until: str | None = None, pdb: bool = False
) -> list[Breakpoint]:
    """Check the options of `run` that need no database. Returns the breakpoints. Raises InputError."""
    if pdb and prepared.cells != 1:
        raise InputError(
            f"the debugger runs one cell, but {prepared.cells:,} are chosen; name it by its case and combination"
        )
    return stops(prepared.bound.workflow, breakpoints, until)


def announcement(prepared: Prepared, sweep_id: str, workers: str = "") -> str:
    """Return the line about what was submitted, with one more line for each note about its cases.

    Args:
        prepared: What was submitted.
        sweep_id: Its id.
        workers: The end of the first line, if workers run it.
    """
    spec = prepared.bound.spec
    if isinstance(spec, SingleSpec):
        return f"execution {sweep_id} of {prepared.bound.workflow.name}{workers}"
    part = ""
    if spec.holdout is not None:
        final = prepared.only.final
        part = ", of the cases kept for the end" if final else "; the cases kept for the end are not among them"
    return "\n".join([f"sweep {spec.sweep} ({sweep_id}): {prepared.cells:,} cells{part}{workers}", *prepared.notes])


@checked
@audited
def run(
    context: Context,
    prepared: Prepared,
    *,
    breakpoints: Sequence[str] = (),
    until: str | None = None,
    pdb: bool = False,
    progress: ShowProgress | None = None,
) -> Ran:
    """Run a sweep or a single input on this machine, to its end or pause.

    Args:
        context: Where.
        prepared: What is to run.
        breakpoints: Where it pauses: `[before|after] NODE [if CONDITION]`.
        until: A node to pause after.
        pdb: Run one cell on this thread, under the debugger.
        progress: Called several times a second with how far it is.

    Returns:
        The sweep, and how its run ended.

    Raises:
        InputError: If a gate, breakpoint or session is not there.
        WTBError: The error that ended the run, such as a database out of reach; not the failure of a node.
    """
    started = begin(context, prepared, breakpoints=breakpoints, until=until, pdb=pdb)
    return follow(context, started, prepared.bound.spec.run.grace, progress=progress, pdb=pdb)


def run_stored(
    context: Context,
    sweep: SweepRow,
    bound: Bound,
    *,
    limits: Limits | None = None,
    only: str | None = None,
    progress: ShowProgress | None = None,
) -> Ran:
    """Run what is pending of a stored sweep.

    Args:
        context: Where.
        sweep: Its row.
        bound: Its code.
        limits: Other limits from now on, as in a sweep file.
        only: The id of an execution: just that one, and what it forks into.
        progress: Called several times a second with how far it is.

    Returns:
        The sweep, and how its run ended.

    Raises:
        ConflictError: If another process runs it.
        WTBError: The error that ended the run.
    """
    run = SweepRun(context.database, sweep, bound, workspaces=context.workspaces, limits=limits, only=only)
    return follow(context, run, bound.spec.run.grace, progress=progress)


def run_fork(context: Context, sweep: SweepRow, execution_id: str, bound: Bound, *, run: RunHere | None = None) -> Ran:
    """Run a pending execution that owns no cell; its sweep stays as it is.

    Args:
        context: Where.
        sweep: The row of its sweep.
        execution_id: Its id.
        bound: The sweep's code.
        run: Runs it; `follow` if None.

    Returns:
        The sweep, and how the execution ended.

    Raises:
        WTBError: The error that ended the run.
    """
    fork = ForkRun(context.database, execution_id, sweep, bound, context.workspaces)
    return (run or follow)(context, fork, bound.spec.run.grace)


def follow(
    context: Context,
    run: SweepRun,
    grace: float,
    *,
    progress: ShowProgress | None = None,
    pdb: bool = False,
    signals: bool = True,
) -> Ran:
    """Start a run and wait for its end.

    Args:
        context: Where.
        run: Not started yet.
        grace: Seconds that running nodes get once it is stopped.
        progress: Called several times a second with how far it is.
        pdb: Run it on this thread.
        signals: On the main thread: the first SIGINT or SIGTERM stops new work, a second one stops at once.

    Returns:
        The sweep, and how its run ended.

    Raises:
        WTBError: The error that ended the run.
    """
    with _warned(context, run):
        ended = run.run_here() if pdb else _start_and_wait(context, run, grace, progress or (lambda _: None), signals)
    sweep = queries.find_sweep(context.database, run.sweep_id)
    if ended.status in ENDED_SWEEPS and sweep.kind == "sweep":
        with suppress(StoreError):  # all results are committed, and whoever reads the matrix builds it
            freeze(context.database, sweep.id)
    return Ran(sweep, ended)


def follow_started(context: Context, run: SweepRun, grace: float) -> Ended:
    """Wait for the end of a run that was started, without handling signals. Raises WTBError as `follow` does."""
    with _warned(context, run):
        return _wait(context, run, grace, lambda _: None, [])


@contextmanager
def _warned(context: Context, run: SweepRun) -> Iterator[None]:
    """Warn of an error that ends a run, with the command that continues it."""
    try:
        yield
    except WTBError:
        name = run.execution_id if isinstance(run, ForkRun) else run.sweep_id
        context.warn(f"the run ended with an error; fix it, then continue with: wtb resume {name}")
        raise


def _start_and_wait(context: Context, run: SweepRun, grace: float, show: ShowProgress, signals: bool) -> Ended:
    interrupts: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        if len(interrupts) == 1:
            run.stop.request(INTERRUPTED)
            context.warn(f"\nstopping: running nodes have {grace:g} s to finish (Ctrl-C again to stop at once)")

    with _handled(interrupt) if signals else nullcontext():
        run.start()
        return _wait(context, run, grace, show, interrupts)


def _wait(context: Context, run: SweepRun, grace: float, show: ShowProgress, interrupts: Sequence[int]) -> Ended:
    """Wait for the end of a run. Nodes have their grace after the first interrupt, and none after the second."""

    def look() -> None:
        show(run.progress)
        for text in run.progress.take_notices():
            context.warn(text)

    deadline: float | None = None
    try:
        while not run.wait(LOOK_S):
            look()
            if interrupts and deadline is None:
                deadline = time.monotonic() + grace
            if len(interrupts) > 1 or (deadline is not None and time.monotonic() > deadline):
                break
    except BaseException:  # of whoever shows progress: nothing stays behind that nobody follows
        run.stop.request(INTERRUPTED)
        run.wait(grace)
        run.finish()
        raise
    ended = run.finish()
    look()
    return ended


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let a handler get the signals that end a program, if this is the main thread: only that one can handle them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
