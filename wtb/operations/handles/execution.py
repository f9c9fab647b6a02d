"""Executions as live objects: to be watched, paused, changed, taken back and forked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from wtb.authoring.workflow import Workflow
from wtb.core.arguments.checking import as_path
from wtb.core.documents.administration import ExportedDocument
from wtb.core.documents.lineage import DiffDocument, FileChangesDocument, FilesDocument
from wtb.core.serialization.codec import decode
from wtb.core.tree.checkpoints import shown
from wtb.core.tree.history import ExecutionHistory
from wtb.core.tree.stored_spec import Limits
from wtb.display.notebook import execution as notebook_view
from wtb.display.views.executions import execution_document
from wtb.execution.runtime.sweep_run import Ended, SweepRun
from wtb.operations.archive.exporter import export_execution, read_archive
from wtb.operations.context import Context
from wtb.operations.control.answers import answer
from wtb.operations.control.forks import fork
from wtb.operations.control.naming import CheckpointName, name_checkpoint
from wtb.operations.control.rollback import RolledBack, rollback, undo_rollback
from wtb.operations.growth.added_rows import AddedRow, add_row
from wtb.operations.handles.documentation import documented_by
from wtb.operations.handles.records import ExecutionRecord, ProgressCallback, execution_record, reporter
from wtb.operations.handles.target import TargetHandle
from wtb.operations.inspection import files, history
from wtb.operations.inspection.executions import diff
from wtb.operations.outputs.side_by_side import read_value
from wtb.operations.running.background import BackgroundRun
from wtb.operations.running.continuing import Continued, resume, retry
from wtb.operations.running.local import Code, Ran
from wtb.operations.running.waiting import Look
from wtb.planning.binding import Bound, bind
from wtb.planning.factors.parameter_files import read_level_files
from wtb.planning.prepare import stored_spec
from wtb.planning.sweep_spec import Variant
from wtb.store.control import executions as store
from wtb.store.read import queries
from wtb.store.read.references import find_one
from wtb.store.tables.executions import ExecutionRow


class ExecutionHandle(TargetHandle):
    """An execution, read from its database each time. `wtb.start` and `Bench.execution` return it.

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

    def __init__(self, context: Context, id: str, workflow: Workflow | None = None) -> None:
        super().__init__(context, id, workflow)
        self._background: BackgroundRun | None = None

    @property
    def _row(self) -> ExecutionRow:
        return find_one(self.database, self.id)

    @property
    def record(self) -> ExecutionRecord:
        """What it is now; of a single execution that was retried, the execution that has its cell."""
        return execution_record(self.database, self._row)

    @property
    def status(self) -> str:
        """Its status: pending, running, waiting, paused, completed, failed or cancelled."""
        return str(self._row.status)

    @property
    def reason(self) -> str | None:
        """Why it is paused, waits or was cancelled."""
        reason: str | None = self._row.reason
        return reason

    @property
    def state(self) -> dict[str, Any]:
        """The state at its head."""
        head = self._row.head_id
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
        state = shown(digests)
        stored = queries.load_values(self.database, state.values())
        return {name: decode(stored[key].data) for name, key in state.items()}

    def _events_of(self) -> tuple[str, str | None]:
        row = self._row
        return row.sweep_id, None if row.sweep_id == self.id else row.id

    def _looks(self) -> Iterator[Look]:
        if (background := self._background) is not None:
            while not background.wait():
                yield Look(background.progress, goes_on=True, ended=Ended("running"))
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

    def _bound(self) -> Bound:
        sweep = queries.find_sweep(self.database, self._row.sweep_id)
        return bind(stored_spec(sweep), self._workflow)

    def _code(self) -> Code:
        """Its code and how it runs here, after what ran of it here has come to its end."""
        if self.status not in ("pending", "running"):
            self.wait()
        return Code(self._bound(), self.run_in_background)

    def _continued(self, continued: Continued) -> Self:
        self._warn(continued.problem)
        return self

    @documented_by(resume)
    def resume(
        self,
        set: Mapping[str, Any] | None = None,
        *,
        limits: Limits | None = None,
        allow_code_change: bool = False,
    ) -> Self:
        """Resume it, with other values for keys of its state if given: here in the background, or by its workers.

        Args:
            set: Other values by key of its state.

        Returns:
            This object, at once.
        """
        code = self._code()
        return self._continued(
            resume(self._context, self.id, set=set or {}, limits=limits, allow_code_change=allow_code_change, code=code)
        )

    @documented_by(retry)
    def retry(self, *, failed_only: bool = False, provider: bool = False, limits: Limits | None = None) -> Self:
        """Run what failed again, from its last good checkpoint: here in the background, or by its workers.

        Returns:
            This object, at once.
        """
        code = self._code()
        return self._continued(
            retry(self._context, self.id, failed_only=failed_only, provider=provider, limits=limits, code=code)
        )

    @documented_by(answer)
    def answer(
        self,
        action: str | None = None,
        *,
        choice: str | None = None,
        feedback: str | None = None,
        value: Any = ...,
        set: Mapping[str, Any] | None = None,
    ) -> Self:
        """Answer the question that it waits for, the oldest first; it continues.

        Returns:
            This object, at once.

        Raises:
            ConflictError: If it asks nothing, or would continue here with code that has changed.
        """
        row = self._row
        asked = store.questions_of(self.database, row.id)
        if not asked:
            raise store.impossible(row, "answered: it asks nothing")
        code = self._code()
        answered = answer(
            self._context,
            asked[0].id,
            action,
            choice=choice,
            feedback=feedback,
            value=value,
            set=set,
            bound=code.bound,
            run=code.run,
        )
        if answered.continuation is not None:
            self._warn(answered.continuation.problem)
        return self

    # Taking back and forking

    @documented_by(rollback)
    def rollback(self, to: str, reason: str | None = None) -> RolledBack:
        """Take it back to a checkpoint, undo its tools, and pause it there."""
        return rollback(self._context, self._row.id, to, bound=self._bound(), reason=reason)

    @documented_by(undo_rollback)
    def undo_rollback(self, reason: str | None = None) -> RolledBack:
        """Undo its last rollback: it is at the end of the line that it left again, paused."""
        return undo_rollback(self._context, self._row.id, bound=self._bound(), reason=reason)

    @documented_by(fork)
    def fork(
        self,
        at: str | None = None,
        *,
        set: Mapping[str, Any] | None = None,
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
        forms, texts = read_level_files(variants, "variants")
        forked = fork(
            self._context,
            self._row.id,
            at=at,
            set=set,
            variants=forms,
            texts=texts,
            reason=reason,
            run=run,
            bound=self._bound(),
        )
        self._warn(forked.problem)
        return ExecutionHandle(self._context, forked.execution, self._workflow)

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
        """Run what differs in a fork for every case, as another row of its sweep. The row is exploratory.

        Args:
            progress: Called several times a second with how far a run here is.
        """
        forms, texts = read_level_files(variants, "variants")
        return add_row(
            self._context,
            self._row.id,
            at=at,
            variants=forms,
            texts=texts,
            reason=reason,
            run=run,
            code=lambda spec: bind(spec, self._workflow),
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
        return history.read(self._context, self.id)

    @documented_by(name_checkpoint)
    def name_checkpoint(self, name: str, *, note: str | None = None, at: str | None = None) -> CheckpointName:
        """Name its checkpoint at the head, or another one, so that rollbacks, forks and people find it by this name."""
        return name_checkpoint(self._context, self._row.id, name, note=note, at=at)

    @documented_by(diff)
    def diff(self, other: str | ExecutionHandle) -> DiffDocument:
        """Compare it with another execution: where they part, their states, paths, files and totals.

        Args:
            other: The other one, or its id or that of a checkpoint.

        Returns:
            The document, as `wtb diff --format json` prints it.
        """
        return diff(self._context, self._row.id, _id_of(other))

    @documented_by(files.list_files)
    def list_files(self, *, at: str | None = None) -> FilesDocument:
        """List the files that nodes left.

        Returns:
            The document, as `wtb files --format json` prints it.
        """
        return files.list_files(self._context, self.id, at=at)

    @documented_by(files.read_file)
    def read_file(self, path: str, *, at: str | None = None) -> bytes:
        """Return the content of a file.

        Returns:
            Its bytes.
        """
        return b"".join(files.read_file(self._context, self.id, path, at=at))

    @documented_by(files.export_files)
    def export_files(self, directory: str | Path, *, path: str | None = None, at: str | None = None) -> files.Exported:
        """Write files to a new or empty directory of this machine.

        Returns:
            How many files and bytes were written.
        """
        return files.export_files(self._context, self.id, as_path("directory", directory), path=path, at=at)

    @documented_by(files.compare_files)
    def compare_files(self, other: str | ExecutionHandle, *, at: str | None = None) -> FileChangesDocument:
        """Return what changes in the files from here to another execution.

        Args:
            other: The other one, or its id or that of a checkpoint.

        Returns:
            The document, as `wtb files --diff --format json` prints it.
        """
        return files.compare_files(self._context, self.id, _id_of(other), at=at)

    @documented_by(export_execution)
    def export(self, file: str | Path | None = None, *, force: bool = False) -> ExportedDocument:
        """Write it to a file with its history, values and files; `Bench.import_execution` reads it."""
        return export_execution(self._context, self.id, None if file is None else as_path("file", file), force=force)

    @documented_by(read_archive)
    def read_archive(self) -> bytes:
        """Return what `export` writes.

        Returns:
            Its bytes.
        """
        return b"".join(read_archive(self._context, self.id))

    @documented_by(read_value)
    def read_value(self, key: str) -> str:
        """Return a value of its state in full.

        Returns:
            The text, or JSON of what is no text.
        """
        return b"".join(read_value(self._context, self.id, key=key)).decode()

    def _repr_html_(self) -> str:
        """How it stands, its steps and its state, for notebooks."""
        return notebook_view(execution_document(self.database, self._row))

    def __repr__(self) -> str:
        return f"<execution {self.id}: {self.status}>"


def _id_of(one: str | ExecutionHandle) -> str:
    return one if isinstance(one, str) else one.record.id
