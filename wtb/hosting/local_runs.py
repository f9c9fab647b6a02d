"""Runs of a server on its own machine: each on threads of the server, its nodes in node processes.

The server imports no user code. The state of a run is in the database, so that the next server continues what this one
leaves: a run that is stopped with the server is paused, and one whose server died is reclaimed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from wtb.authoring.code.described import DescribedWorkflow, evaluator_function_of, workflow_of
from wtb.core.documents.workflows import PublicationKind
from wtb.core.errors import ConflictError, InputError, NotFound, WTBError, did_you_mean
from wtb.core.stop import PROCESS_DIED
from wtb.core.texts import plural
from wtb.core.tree.stored_spec import Limits
from wtb.execution.runtime.code_drift import accept_code
from wtb.execution.runtime.sweep_run import ForkRun, SweepRun
from wtb.hosting.registered_code import RegisteredCode
from wtb.operations.context import Context
from wtb.operations.running.local import follow
from wtb.operations.running.preparing import described_apart
from wtb.store.control import executions
from wtb.store.publications import Publication
from wtb.store.read import queries
from wtb.store.runs import leases, maintenance
from wtb.store.tables.sweeps import PublicationRow, SweepRow

STOPPED = "the server that ran it was stopped"  # why a run is paused that the next server continues
MOST_AT_ONCE = 8  # runs; others wait for one of them to end
_FOLDER = "server"  # of node processes that describe code
_LOOK_S = 0.1

_log = logging.getLogger("wtb")


class LocalCode:
    """Registered code of this machine as it is now: each access describes changed code again."""

    def __init__(self, context: Context) -> None:
        """Make it.

        Args:
            context: The context whose workspaces node processes use.
        """
        self._registered = RegisteredCode(context.workspaces, _FOLDER)
        self._looking = threading.Lock()

    def publications(self) -> Sequence[Publication]:
        """Return publications of the registered code. Raises WTBError if it cannot be read."""
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
        publications = [publication for publication in self.publications() if publication.kind == kind]
        named = [publication for publication in publications if publication.name == name] or [
            publication for publication in publications if publication.path == name
        ]
        if not named:
            near = did_you_mean(name, [publication.name for publication in publications])
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
        only: The execution, if no other of the sweep should run.
        limits: Other limits from now on.
        rerun: Whether it was requested again meanwhile: executions that became pending may have missed the run.
    """

    sweep_id: str
    fork: str | None = None
    only: str | None = None
    limits: Limits | None = None
    rerun: bool = False
    run: SweepRun | None = None
    thread: threading.Thread | None = field(default=None, repr=False)


class ServerRuns:
    """The runs of a server. As a context manager, it begins with runs that an earlier server left.

    Args:
        context: The context, for all projects.
        limit: The maximum number of runs at a time.
    """

    def __init__(self, context: Context, limit: int = MOST_AT_ONCE) -> None:
        self._context = context
        self.code = LocalCode(context)
        self._room = threading.Semaphore(limit)
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
        """Return whether a server has left work of a sweep that would have continued by itself."""
        database = self._context.database
        if row.status == "paused" and row.reason not in (STOPPED, PROCESS_DIED):
            # A sweep at a standstill waits for an answer, which may have come since. Other pauses were made by people.
            if not executions.is_standstill(row.reason):
                return False
        elif row.status == "running" and not leases.runs_now(database, row):
            return True
        return maintenance.has_pending(database, row.id) and not leases.runs_now(database, row)

    def __exit__(self, *_: object) -> None:
        self.close()

    def publications(self) -> list[PublicationRow]:
        """Return registered code of this machine in the form in which workers publish it."""
        by, at = "this server", time.time()
        publications = sorted(self.code.publications(), key=lambda publication: (publication.kind, publication.name))
        return [
            PublicationRow(
                **asdict(publication),
                published_at=None if publication.description is None else at,
                published_by=None if publication.description is None else by,
                failed_at=None if publication.error is None else at,
                failed_by=None if publication.error is None else by,
            )
            for publication in publications
        ]

    def has(self, sweep_id: str) -> bool:
        """Return whether this process runs a sweep, or will run it."""
        with self._lock:
            return any(sweep == sweep_id for sweep, _ in self._jobs)

    def start(self, sweep_id: str, *, execution: str | None = None, limits: Limits | None = None) -> None:
        """Run pending executions of a sweep as soon as possible, unless another process runs them.

        Args:
            sweep_id: The sweep.
            execution: Run only this one, and its forks.
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
                # The next run serves both requests, so it must not be limited to one execution.
                job.rerun, job.only = True, None
                return
            job = self._jobs[key] = _Job(sweep_id, key[1], None if is_fork else execution, limits)
        job.thread = threading.Thread(target=self._work, args=(key, job), name=f"wtb-run-{sweep_id}", daemon=True)
        job.thread.start()

    def close(self) -> None:
        """Stop all runs: running nodes have their grace period, and the next server continues."""
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
        """Run a job, and again if it was requested meanwhile."""
        # In short steps, so that a waiting thread notices when the server closes.
        while not self._room.acquire(timeout=_LOOK_S):
            if self._closing.is_set():
                return
        try:
            is_left = True
            while is_left and not self._closing.is_set():
                job.rerun = False
                self._run(job)
                with self._lock:
                    # Under the lock, so that a request comes either before this and counts, or finds no job and makes a
                    # new one.
                    is_left = job.rerun and maintenance.has_pending(self._context.database, job.sweep_id)
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
        """Run pending executions. If they cannot run, pause the sweep with the reason."""
        context = self._context
        try:
            row = queries.find_sweep(context.database, job.sweep_id)
            run, grace = self._bind_run(job, row)
        except NotFound:  # it was deleted
            return
        except WTBError as error:
            self._hold_up(job, error)
            return
        with self._lock:
            # `close` may have asked all jobs to stop before this run was there.
            job.run, job.limits = run, None
            if self._closing.is_set():
                run.stop.request(STOPPED)
        try:
            follow(context, run, grace, signals=False)
        except WTBError as error:
            _log.warning("%s: %s", job.sweep_id, error)
        finally:
            job.run = None

    def _bind_run(self, job: _Job, row: SweepRow) -> tuple[SweepRun, float]:
        """Bind the present code, and reclaim the sweep.

        Returns:
            The run, and the grace period of its nodes in seconds.

        Raises:
            WTBError: If the code has changed or cannot be imported, or another process runs the sweep.
        """
        context = self._context
        bound = described_apart(context, row, _FOLDER)
        if job.fork is not None:
            return ForkRun(context.database, job.fork, row, bound, context.workspaces), bound.spec.run.grace
        # Nothing of a pending sweep has run, so a change of its code makes no cells incomparable.
        accept_code(context.database, row, bound, allow=row.status == "pending")
        workspaces, only = context.workspaces, job.only
        run = SweepRun(context.database, row, bound, workspaces=workspaces, limits=job.limits, only=only)
        return run, bound.spec.run.grace

    def _hold_up(self, job: _Job, error: WTBError) -> None:
        """Pause a job that cannot run, unless another process runs it."""
        database = self._context.database
        row = queries.find_sweep(database, job.sweep_id)
        if isinstance(error, ConflictError) and leases.runs_now(database, row):
            return
        _log.warning("%s cannot run: %s", job.sweep_id, error)
        if job.fork is None:
            leases.pause(database, job.sweep_id, str(error), by="wtb")
        execution_id = job.fork or (queries.single_execution(database, row.id).id if row.kind == "single" else None)
        if execution_id is not None and queries.find_execution(database, execution_id).status == "pending":
            executions.pause(database, execution_id, reason=str(error), by="wtb")
