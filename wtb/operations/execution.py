"""Single executions: one input through a workflow, to be watched, paused, changed and resumed.

It is a sweep of one cell, so everything that holds for sweeps and their executions holds for it, too.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from wtb.authoring.breakpoints import stops
from wtb.authoring.code.resolve import workflow_at
from wtb.authoring.workflow import Workflow
from wtb.core.errors import InputError
from wtb.core.serialization.codec import decode
from wtb.core.tree.checkpoints import shown
from wtb.display.views.sweeps import find_one
from wtb.execution.runtime.sweep_run import SweepRun, new_run
from wtb.operations.control import pause_cancel
from wtb.operations.control.answers import answer
from wtb.operations.control.state_edits import check_reach, checked_changes, coerce_values
from wtb.operations.sweep import import_path_of
from wtb.planning.binding import Bound, bind
from wtb.planning.cases import CaseSource
from wtb.planning.prepare import Prepared, prepare, stored_spec
from wtb.planning.sweep_spec import parse_single
from wtb.store.control import executions as store
from wtb.store.database import Database, database_url
from wtb.store.files.locations import workspaces_of
from wtb.store.read import queries
from wtb.store.runs.leases import runs_now


def prepare_single(
    workflow: Workflow | str,
    input: Any,
    *,
    variants: Mapping[str, str] | None = None,
    from_node: str | None = None,
    source: str = "input",
    written: Mapping[str, str] | None = None,
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
        **keys: Other keys of a sweep file, such as `project`, `limits` and `run`.

    Returns:
        The prepared sweep.

    Raises:
        InputError: With everything that is wrong, one line each.
    """
    path = workflow if isinstance(workflow, str) else import_path_of(workflow)
    data = {"sweep": path, "workflow": path, "cases": [], **keys}
    spec = parse_single({**data, "vary": {node: [name] for node, name in (variants or {}).items()}})
    state = dict(input) if isinstance(input, Mapping) else input
    if written:
        bare = workflow
        if isinstance(bare, str):
            bare = workflow_at(bare, lambda text: spec.located.problem(("workflow",), text))
        state |= coerce_values(bare.schema, {name: state[name] for name in written}, written)
    case = {"id": "input", "input": state}
    prepared = prepare(
        spec,
        workflow=workflow if isinstance(workflow, Workflow) else None,
        source=CaseSource(source, spec.folder, lambda: iter([(source, case)])),
        starts_at=from_node,
    )
    named = prepared.bound.spec.model_copy(update={"sweep": prepared.bound.workflow.name})
    return replace(prepared, bound=replace(prepared.bound, spec=named))


def start(
    workflow: Workflow | str,
    input: Any,
    *,
    variants: Mapping[str, str] | None = None,
    from_node: str | None = None,
    until: str | None = None,
    breakpoints: Sequence[str] = (),
    db: str | Database | None = None,
    mode: str | None = None,
    approval: str | Mapping[str, str] | None = None,
    queued: bool = False,
    **keys: Any,
) -> Run:
    """Start one input through a workflow, and return at once; `Run.wait` waits for its end, a pause or a question.

    Args:
        workflow: A Workflow, or the import path of one.
        input: Values by key of the state, or an object of a dataclass or pydantic model.
        variants: Variant by node, if it is not the default.
        from_node: The node to start at, with the input as the state.
        until: A node to pause after.
        breakpoints: Where else to pause: `NODE` or `NODE if CONDITION`.
        db: A database URL, or an open database; the default is that of the command line.
        mode: `interactive` (people answer in place of models; the default) or `autonomous`.
        approval: When people are asked to let it go on, as in `Workflow(approval=...)`.
        queued: Leave it to workers, instead of running it on threads of this process.
        **keys: Keys of a sweep file, such as `project`, `limits` and `run`.

    Returns:
        The execution.

    Raises:
        InputError: With everything that is wrong, one line each.

    Example:
        >>> from wtb import END, Workflow, start
        >>> wf = Workflow("greeting")
        >>> @wf.node
        ... def greet(state, *, word: str = "Hello"):
        ...     return {"text": f"{word}, {state['name']}!"}
        >>> wf.entry(greet)
        >>> wf.edge(greet, END)
        >>> run = start(wf, {"name": "Ana"}, breakpoints=["greet"], db="sqlite:///:memory:").wait()
        >>> run.status
        'paused'
        >>> run.resume(set={"name": "Bo"}).wait().state["text"]
        'Hello, Bo!'
    """
    options = {name: value for name, value in (("mode", mode), ("approval", approval)) if value is not None}
    keys["run"] = {**keys.get("run", {}), **options}
    prepared = prepare_single(workflow, input, variants=variants, from_node=from_node, **keys)
    places = stops(prepared.bound.workflow, breakpoints, until)
    database = db if isinstance(db, Database) else Database(database_url(db))
    database.prepare()
    workspaces = workspaces_of(database)
    sweep_id = prepared.submit(database, workspaces, queued=queued, breakpoints=places)
    run = Run(database, sweep_id, workflow if isinstance(workflow, Workflow) else None)
    if not queued:
        run.go(new_run(database, sweep_id, prepared.bound, workspaces))
    return run


