"""Executions as live objects, which can be watched, paused, changed, rolled back and forked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self, cast

from wtb.authoring.workflow import Workflow
from wtb.core.documents.executions import ExecutionDocument
from wtb.core.documents.lineage import DiffDocument, FileChangesDocument
from wtb.core.serialization.codec import decode
from wtb.core.tree.checkpoints import visible_state
from wtb.core.tree.history import ExecutionHistory
from wtb.core.tree.stored_spec import Limits
from wtb.core.values import State
from wtb.display.notebook import execution as notebook_view
from wtb.execution.runtime.sweep_run import Ended, SweepRun
from wtb.features.archive.exporter import export_execution, read_archive
from wtb.handles.records import ExecutionRecord, ProgressCallback, execution_record, reporter
from wtb.handles.target import TargetHandle
from wtb.operations.context import Backend, Context
from wtb.operations.control.answers import answer
from wtb.operations.control.continuation import BackgroundRun
from wtb.operations.control.forks import fork
from wtb.operations.control.naming import name_checkpoint
from wtb.operations.control.questions import find_questions
from wtb.operations.control.rollback import RolledBack, rollback, undo_rollback
from wtb.operations.inspection import executions, files
from wtb.operations.inspection.executions import diff
from wtb.operations.inspection.sweeps import Located, locate_execution, show
from wtb.operations.methods import documented_by, target_method
from wtb.operations.results.side_by_side import read_value
from wtb.operations.running.added_rows import AddedRow, add_row
from wtb.operations.running.continuing import Continued, resume, retry
from wtb.operations.running.local import Code, Ran
from wtb.operations.running.waiting import Look
from wtb.planning.binding import Bound, bind
from wtb.planning.prepare import stored_spec
from wtb.planning.sweep_spec import Variant
from wtb.store.control.executions import impossible
from wtb.store.read import queries
from wtb.store.read.details import find_one


def text_of(blocks: Iterator[bytes]) -> str:
    """Return the text of a value.

    Returns:
        The text, or JSON of what is no text.
    """
    return b"".join(blocks).decode()


def joined(blocks: Iterator[bytes]) -> bytes:
    """Return a content as a whole.

    Returns:
        Its bytes.
    """
    return b"".join(blocks)


class ExecutionMethods:
    """Operations on executions."""

    history_details = target_method(executions.history)
    name_checkpoint = target_method(name_checkpoint)
    list_files = target_method(files.list_files)
    read_file = target_method(files.read_file, joined)
    export_files = target_method(files.export_files)
    export = target_method(export_execution)
    read_archive = target_method(read_archive, joined)


class ExecutionHandle(ExecutionMethods, TargetHandle):
    """An execution, read from its database or server each time. `wtb.start` and `Bench.execution` return it.

    Attributes:
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

    def __init__(self, backend: Backend, id: str, workflow: Workflow | None = None) -> None:
        super().__init__(backend, id, workflow)
        self._background: BackgroundRun | None = None

    @property
    def _located(self) -> Located:
        return self.backend.call(locate_execution, self.id)

    @property
    def _execution_id(self) -> str:
        """Id of the execution itself; for a single one that was retried, of the execution that has its cell."""
        return str(self._located.execution)

    @property
    def record(self) -> ExecutionRecord:
        """Its present record; for a single execution that was retried, that of the execution that has its cell."""
        return execution_record(self._document["execution"])

    @property
    def _document(self) -> ExecutionDocument:
        return cast(ExecutionDocument, self.backend.call(show, self._execution_id))

    @property
    def status(self) -> str:
        """Its status: pending, running, waiting, paused, completed, failed or cancelled."""
        return self._located.status

    @property
    def reason(self) -> str | None:
        """Reason why it is paused, waits or was cancelled."""
        return self._located.reason

    @property
    def state(self) -> dict[str, Any]:
        """State at its head; from a server as JSON."""
        if not isinstance(self.backend, Context):
            return self._document["state"]
        head = find_one(self.database, self.id).head_id
        if head is None:
            return {}
        return self._decoded(queries.checkpoint_states(self.database, [head])[head])

    def state_at(self, target: str, visit: int | None = None) -> dict[str, Any]:
        """Return the state at a checkpoint of its history, or after a visit of a node.

        Args:
            target: A checkpoint's id or the beginning of it, its name, or a node.
            visit: For a node: which visit, from 0; by default its last completed one.

        Returns:
            The state by key.

        Raises:
            InputError: If there is no such checkpoint, or if the node has not run, or not as often.

        Example:
            >>> from wtb import Workflow, start
            >>> wf = Workflow("counting")
            >>> count = wf.node(lambda state: {"n": state["n"] + 1}, name="count")
            >>> wf.entry(count)
            >>> wf.edge(count, wf.node(lambda state: {"n": state["n"] * 2}, name="double"))
            >>> run = start(wf, {"n": 1}, db="sqlite:///:memory:").wait()
            >>> run.state_at("count"), run.state
            ({'n': 2}, {'n': 4})
        """
        return self._decoded(self.history().at(target, visit).state)

    def _decoded(self, digests: Mapping[str, str]) -> dict[str, Any]:
        """Return a state with its values, without keys of the engine."""
        state = visible_state(digests)
        stored = queries.load_values(self.database, state.values())
        return {name: decode(stored[key].data) for name, key in state.items()}

    def _looks(self) -> Iterator[Look]:
        if (background := self._background) is not None:
            while not background.wait():
                yield Look(background.progress, is_running=True, ended=Ended("running"))
            # Another thread may have started a new run meanwhile; only the one that was waited for is forgotten.
            if self._background is background:
                self._background = None  # it may go on elsewhere now
            background.check()
        yield from super()._looks()

    def _rest(self, seconds: float) -> None:
        if (background := self._background) is not None:
            background.wait(seconds)
        else:
            super()._rest(seconds)

    # Running on

    def run_in_background(self, context: Context, run: SweepRun, grace: float) -> Ran:
        """Run it on threads of this process, until it ends, pauses or waits; `wait` waits for that.

        Args:
            context: Where.
            run: A run of its sweep, not started yet.
            grace: Seconds that running nodes get once it is stopped.

        Returns:
            Its sweep, and that it is running.

        Raises:
            WTBError: If it cannot begin.
        """
        self._background = BackgroundRun(context, run, grace)
        return Ran(queries.find_sweep(context.database, run.sweep_id), Ended("running"))

    def _bound(self) -> Bound | None:
        """Return its code; None for a server, which uses published code."""
        if not isinstance(self.backend, Context):
            return None
        sweep = queries.find_sweep(self.database, find_one(self.database, self.id).sweep_id)
        return bind(stored_spec(sweep), self._workflow)

    def _code(self) -> Code | None:
        """Return its code and its runner, after earlier runs here have ended; None for a server."""
        # A run of this process still has the execution, and a second one would find it claimed.
        if self.status not in ("pending", "running"):
            self.wait()
        bound = self._bound()
        return None if bound is None else Code(bound, self.run_in_background)

    def _continued(self, continued: Continued) -> Self:
        self._warn(continued.problem)
        return self

    @documented_by(resume)
    def resume(
        self, set: State | None = None, *, limits: Limits | None = None, allow_code_change: bool = False
    ) -> Self:
        """Resume it, with other values for keys of its state if given: here in the background, or by its workers.

        Args:
            set: Other values by key of its state.

        Returns:
            This object, at once.
        """
        code = self._code()
        return self._continued(
            self.backend.call(
                resume, self.id, set=set or {}, limits=limits, allow_code_change=allow_code_change, code=code
            )
        )

    @documented_by(retry)
    def retry(self, *, failed_only: bool = False, provider: bool = False, limits: Limits | None = None) -> Self:
        """Run what failed again, from its last good checkpoint: here in the background, or by its workers.

        Returns:
            This object, at once.
        """
        code = self._code()
        return self._continued(
            self.backend.call(retry, self.id, failed_only=failed_only, provider=provider, limits=limits, code=code)
        )

    @documented_by(answer)
    def answer(
        self,
        action: str | None = None,
        *,
        choice: str | None = None,
        feedback: str | None = None,
        value: Any = ...,
        set: State | None = None,
    ) -> Self:
        """Answer the question that it waits for, the oldest first; it continues.

        Returns:
            This object, at once.

        Raises:
            ConflictError: If it asks nothing, or would continue here with code that has changed.
        """
        located = self._located
        questions = self.backend.call(find_questions, str(located.execution)).each
        if not questions and isinstance(self.backend, Context):
            raise impossible(find_one(self.database, self.id), "answered: it asks nothing")
        code = self._code()
        answered = self.backend.call(
            answer,
            questions[0]["id"] if questions else str(located.execution),
            action,
            choice=choice,
            feedback=feedback,
            value=value,
            set=set,
            bound=None if code is None else code.bound,
            run=None if code is None else code.run,
        )
        if answered.continuation is not None:
            self._warn(answered.continuation.problem)
        return self

    # Taking back and forking

    @documented_by(rollback)
    def rollback(self, to: str, reason: str | None = None) -> RolledBack:
        """Take it back to a checkpoint, undo its tools, and pause it there."""
        return self.backend.call(rollback, self._execution_id, to, bound=self._bound(), reason=reason)

    @documented_by(undo_rollback)
    def undo_rollback(self, reason: str | None = None) -> RolledBack:
        """Undo its last rollback: it is at the end of the line that it left again, paused."""
        return self.backend.call(undo_rollback, self._execution_id, bound=self._bound(), reason=reason)

    @documented_by(fork)
    def fork(
        self,
        at: str | None = None,
        *,
        set: State | None = None,
        variants: Mapping[str, Variant] | None = None,
        reason: str | None = None,
        run: bool = False,
    ) -> ExecutionHandle:
        """Add an execution that continues beside it from a checkpoint. It owns no cell, so no matrix changes.

        Args:
            run: Run it, here to its end or by the workers of the sweep; else it is paused, and `resume` runs it.

        Returns:
            The new execution.
        """
        forked = self.backend.call(
            fork, self._execution_id, at=at, set=set, variants=variants, reason=reason, run=run, bound=self._bound()
        )
        self._warn(forked.problem)
        return ExecutionHandle(self.backend, forked.execution, self._workflow)

    @documented_by(add_row)
    def fork_all_cases(
        self,
        at: str | None = None,
        *,
        variants: Mapping[str, Variant] | None = None,
        reason: str | None = None,
        run: bool = True,
        progress: ProgressCallback | None = None,
    ) -> AddedRow:
        """Run the changes of a fork for every case, as another row of its sweep. The row is exploratory.

        Args:
            progress: Called several times a second with how far a run here is.
        """
        return self.backend.call(
            add_row,
            self._execution_id,
            at=at,
            variants=variants,
            reason=reason,
            run=run,
            code=(lambda spec: bind(spec, self._workflow)) if isinstance(self.backend, Context) else None,
            progress=reporter(progress),
        )

    # Looking

    def history(self) -> ExecutionHistory:
        """Return its checkpoints, the visits of its nodes, and where a rollback can lead.

        Returns:
            The history as it is now; `document()` of it is JSON.

        Example:
            >>> from wtb import Workflow, start
            >>> wf = Workflow("counting")
            >>> wf.entry(wf.node(lambda state: {"n": state["n"] + 1}, name="count"))
            >>> history = start(wf, {"n": 1}, db="sqlite:///:memory:").wait().history()
            >>> history.path, history.boundary("count").status, len(history)
            (('count',), 'succeeded', 2)
        """
        return executions.read(
            self.backend.require_database("`history_details` returns what a server sends of it"), self.id
        )

    @documented_by(diff)
    def diff(self, other: str | ExecutionHandle) -> DiffDocument:
        """Compare it with another execution: where they part, their states, paths, files and totals.

        Args:
            other: The other one, or its id or that of a checkpoint.

        Returns:
            The document, as `wtb diff --format json` prints it.
        """
        return self.backend.call(diff, self._execution_id, _id_of(other))

    @documented_by(files.compare_files)
    def compare_files(self, other: str | ExecutionHandle, *, at: str | None = None) -> FileChangesDocument:
        """Return what changes in the files from here to another execution.

        Args:
            other: The other one, or its id or that of a checkpoint.

        Returns:
            The document, as `wtb files --diff --format json` prints it.
        """
        return self.backend.call(files.compare_files, self.id, _id_of(other), at=at)

    @documented_by(read_value)
    def read_value(self, key: str) -> str:
        """Return a value of its state in full.

        Returns:
            The text, or JSON of what is no text.
        """
        return text_of(self.backend.call(read_value, self.id, key=key))

    def _repr_html_(self) -> str:
        """Return its status, steps and state, for notebooks."""
        return notebook_view(self._document)

    def __repr__(self) -> str:
        return f"<execution {self.id}: {self.status}>"


def _id_of(other: str | ExecutionHandle) -> str:
    return other if isinstance(other, str) else other._execution_id
