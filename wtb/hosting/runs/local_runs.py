"""Runs of a server on its own machine: each on threads of the server, its nodes in node processes.

The server imports no user code. What a run needs is in the database, so that the next server continues what this one
leaves: a run that is stopped with the server is paused, and one whose server died is taken over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from wtb.authoring.code.described import DescribedWorkflow, evaluator_function_of, workflow_of
from wtb.core.documents.workflows.publications import PublicationKind
from wtb.core.errors import ConflictError, InputError, NotFound, WTBError, did_you_mean
from wtb.core.stop import PROCESS_DIED
from wtb.core.texts import plural
from wtb.core.tree.stored_spec import Limits
from wtb.execution.runtime.code_drift import accept_code
from wtb.execution.runtime.fork_run import ForkRun
from wtb.execution.runtime.sweep_run import SweepRun
from wtb.hosting.runs.registered_code import RegisteredCode
from wtb.operations.context import Context
from wtb.operations.running.local import follow
from wtb.operations.running.preparing import described_apart
from wtb.store.control import executions
from wtb.store.publications import Publication
from wtb.store.read import queries
from wtb.store.runs import leases, maintenance
from wtb.store.tables.publications import PublicationRow
from wtb.store.tables.sweeps import SweepRow

STOPPED = "the server that ran it was stopped"  # why a run is paused that the next server continues
MOST_AT_ONCE = 8  # runs; others wait for one of them to end
_FOLDER = "server"  # of node processes that describe code
_LOOK_S = 0.1

_log = logging.getLogger("wtb")


class LocalCode:
    """Registered code of this machine as it is now: each question describes again what has changed."""

    def __init__(self, context: Context) -> None:
        """Make it.

        Args:
            context: Where node processes work.
        """
        self._registered = RegisteredCode(context.workspaces, _FOLDER)
        self._looking = threading.Lock()

    def publications(self) -> Sequence[Publication]:
        """Return what is registered now. Raises WTBError if it cannot be read."""
        with self._looking:
            self._registered.look()
            return self._registered.publications

    def workflow(self, name: str, problem: Callable[[str], str]) -> DescribedWorkflow:
        """Return a registered workflow. Raises InputError if there is none, or it cannot be imported."""
        return workflow_of(self._description("workflow", name, problem))

    def load(self, path: str) -> object:
        """Return a registered evaluator. Raises InputError if there is none, or it cannot be imported."""
        return evaluator_function_of(self._description("evaluator", path, str))

    def _description(self, kind: PublicationKind, name: str, problem: Callable[[str], str]) -> Any:
        known = [one for one in self.publications() if one.kind == kind]
        named = [one for one in known if one.name == name] or [one for one in known if one.path == name]
        if not named:
            near = did_you_mean(name, [one.name for one in known])
            where = "[workflows]" if kind == "workflow" else "[publish] evaluators"
            raise InputError(problem(f"no {kind} {name!r} is registered here{near}; add it to {where} of wtb.toml"))
        if named[0].description is None:
            raise InputError(problem(f"{kind} {name!r} cannot be imported: {named[0].error}"))
        return orjson.loads(named[0].description)


@dataclass
class _Job:
    """A sweep, or a fork of it, that this process runs or will run.

    Attributes:
        fork: The execution, if it is a fork, which runs beside its sweep.
        only: The execution, if no other of the sweep is to run.
        limits: Other limits from now on.
        again: It was asked for once more meanwhile: what has become pending since may have come too late for the run.
    """

    sweep_id: str
    fork: str | None = None
    only: str | None = None
    limits: Limits | None = None
    again: bool = False
    run: SweepRun | None = None
    thread: threading.Thread | None = field(default=None, repr=False)


class ServerRuns:
    """What a server runs itself. It is a context manager that begins with what an earlier server left.

    Args:
        context: Where, without walls between projects.
        most: How many runs there may be at a time.
    """

    def __init__(self, context: Context, most: int = MOST_AT_ONCE) -> None:
        self._context = context
        self.code = LocalCode(context)
        self._room = threading.Semaphore(most)
        self._lock = threading.Lock()
        self._jobs: dict[tuple[str, str | None], _Job] = {}
        self._closing = threading.Event()

    def __enter__(self) -> ServerRuns:
        for row in maintenance.left_by_servers(self._context.database):
            if self._was_left(row):
                self._context.report(f"continuing {row.name} ({row.id}), which an earlier server began")
                self.start(row.id)
        return self

    def _was_left(self, row: SweepRow) -> bool:
        """Return whether a server has left something of a sweep that would have continued by itself."""
        database = self._context.database
        if row.status == "paused" and row.reason not in (STOPPED, PROCESS_DIED):
            if not executions.is_standstill(row.reason):  # else its question may have been answered since
                return False
        elif row.status == "running" and not leases.runs_now(database, row):
            return True
        return maintenance.has_pending(database, row.id) and not leases.runs_now(database, row)

    def __exit__(self, *_: object) -> None:
        self.close()

    def publications(self) -> list[PublicationRow]:
        """Return what is registered on this machine as workers would publish it."""
        by, at = "this server", time.time()
        return [
            PublicationRow(
                kind=one.kind,
                name=one.name,
                path=one.path,
                digest=one.digest,
                description=one.description,
                published_at=None if one.description is None else at,
                published_by=None if one.description is None else by,
                error=one.error,
                failed_at=None if one.error is None else at,
                failed_by=None if one.error is None else by,
            )
            for one in sorted(self.code.publications(), key=lambda one: (one.kind, one.name))
        ]

    def has(self, sweep_id: str) -> bool:
        """Return whether this process runs a sweep, or will when it has room."""
        with self._lock:
            return any(sweep == sweep_id for sweep, _ in self._jobs)

    def start(self, sweep_id: str, *, execution: str | None = None, limits: Limits | None = None) -> None:
        """See that pending executions of a sweep run, once this process has room, unless another process runs them.

        Args:
            sweep_id: The sweep.
            execution: Only this one, and what it forks into.
            limits: Other limits from now on, as in a sweep file.
        """
        is_fork = (
            execution is not None and queries.find_execution(self._context.database, execution).choices is not None
        )
        key = sweep_id, execution if is_fork else None
        with self._lock:
            if self._closing.is_set():
                return  # the next server continues it
            job = self._jobs.get(key)
            if job is not None:
                job.again, job.only = True, None
                return
            job = self._jobs[key] = _Job(sweep_id, key[1], None if is_fork else execution, limits)
        job.thread = threading.Thread(target=self._work, args=(key, job), name=f"wtb-run-{sweep_id}", daemon=True)
        job.thread.start()

    def close(self) -> None:
        """Stop all runs: running nodes have their grace, and the next server continues."""
        self._closing.set()
        with self._lock:
            jobs = list(self._jobs.values())
            for job in jobs:
                if job.run is not None:
                    job.run.stop.request(STOPPED)
        if jobs:
            runs = plural(len(jobs), "run")
            self._context.report(f"stopping {runs} when their nodes end; `wtb serve --run` continues them")
        for job in jobs:
            if job.thread is not None:
                job.thread.join()

    def _work(self, key: tuple[str, str | None], job: _Job) -> None:
        """Run a job as often as it was asked for."""
        while not self._room.acquire(timeout=_LOOK_S):
            if self._closing.is_set():
                return
        try:
            is_left = True
            while is_left and not self._closing.is_set():
                job.again = False
                self._run(job)
                with self._lock:
                    is_left = job.again and maintenance.has_pending(self._context.database, job.sweep_id)
                    if not is_left:
                        del self._jobs[key]
        except Exception:  # noqa: BLE001 - the thread ends with it, and nobody else would see it
            _log.exception("the run of %s ended", job.sweep_id)
        finally:
            self._room.release()
            with self._lock:
                if self._jobs.get(key) is job:
                    del self._jobs[key]

    def _run(self, job: _Job) -> None:
        """Run what is pending. What cannot run is paused with the reason."""
        context = self._context
        try:
            row = queries.find_sweep(context.database, job.sweep_id)
            run, grace = self._begun(job, row)
        except NotFound:  # it was deleted
            return
        except WTBError as error:
            self._hold_up(job, error)
            return
        with self._lock:
            job.run, job.limits = run, None
            if self._closing.is_set():
                run.stop.request(STOPPED)
        try:
            follow(context, run, grace, signals=False)
        except WTBError as error:
            _log.warning("%s: %s", job.sweep_id, error)
        finally:
            job.run = None

    def _begun(self, job: _Job, row: SweepRow) -> tuple[SweepRun, float]:
        """Bind the code as it is now, and take the sweep over.

        Returns:
            The run, and how many seconds its nodes get when it is stopped.

        Raises:
            WTBError: If the code has changed or cannot be imported, or another process runs the sweep.
        """
        context = self._context
        bound = described_apart(context, row, _FOLDER)
        if job.fork is not None:
            return ForkRun(context.database, job.fork, row, bound, context.workspaces), bound.spec.run.grace
        accept_code(context.database, row, bound, allow=row.status == "pending")  # nothing of it has run
        workspaces, only = context.workspaces, job.only
        run = SweepRun(context.database, row, bound, workspaces=workspaces, limits=job.limits, only=only)
        return run, bound.spec.run.grace

    def _hold_up(self, job: _Job, error: WTBError) -> None:
        """Pause what cannot run, unless another process runs it."""
        database = self._context.database
        row = queries.find_sweep(database, job.sweep_id)
        if isinstance(error, ConflictError) and leases.runs_now(database, row):
            return
        _log.warning("%s cannot run: %s", job.sweep_id, error)
        if job.fork is None:
            leases.pause(database, job.sweep_id, str(error), by="wtb")
        held = job.fork or (queries.single_execution(database, row.id).id if row.kind == "single" else None)
        if held is not None and queries.find_execution(database, held).status == "pending":
            executions.pause(database, held, reason=str(error), by="wtb")