class Run:
    """A single execution, read from its database each time. `start` and `find_run` return it.

    Attributes:
        database: The database that it is in.
        id: Its id, which commands such as `wtb status` take.

    Example:
        >>> from wtb import Workflow, start
        >>> wf = Workflow("greeting")
        >>> wf.entry(wf.node(lambda state: {"text": f"Hello, {state['name']}!"}, name="greet"))
        >>> run = start(wf, {"name": "Ana"}, db="sqlite:///:memory:")
        >>> run.wait().status
        'completed'
        >>> run.state["text"]
        'Hello, Ana!'
    """

    def __init__(self, database: Database, sweep_id: str, workflow: Workflow | None = None) -> None:
        self.database = database
        self.id = sweep_id
        self._workflow = workflow
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def row(self) -> dict[str, Any]:
        """Its row in the database."""
        return find_one(self.database, self.id)

    @property
    def execution(self) -> str:
        """The id of the execution; of a retry it is another one."""
        return str(self.row["id"])

    @property
    def status(self) -> str:
        """pending, running, waiting, paused, completed, failed or cancelled."""
        return str(self.row["status"])

    @property
    def reason(self) -> str | None:
        """Why it is paused, waits or was cancelled."""
        reason: str | None = self.row["reason"]
        return reason

    @property
    def state(self) -> dict[str, Any]:
        """The state at its head."""
        head = self.row["head_id"]
        if head is None:
            return {}
        state = shown(queries.checkpoint_states(self.database, [head])[head])
        stored = queries.load_values(self.database, state.values())
        return {name: decode(stored[key].data) for name, key in state.items()}

    @property
    def history(self) -> dict[str, Any]:
        """Its checkpoints, and where nodes begin and end, as `wtb history --format json` prints them."""
        from wtb.display.views.executions import history_document

        return history_document(self.database, self.row)

    def go(self, run: SweepRun) -> None:
        """Run it on threads of this process until it ends, pauses or waits.

        Args:
            run: The run of its sweep.

        Raises:
            WTBError: If it cannot begin.
        """
        run.start()
        self._error = None
        self._thread = threading.Thread(target=self._follow, args=(run,), name="wtb-single", daemon=True)
        self._thread.start()

    def _follow(self, run: SweepRun) -> None:
        try:
            while not run.wait(0.1):
                pass
            run.finish()
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            self._error = error

    def wait(self, timeout: float | None = None) -> Run:
        """Wait until this process does no more for it: it has ended, paused or asked.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            This execution.

        Raises:
            WTBError: The error that ended the run, such as a database out of reach; not the failure of a node.
        """
        if self._thread is not None:
            self._thread.join(timeout)
        if self._error is not None:
            raise self._error
        return self

    def pause(self, why: str | None = None, *, at_once: bool = False) -> Run:
        """Pause it before its next step, or at once.

        Args:
            why: A reason for people.
            at_once: End the node that runs now; it runs again on resume.

        Returns:
            This execution.

        Raises:
            ConflictError: If it cannot be paused, for example since it has ended.
        """
        pause_cancel.pause(self.database, self.execution, by=pause_cancel.user(), reason=why, at_once=at_once)
        return self

    def resume(self, set: Mapping[str, Any] | None = None) -> Run:
        """Resume it, with other values for keys of its state if given.

        Args:
            set: Values by key.

        Returns:
            This execution.

        Raises:
            ConflictError: If it is not paused.
            InputError: For a key that the state does not have, or a value of another type.
        """
        bound = self._bound()
        changes = checked_changes(bound, set or {})
        check_reach(self.database, bound, self.row["head_id"], changes)
        store.resume(self.database, self.execution, by=pause_cancel.user(), changes=changes)
        return self._go_on()

    def retry(self) -> Run:
        """Try again what failed, from its last good checkpoint.

        Returns:
            This execution.

        Raises:
            ConflictError: If it has not failed.
        """
        pause_cancel.retry(self.database, self.row)
        return self._go_on()

    def answer(
        self,
        action: str = "approve",
        *,
        choice: str | None = None,
        feedback: str | None = None,
        value: Any = ...,
        set: Mapping[str, Any] | None = None,
    ) -> Run:
        """Answer the question that it waits for, the oldest first.

        Args:
            action: `approve`, `reject` or `modify`.
            choice: One of the question's options.
            feedback: Text for the node.
            value: Any value that can be stored; the node reads it as `given`.
            set: With `modify`: other values for keys of the state.

        Returns:
            This execution.

        Raises:
            ConflictError: If it waits for nothing.
            InputError: If the answer does not fit the question.
        """
        asked = store.questions_of(self.database, self.execution)
        if not asked:
            raise store.impossible(self.row, "answered: it asks nothing")
        answer(
            self.database,
            asked[0]["id"],
            action,
            choice=choice,
            feedback=feedback,
            value=value,
            set=set or {},
            bound=self._bound(),
            by=pause_cancel.user(),
        )
        return self._go_on()

    def _go_on(self) -> Run:
        """Run what is pending, unless another process does."""
        if self._thread is not None:
            self._thread.join()
        sweep = queries.find_sweep(self.database, self.id)
        if not runs_now(self.database, sweep) and self.status == "pending":
            self.go(SweepRun(self.database, sweep, self._bound(), workspaces=workspaces_of(self.database)))
        return self

    def _bound(self) -> Bound:
        return bind(stored_spec(queries.find_sweep(self.database, self.id)), self._workflow)

    def cancel(self, why: str | None = None) -> Run:
        """End it for good.

        Args:
            why: A reason for people.

        Returns:
            This execution.

        Raises:
            ConflictError: If it has ended.
        """
        by = pause_cancel.user()
        store.cancel(self.database, self.execution, reason=pause_cancel.because(by, why), by=by)
        return self

    def rollback(self, to: str, why: str | None = None) -> dict[str, Any]:
        """Take it back to a checkpoint, and pause it there.

        Args:
            to: A checkpoint's id, or a node: where it left that one.
            why: A reason for people.

        Returns:
            What the rollback did, as `wtb rollback --format json` prints it.

        Raises:
            ConflictError: If it cannot be rolled back now.
            InputError: If there is no such checkpoint.
        """
        from wtb.operations.control.rollback import rollback

        return rollback(self.database, self.row, to, bound=self._bound(), by=pause_cancel.user(), reason=why)

    def fork(
        self,
        at: str | None = None,
        *,
        set: Mapping[str, Any] | None = None,
        variants: Mapping[str, str] | None = None,
        why: str | None = None,
    ) -> str:
        """Add an execution that goes on beside it from a checkpoint, paused; `wtb resume` runs it.

        Args:
            at: A checkpoint's id, or a node; by default its head.
            set: Other values for keys of the state, from there on.
            variants: Variant by node, from there on.
            why: A reason for people.

        Returns:
            The id of the new execution.

        Raises:
            InputError: If there is no such checkpoint, key or variant.
        """
        from wtb.operations.control.rollback import fork

        return fork(
            self.database,
            self.execution,
            bound=self._bound(),
            at=at,
            set=set,
            variants=variants,
            by=pause_cancel.user(),
            reason=why,
            paused=True,
        )

    def _repr_html_(self) -> str:
        """How it stands, its steps and its state, for notebooks."""
        from wtb.display.notebook import execution
        from wtb.display.views.executions import execution_document

        return execution(execution_document(self.database, self.row))

    def __repr__(self) -> str:
        return f"<execution {self.id}: {self.status}>"


def find_run(id: str, *, db: str | Database | None = None) -> Run:
    """Find a single execution.

    Args:
        id: What was printed when it started, or the beginning of it.
        db: A database URL, or an open database; the default is that of the command line.

    Returns:
        The execution.

    Raises:
        InputError: If there is none, or it is a sweep.

    Example:
        >>> from wtb import Workflow, find_run, start
        >>> wf = Workflow("greeting")
        >>> wf.entry(wf.node(lambda state: {"text": "Hello"}, name="greet"))
        >>> run = start(wf, {}, db="sqlite:///:memory:").wait()
        >>> find_run(run.id, db=run.database).status
        'completed'
    """
    database = db if isinstance(db, Database) else Database(database_url(db))
    database.prepare()
    row = queries.find_sweep(database, id)
    if row["kind"] != "single":
        raise InputError(f"{id!r} is a sweep and no single execution")
    return Run(database, row["id"])
