"""An open database as the live object that everything else of the Python API is reached by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from wtb.analysis.comparison.compare import LOOKED_INTO
from wtb.authoring.workflow import Workflow
from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import Interval
from wtb.core.documents.comparison import BaselineDocument, ComparisonDocument
from wtb.core.documents.costs import CostsDocument
from wtb.core.documents.lineage import CheckpointDetails
from wtb.core.documents.plan import PlanDocument
from wtb.core.errors import InputError
from wtb.core.tree.checkpoint_store import CheckpointStore
from wtb.display.views.progress import Watch
from wtb.operations.checkpoints import DatabaseCheckpoints
from wtb.operations.context import Context, open_context
from wtb.operations.control import pools
from wtb.operations.control.answers import AnsweredMany, Preview, answer_all, preview_answers
from wtb.operations.control.questions import find_question, find_questions
from wtb.operations.execution import start
from wtb.operations.handles.administration import Administration
from wtb.operations.handles.documentation import documented_by
from wtb.operations.handles.execution import ExecutionHandle
from wtb.operations.handles.published import Published
from wtb.operations.handles.question import QuestionHandle
from wtb.operations.handles.records import ProgressCallback, RunRecord, SweepRecord, reporter, run_record, sweep_record
from wtb.operations.handles.schedules import Schedules
from wtb.operations.handles.subscription import Callback, Subscription
from wtb.operations.handles.sweep import SweepHandle
from wtb.operations.inspection.following import EventsFromNow
from wtb.operations.inspection.history import show_checkpoint
from wtb.operations.inspection.sweeps import list_runs, list_sweeps
from wtb.operations.inspection.watching import watch
from wtb.operations.results import baselines as operations
from wtb.operations.results.baselines import BaselineResult, BaselineSet
from wtb.operations.results.comparing import Regression, compare, regress
from wtb.operations.results.costs import costs
from wtb.operations.running import submitting
from wtb.operations.running.background import run_in_background
from wtb.operations.running.local import run
from wtb.operations.running.planning import plan
from wtb.operations.running.preparing import prepare_file
from wtb.operations.running.submitting import Submitted
from wtb.operations.sweep import Sweep
from wtb.planning.data.picking import Only
from wtb.planning.prepare import Prepared
from wtb.store.database import Database, check_shared
from wtb.store.database_url import database_url
from wtb.store.read import queries
from wtb.store.read.references import find_one


class Bench(Administration, Published, Schedules):
    """An open database with its sweeps, executions and questions. `wtb.open` returns it; threads may share it.

    Example:
        >>> import wtb
        >>> wf = wtb.Workflow("doubling")
        >>> wf.entry(wf.node(lambda state: {"y": 2 * state["x"]}, name="double"))
        >>> sweep = wtb.Sweep(workflow=wf, cases=[{"id": "two", "input": {"x": 2}}], vary={"double": "all"})
        >>> with wtb.open("sqlite:///:memory:") as bench:
        ...     result = bench.run(sweep)
        ...     [one.name for one in bench.sweeps(status="completed")], result.record.counts["succeeded"]
        (['doubling'], 1)
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._subscriptions: list[Subscription] = []

    @property
    def database(self) -> Database:
        """The database."""
        return self._context.database

    @property
    def checkpoints(self) -> CheckpointStore:
        """The checkpoints of its executions as a store, for programs that read, write or delete lines themselves."""
        return DatabaseCheckpoints(self.database)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the database, and end what notifies workers. What runs elsewhere is not affected."""
        for subscription in self._subscriptions:
            subscription.unsubscribe()
        self._context.close()

    # Running

    @documented_by(plan)
    def plan(
        self,
        sweep: Sweep | str | Path,
        *,
        limit: int | None = None,
        sample: int | None = None,
        case: str | None = None,
        choices: Mapping[str, str] | None = None,
        final: bool = False,
        max_cells: int | None = None,
        pilot: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> PlanDocument:
        """Tell what a sweep would run, before anything runs.

        Args:
            sweep: A Sweep, or the path of a sweep file.
            limit: Only the first so many cases.
            sample: Only so many cases, drawn at random with the sweep's seed.
            case: Only the case of this id.
            choices: Only combinations that choose these variants by node.
            final: The cases that `holdout` keeps for the end, in place of the others.
            max_cells: How many cells it may have, in place of the cap.

        Returns:
            The document, as `wtb plan --format json` prints it.
        """
        prepared = self._prepared(sweep, Only(limit, case, choices or {}, final, sample), max_cells)
        return plan(self._context, prepared, pilot=pilot, progress=reporter(progress)).document

    @documented_by(run)
    def run(
        self,
        sweep: Sweep | str | Path,
        *,
        limit: int | None = None,
        sample: int | None = None,
        case: str | None = None,
        choices: Mapping[str, str] | None = None,
        final: bool = False,
        max_cells: int | None = None,
        concurrency: int | None = None,
        breakpoints: Sequence[str] = (),
        until: str | None = None,
        progress: ProgressCallback | None = None,
    ) -> SweepHandle:
        """Run a sweep on this machine, to its end or pause.

        Args:
            sweep: A Sweep, or the path of a sweep file.
            limit: Only the first so many cases.
            sample: Only so many cases, drawn at random with the sweep's seed.
            case: Only the case of this id.
            choices: Only combinations that choose these variants by node.
            final: The cases that `holdout` keeps for the end, in place of the others.
            max_cells: How many cells it may have, in place of the cap.
            concurrency: Node runs at a time, in place of its own.

        Returns:
            The sweep with its results, also one that was paused or interrupted.
        """
        prepared = self._prepared(sweep, Only(limit, case, choices or {}, final, sample), max_cells, concurrency)
        ran = run(self._context, prepared, breakpoints=breakpoints, until=until, progress=reporter(progress))
        return SweepHandle(self._context, ran.sweep.id)

    @documented_by(start)
    def start(
        self,
        workflow: Any,
        input: Any,
        *,
        variants: Mapping[str, str] | None = None,
        from_node: str | None = None,
        until: str | None = None,
        breakpoints: Sequence[str] = (),
        queued: bool = False,
        create_only: bool = False,
        **keys: Any,
    ) -> ExecutionHandle:
        """Start one input through a workflow, and return at once.

        Args:
            **keys: `mode` and `approval`, as of `wtb.start`, and keys of a sweep file.

        Returns:
            The execution; its `wait` waits for its end, a pause or a question.
        """
        return start(
            workflow,
            input,
            variants=variants,
            from_node=from_node,
            until=until,
            breakpoints=breakpoints,
            db=self._context,
            queued=queued,
            create_only=create_only,
            **keys,
        )

    @documented_by(submitting.submit)
    def submit(
        self,
        sweep: Sweep | str | Path,
        *,
        limit: int | None = None,
        sample: int | None = None,
        case: str | None = None,
        choices: Mapping[str, str] | None = None,
        final: bool = False,
        max_cells: int | None = None,
        breakpoints: Sequence[str] = (),
        until: str | None = None,
        priority: int | None = None,
        anyway: bool = False,
    ) -> SweepHandle:
        """Give a sweep to the workers, whole or not at all, and return at once.

        Args:
            sweep: A Sweep of an importable workflow, or the path of a sweep file.
            limit: Only the first so many cases.
            sample: Only so many cases, drawn at random with the sweep's seed.
            case: Only the case of this id.
            choices: Only combinations that choose these variants by node.
            final: The cases that `holdout` keeps for the end, in place of the others.
            max_cells: How many cells it may have, in place of the cap.

        Returns:
            The sweep. If workers could not be reached, that is logged; they find it later.
        """
        prepared = self._prepared(sweep, Only(limit, case, choices or {}, final, sample), max_cells)
        return self._handle(
            submitting.submit(
                self._context, prepared, priority=priority, anyway=anyway, breakpoints=breakpoints, until=until
            )
        )

    def _handle(self, submitted: Submitted) -> SweepHandle:
        if submitted.problem is not None:
            self._context.warn(submitted.problem)
        return SweepHandle(self._context, submitted.sweep)

    @documented_by(regress)
    def regress(
        self,
        sweep: Sweep | str | Path,
        baseline: str,
        *,
        margin: Mapping[str, float] | None = None,
        update: bool = False,
        strict: bool = False,
        looked_into: int = LOOKED_INTO,
        limit: int | None = None,
        sample: int | None = None,
        case: str | None = None,
        choices: Mapping[str, str] | None = None,
        max_cells: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> Regression:
        """Run a sweep and compare it with a baseline, cell by cell.

        Args:
            sweep: A Sweep, or the path of a sweep file.
            limit: Only the first so many cases.
            sample: Only so many cases, drawn at random with the sweep's seed.
            case: Only the case of this id.
            choices: Only combinations that choose these variants by node.
            max_cells: How many cells it may have, in place of the cap.
        """
        prepared = self._prepared(sweep, Only(limit, case, choices or {}, sample=sample), max_cells)
        return regress(
            self._context,
            prepared,
            baseline,
            margin=margin,
            update=update,
            strict=strict,
            looked_into=looked_into,
            progress=reporter(progress),
        )

    def _prepared(
        self, sweep: Sweep | str | Path, only: Only, max_cells: int | None, concurrency: int | None = None
    ) -> Prepared:
        return _prepare(sweep, only, self._context.session, max_cells, concurrency)

    @checked
    def subscribe(
        self,
        callback: Callback,
        *,
        severity: str = "debug",
        kinds: Sequence[str] = (),
        values: bool = False,
        interval_s: Interval = 0.2,
    ) -> Subscription:
        """Call a function with each event from now on, in a thread of this process, whoever runs the sweeps.

        It gets the events of sweeps and single executions that are open or begin later, each once and in order. An
        error that it raises is logged, and ends neither the subscription nor a run.

        Args:
            callback: Takes an event, as `follow` yields them.
            severity: The least that it gets: debug, info, warning or error.
            kinds: What their kinds begin with, such as `cell` or `tool.called`; by default all.
            values: Add what nodes wrote, results, and the arguments of tools.
            interval_s: Seconds between two looks at the log.

        Returns:
            The subscription: end it with `unsubscribe()`, or use it as a context manager.

        Raises:
            InputError: If there is no such severity.

        Example:
            >>> import wtb
            >>> wf = wtb.Workflow("doubling")
            >>> wf.entry(wf.node(lambda state: {"y": 2 * state["x"]}, name="double"))
            >>> kinds: list[str] = []
            >>> with wtb.open("sqlite:///:memory:") as bench:
            ...     with bench.subscribe(lambda event: kinds.append(event["kind"]), kinds=["node_run", "execution"]):
            ...         state = bench.start(wf, {"x": 2}).wait().state
            >>> kinds
            ['execution.started', 'node_run.started', 'node_run.succeeded', 'execution.completed']
        """
        events = EventsFromNow(self._context, severity=severity, kinds=kinds, values=values)
        subscription = Subscription(self._context, callback, events, interval_s)
        self._subscriptions = [one for one in self._subscriptions if one.is_active] + [subscription]
        return subscription

    # What there is

    @documented_by(list_sweeps)
    def sweeps(
        self,
        *,
        workflow: str | None = None,
        status: str | None = None,
        project: str | None = None,
        session: str | None = None,
        since: datetime | None = None,
        limit: int | None = None,
        after: str | None = None,
        singles: bool = False,
    ) -> list[SweepRecord]:
        """List sweeps, the newest first.

        Returns:
            A record for each; `sweep(record.id)` is the live object, and of a single execution `execution(record.id)`.
        """
        found = list_sweeps(
            self._context,
            workflow=workflow,
            status=status,
            project=project,
            session=session,
            since=since,
            limit=limit,
            after=after,
            singles=singles,
        )
        return [sweep_record(document) for document in found]

    @documented_by(list_runs)
    def executions(
        self,
        *,
        workflow: str | None = None,
        status: str | None = None,
        project: str | None = None,
        session: str | None = None,
        since: datetime | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> list[RunRecord]:
        """List runs, which are single executions that somebody started, the newest first.

        Returns:
            A record for each; `execution(record.id)` is the live object.
        """
        documents = list_runs(
            self._context,
            workflow=workflow,
            status=status,
            project=project,
            session=session,
            since=since,
            limit=limit,
            after=after,
        )
        return [run_record(document) for document in documents]

    def sweep(self, ref: str) -> SweepHandle:
        """Find a sweep.

        Args:
            ref: Its id, the beginning of it, or a name: the newest sweep of that name.

        Returns:
            The sweep.

        Raises:
            InputError: If there is none, or it is a single execution.
        """
        row = queries.find_sweep(self.database, ref)
        if row.kind == "single":
            raise InputError(f"{ref!r} is a single execution and no sweep; `Bench.execution` finds it")
        return SweepHandle(self._context, row.id)

    def execution(self, ref: str, *, workflow: Workflow | None = None) -> ExecutionHandle:
        """Find an execution.

        Args:
            ref: Its id, what was printed when a single one started, or the beginning of it.
            workflow: Its workflow, if that cannot be imported here.

        Returns:
            The execution.

        Raises:
            InputError: If there is none, or it is a sweep.
        """
        row = find_one(self.database, ref)
        sweep = queries.find_sweep(self.database, row.sweep_id)
        single = sweep.kind == "single" and not row.id.startswith(ref)
        return ExecutionHandle(self._context, sweep.id if single else row.id, workflow)

    @documented_by(show_checkpoint)
    def checkpoint(self, ref: str) -> CheckpointDetails:
        """Return a checkpoint with its state and files, who wrote it and what comes next."""
        return show_checkpoint(self._context, ref)

    @documented_by(find_questions)
    def questions(self, ref: str | None = None, *, closed: bool = False, limit: int = 1000) -> list[QuestionHandle]:
        """Find the questions that wait for a person, those that wait longest first.

        Args:
            ref: A sweep or an execution whose questions are meant; None for all.

        Returns:
            A live object for each.
        """
        found = find_questions(self._context, ref, closed=closed, limit=limit)
        each = found.each if found.question is None else [found.question]
        return [QuestionHandle(self._context, question["id"]) for question in each]

    def question(self, ref: str) -> QuestionHandle:
        """Find a question.

        Args:
            ref: Its id or the beginning of it; or an execution or a sweep that waits for one answer only.

        Returns:
            The question.

        Raises:
            InputError: If there is none, or several.
        """
        return QuestionHandle(self._context, find_question(self.database, ref).id)

    @documented_by(answer_all)
    def answer_all(
        self,
        action: str,
        *,
        sweep: str | None = None,
        node: str | None = None,
        question: str | None = None,
        choice: str | None = None,
        feedback: str | None = None,
        value: Any = ...,
        run: bool = True,
    ) -> AnsweredMany:
        """Answer several open questions alike.

        Args:
            action: `approve`, `reject` or `modify`, or one of their options.
            sweep: Only those of a sweep: its id, the beginning of it, or its name.
            node: Only those of a node.
            question: Only those that ask the same as this one, by its id; or that have this text in them.
            run: Run single executions on that no other process runs, here in the background; else `resume` does.

        Returns:
            What was recorded, and who continues, at once.
        """
        preview = preview_answers(self._context, action, sweep=sweep, node=node, question=question)
        how = run_in_background if run else None
        return answer_all(
            self._context, preview.action, preview.ids, choice=choice, feedback=feedback, value=value, run=how
        )

    @documented_by(preview_answers)
    def preview_answers(
        self,
        action: str,
        *,
        sweep: str | None = None,
        node: str | None = None,
        question: str | None = None,
    ) -> Preview:
        """Return the open questions that `answer_all` would answer, and answer none."""
        return preview_answers(self._context, action, sweep=sweep, node=node, question=question)

    @documented_by(watch)
    def watch(self, ref: str | None = None) -> Watch:
        """Return what looks at how a sweep, or all open ones, stand, with workers and queues."""
        return watch(self._context, ref)

    # Results

    @documented_by(compare)
    def compare(
        self,
        before: str,
        after: str,
        *,
        margin: Mapping[str, float] | None = None,
        looked_into: int = LOOKED_INTO,
    ) -> ComparisonDocument:
        """Compare the results of two sweeps, of the same or of different workflows, case by case."""
        return compare(self._context, before, after, margin=margin, looked_into=looked_into)

    @documented_by(pools.pool)
    def pool(self, refs: Sequence[str], *, name: str | None = None) -> SweepHandle:
        """Make one read-only sweep of several that ran the same rows over the same cases.

        Returns:
            The pool.
        """
        return self.sweep(pools.pool(self._context, refs, name=name).id)

    @documented_by(costs)
    def costs(
        self, *, by: Sequence[str] = (), since: datetime | None = None, project: str | None = None
    ) -> CostsDocument:
        """Return what was spent, the dearest first. Failed attempts and what was deleted since are included."""
        return costs(self._context, by=by, since=since, project=project)

    @documented_by(operations.set_baseline)
    def set_baseline(
        self,
        name: str,
        ref: str,
        *,
        anyway: bool = False,
        repeat: int = 0,
        progress: ProgressCallback | None = None,
    ) -> BaselineSet:
        """Make a finished sweep the baseline of a name in its session. It is kept while it is one."""
        return operations.set_baseline(
            self._context, name, ref, anyway=anyway, repeat=repeat, progress=reporter(progress)
        )

    def baselines(self, session: str | None = None) -> list[BaselineDocument]:
        """List baselines.

        Args:
            session: Only those of this session; by default that of this object, or all if it has none.

        Returns:
            A document for each.

        Raises:
            InputError: If there is no such session.
        """
        return operations.list_baselines(self._context, session=session)

    @documented_by(operations.show_baseline)
    def baseline(self, name: str, *, session: str | None = None) -> BaselineResult:
        """Return a baseline with the matrix of its sweep.

        Returns:
            Its document.
        """
        return operations.show_baseline(self._context, name, session=session)

    def remove_baseline(self, name: str, *, session: str | None = None) -> str:
        """Remove a baseline. Its sweep stays until the retention policy lets it go.

        Args:
            name: The baseline's name.
            session: Its session; by default that of this object, or of the environment.

        Returns:
            The id of the sweep that it was.

        Raises:
            InputError: If there is no such baseline.
        """
        return operations.remove_baseline(self._context, name, session=session)

    def __repr__(self) -> str:
        return f"<bench {self.database.shown_url}>"


@checked
def open(
    url: str | Path | Database | None = None,
    *,
    broker: str | None = None,
    by: str | None = None,
    files: str | Path | None = None,
    session: str | None = None,
) -> Bench:
    """Open a database, which is made if there is none.

    Args:
        url: A database URL, such as `sqlite:///runs.db`, the path of an SQLite file (`pathlib.Path`), or an open
            database; the default is that of the command line.
        broker: URL of the broker; by default that of the environment, or of the stack that is up in this folder.
        by: Who acts, as events record it; by default the user of this process.
        files: Where workspaces are kept; the default is beside an SQLite database, else `.wtb`.
        session: The session of new sweeps, in place of their own, and of baselines, schedules and lists; the default is
            that of each sweep or of the environment, and lists of all.

    Returns:
        The bench. As a context manager it closes the database.

    Raises:
        InputError: If the URL is none, or that of a server, which `wtb.client` asks; if there is no such session; or if
            the database has another version: `wtb db upgrade` says what to do.
        StoreError: If the database is out of reach.

    Example:
        >>> import wtb
        >>> with wtb.open("sqlite:///:memory:") as bench:
        ...     bench.sweeps()
        []
    """
    return Bench(open_context(url, broker=broker, by=by, files=files, session=session))


@checked
def submit(
    sweep: Sweep | str | Path,
    *,
    db: str | Path | Database | None = None,
    broker: str | None = None,
    priority: int | None = None,
    anyway: bool = False,
) -> SweepHandle:
    """Give a sweep to the workers, and return at once: `wtb.open`, then `Bench.submit`.

    Args:
        sweep: A Sweep of an importable workflow, or the path of a sweep file.
        db: A database URL, or an open database; the default is that of the command line.
        broker: URL of the broker; by default that of the environment, or of the stack that is up in this folder.
        priority: Higher ones run first; None for the sweep's own.
        anyway: Also where no worker is there to run it, or no broker is named.

    Returns:
        The sweep.

    Raises:
        InputError: With everything that is wrong, one line each.
        BrokerError: If no worker takes from one of its queues, or no broker is named; nothing was submitted.

    Example:
        >>> import wtb
        >>> wtb.submit("quality.sweep.yaml", db="sqlite:///:memory:")
        Traceback (most recent call last):
        ...
        wtb.core.errors.InputError: quality.sweep.yaml: no such file; expected a YAML file
    """
    database = db if isinstance(db, Database) else Database(database_url(db))
    prepared = _prepare(sweep, Only(), None)
    check_shared(database)  # what is refused leaves no database behind
    bench = open(database, broker=broker)
    return bench._handle(submitting.submit(bench._context, prepared, priority=priority, anyway=anyway))


@checked
def _prepare(
    sweep: Sweep | str | Path,
    only: Only,
    session: str | None,
    max_cells: int | None = None,
    concurrency: int | None = None,
) -> Prepared:
    if isinstance(sweep, Sweep):
        return sweep.prepare(only, session=session, max_cells=max_cells, concurrency=concurrency)
    return prepare_file(Path(sweep), only, session=session, max_cells=max_cells, concurrency=concurrency)
