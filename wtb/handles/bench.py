"""Benches: an open database or server as the live object from which the rest of the Python API is reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from wtb.analysis.comparison.compare import LOOKED_INTO
from wtb.authoring.workflow import Workflow
from wtb.core.arguments import Interval, Seconds, checked
from wtb.core.documents.administration import OneSessionDocument
from wtb.core.documents.plan import PlanDocument
from wtb.core.errors import InputError
from wtb.core.tree.checkpoint_store import CheckpointStore
from wtb.core.values import SweepKeys
from wtb.handles.bench_methods import BenchMethods, Callback, Subscription
from wtb.handles.execution import ExecutionHandle
from wtb.handles.local_sweep import Sweep
from wtb.handles.records import ProgressCallback, reporter
from wtb.handles.start import start
from wtb.handles.sweep import SweepHandle
from wtb.handles.target import QuestionHandle, question_of
from wtb.operations.checkpoints import DatabaseCheckpoints
from wtb.operations.context import Backend, Context, open_context, open_server, server_of
from wtb.operations.control.answers import AnsweredMany, answer_all, preview_answers
from wtb.operations.control.continuation import run_in_background
from wtb.operations.control.questions import MAX_LISTED, find_question, find_questions
from wtb.operations.inspection.following import EventsFromNow
from wtb.operations.inspection.sweeps import locate_execution, locate_sweep
from wtb.operations.methods import documented_by
from wtb.operations.results import pools
from wtb.operations.results.comparing import BaselineSet, Regression, regress, repeat_baseline, set_baseline
from wtb.operations.running import submitting
from wtb.operations.running.local import run
from wtb.operations.running.planning import plan, run_pilot
from wtb.operations.running.preparing import prepare_file
from wtb.operations.running.published import plan_published, start_published, submit_published, sweep_to_send
from wtb.operations.running.submitting import Submitted
from wtb.operations.sessions import change_session, create_session
from wtb.planning.picking import Only
from wtb.planning.prepare import Prepared
from wtb.store.access.sessions import Quota
from wtb.store.database import Database, check_shared, open_database


class Bench(BenchMethods):
    """An open database or server with its sweeps, executions and questions, which `wtb.open` returns.

    Threads may share it. A method that needs this machine, such as `run`, raises InputError for a server, with the
    reason.

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

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._subscriptions: list[Subscription] = []

    @property
    def database(self) -> Database:
        """The database. InputError if a server is asked."""
        return self.backend.require_database("a server does not open its database to others").database

    @property
    def checkpoints(self) -> CheckpointStore:
        """The checkpoints of its executions as a store, for programs that read, write or delete lines themselves."""
        return DatabaseCheckpoints(self.database)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and end what notifies workers. What runs elsewhere is not affected."""
        # Subscriptions first: their threads read through the connections that are closed next.
        for subscription in self._subscriptions:
            subscription.unsubscribe()
        self.backend.close()

    # Running

    @documented_by(plan)
    def plan(
        self,
        sweep: Sweep | str | Path | SweepKeys,
        *,
        published: bool = False,
        limit: int | None = None,
        sample: int | None = None,
        case: str | None = None,
        choices: Mapping[str, str] | None = None,
        final: bool = False,
        max_cells: int | None = None,
        pilot: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> PlanDocument:
        """Show what a sweep would run, before anything runs.

        Args:
            sweep: A Sweep, the path of a sweep file, or the keys of one, whose workflow is then a published one.
            published: By what workers publish of its workflow instead of the code here; a server does so always.
            limit: Only the first so many cases.
            sample: Only so many cases, drawn at random with the sweep's seed.
            case: Only the case of this id.
            choices: Only combinations that choose these variants by node.
            final: The cases that `holdout` keeps for the end, in place of the others.
            max_cells: How many cells it may have, in place of the cap.
            pilot: Run so many of its cases, drawn with its seed, as a sweep of its own, and estimate the cost of all.
            progress: Called several times a second with how far the pilot is.

        Returns:
            The document, as `wtb plan --format json` prints it.
        """
        only = Only(limit, case, choices or {}, final, sample)
        if self._is_published(sweep, published):
            if pilot is not None or progress is not None:
                self.backend.require_database("a pilot runs code of users, and reports its progress")
                raise InputError(
                    "a pilot runs the workflow's code here: plan without `published`", argument="published"
                )
            return self.backend.call(plan_published, keys=_keys(sweep), part=_part(only), max_cells=max_cells)
        assert not isinstance(sweep, Mapping), "keys are of a published workflow"
        prepared = self._prepared(sweep, only, max_cells)
        if pilot is None:
            return self.backend.call(plan, prepared).document
        return self.backend.call(run_pilot, prepared, pilot=pilot, progress=reporter(progress)).document

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
        context = self.backend.require_database(run)
        prepared = self._prepared(sweep, Only(limit, case, choices or {}, final, sample), max_cells, concurrency)
        ran = run(context, prepared, breakpoints=breakpoints, until=until, progress=reporter(progress))
        return SweepHandle(context, ran.sweep.id)

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
        published: bool = False,
        **keys: Any,
    ) -> ExecutionHandle:
        """Start one input through a workflow, and return at once.

        Args:
            published: Take `workflow` as the name of one that workers publish, and leave it to them; a server does so
                always.
            **keys: `mode` and `approval`, as of `wtb.start`, and keys of a sweep file.

        Returns:
            The execution; its `wait` waits for its end, a pause or a question.
        """
        if self._is_published(workflow, published):
            submitted = self.backend.call(
                start_published,
                workflow,
                input,
                variants=variants,
                from_node=from_node,
                breakpoints=breakpoints,
                until=until,
                create_only=create_only,
                **keys,
            )
            return ExecutionHandle(self.backend, submitted.sweep)
        return start(
            workflow,
            input,
            variants=variants,
            from_node=from_node,
            until=until,
            breakpoints=breakpoints,
            db=self.backend.require_database(run),
            queued=queued,
            create_only=create_only,
            **keys,
        )

    @documented_by(submitting.submit)
    def submit(
        self,
        sweep: Sweep | str | Path | SweepKeys,
        *,
        published: bool = False,
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
        """Submit a sweep to the workers, whole or not at all, and return at once.

        Args:
            sweep: A Sweep of an importable workflow, the path of a sweep file, or the keys of one, whose workflow is
                then a published one.
            published: By what workers publish of its workflow instead of the code here; a server does so always.
            limit: Only the first so many cases.
            sample: Only so many cases, drawn at random with the sweep's seed.
            case: Only the case of this id.
            choices: Only combinations that choose these variants by node.
            final: The cases that `holdout` keeps for the end, in place of the others.
            max_cells: How many cells it may have, in place of the cap.

        Returns:
            The sweep. If workers could not be reached, that is logged; they find it later.
        """
        only = Only(limit, case, choices or {}, final, sample)
        if self._is_published(sweep, published):
            submitted = self.backend.call(
                submit_published,
                keys=_keys(sweep),
                part=_part(only),
                max_cells=max_cells,
                priority=priority,
                anyway=anyway,
                breakpoints=breakpoints,
                until=until,
            )
        else:
            assert not isinstance(sweep, Mapping), "keys are of a published workflow"
            prepared = self._prepared(sweep, only, max_cells)
            submitted = self.backend.call(
                submitting.submit, prepared, priority=priority, anyway=anyway, breakpoints=breakpoints, until=until
            )
        return self._handle(submitted)

    def _is_published(self, named: Any, published: bool) -> bool:
        """Return whether a workflow is meant as workers publish it."""
        return published or isinstance(named, Mapping) or not isinstance(self.backend, Context)

    def _handle(self, submitted: Submitted) -> SweepHandle:
        if submitted.problem is not None:
            self.backend.warn(submitted.problem)
        return SweepHandle(self.backend, submitted.sweep)

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
        context = self.backend.require_database(regress)
        prepared = self._prepared(sweep, Only(limit, case, choices or {}, sample=sample), max_cells)
        return regress(
            context,
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
        return _prepare(sweep, only, self.backend.require_database(plan).session, max_cells, concurrency)

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
        context = self.backend.require_database("a server sends the events of one sweep, which `follow` yields")
        events = EventsFromNow(context, severity=severity, kinds=kinds, values=values)
        subscription = Subscription(context, callback, events, interval_s)
        # Ended ones are dropped, so that a bench that stays open does not collect them.
        self._subscriptions = [earlier for earlier in self._subscriptions if earlier.is_active] + [subscription]
        return subscription

    # What there is

    def sweep(self, ref: str) -> SweepHandle:
        """Find a sweep.

        Args:
            ref: Its id, the beginning of it, or a name: the newest sweep of that name.

        Returns:
            The sweep.

        Raises:
            InputError: If there is none, or it is a single execution.
        """
        return SweepHandle(self.backend, self.backend.call(locate_sweep, ref).id)

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
        return ExecutionHandle(self.backend, self.backend.call(locate_execution, ref).id, workflow)

    @documented_by(find_questions)
    def questions(
        self, ref: str | None = None, *, closed: bool = False, limit: int = MAX_LISTED
    ) -> list[QuestionHandle]:
        """Find the questions that wait for a person, those that wait longest first.

        Args:
            ref: A sweep or an execution whose questions are meant; None for all.

        Returns:
            A live object for each.
        """
        listed = self.backend.call(find_questions, ref, closed=closed, limit=limit)
        each = listed.each if listed.question is None else [listed.question]
        return [QuestionHandle(self.backend, question["id"]) for question in each]

    def question(self, ref: str) -> QuestionHandle:
        """Find a question.

        Args:
            ref: Its id or the beginning of it; or an execution or a sweep that waits for one answer only.

        Returns:
            The question.

        Raises:
            InputError: If there is none, or several.
        """
        if isinstance(self.backend, Context):
            return QuestionHandle(self.backend, find_question(self.database, ref).id)
        return QuestionHandle(self.backend, question_of(self.backend.call(find_questions, ref), ref)["id"])

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
        """Give several open questions the same answer.

        Args:
            action: `approve`, `reject` or `modify`, or one of their options.
            sweep: Only those of a sweep: its id, the beginning of it, or its name.
            node: Only those of a node.
            question: Only those that ask the same as this one, by its id; or that have this text in them.
            run: Run single executions on that no other process runs, here in the background; else `resume` does.

        Returns:
            What was recorded, and who continues, at once.
        """
        # Answered by id: a question that is asked after this must not be answered unseen.
        preview = self.backend.call(preview_answers, action, sweep=sweep, node=node, question=question)
        how = run_in_background if run and isinstance(self.backend, Context) else None
        return self.backend.call(
            answer_all, preview.action, preview.ids, choice=choice, feedback=feedback, value=value, run=how
        )

    # Results

    @documented_by(pools.pool)
    def pool(self, refs: Sequence[str], *, name: str | None = None) -> SweepHandle:
        """Make one read-only sweep of several that ran the same rows over the same cases.

        Returns:
            The pool.
        """
        return SweepHandle(self.backend, self.backend.call(pools.pool, refs, name=name).id)

    @documented_by(set_baseline)
    def set_baseline(
        self,
        name: str,
        ref: str,
        *,
        anyway: bool = False,
        repeat: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> BaselineSet:
        """Make a finished sweep the baseline of a name in its session. It is kept while it is one.

        Args:
            repeat: Run it so many more times first, to measure its noise.
            progress: Called several times a second with how far a repeat is.

        Returns:
            Which sweep is the baseline now, and which was it before; or a repeat that did not come to its end.
        """
        if repeat is None:
            return self.backend.call(set_baseline, name, ref, anyway=anyway)
        show = reporter(progress)
        return self.backend.call(repeat_baseline, name, ref, repeat=repeat, anyway=anyway, progress=show)

    @documented_by(create_session)
    def create_session(
        self,
        name: str,
        *,
        disk: int | None = None,
        node_runs: int | None = None,
        usd: float | None = None,
        tokens: int | None = None,
        memory: int | None = None,
        owner: str | None = None,
        metadata: Mapping[str, str] | None = None,
        project: str | None = None,
    ) -> OneSessionDocument:
        """Create a session.

        Args:
            disk: Bytes that its files may take; None for no limit, as of the others.
            node_runs: Node runs at a time.
            usd: US dollars that it may spend in all.
            tokens: Tokens that it may spend in all.
            memory: Bytes of memory that its node processes may use together.
            owner: Who is responsible for it, such as a user, a team or an address.
            metadata: What else is to be kept with it: texts by name.
            project: The project that it belongs to; by default `default`.
        """
        quota = Quota(disk=disk, node_runs=node_runs, usd=usd, tokens=tokens, memory=memory)
        return self.backend.call(create_session, name, quota, owner=owner, metadata=metadata, project=project)

    @documented_by(change_session)
    def change_session(
        self,
        name: str,
        *,
        owner: str | None = None,
        metadata: Mapping[str, str | None] | None = None,
        **limits: float | None,
    ) -> Quota:
        """Change a session's quota, owner or metadata; other settings stay.

        Args:
            owner: Another owner; empty for none.
            metadata: Texts by name; None removes one.
            **limits: By their name; None lifts one.
        """
        return self.backend.call(change_session, name, limits, owner=owner, metadata=metadata)

    def __repr__(self) -> str:
        return f"<bench {self.backend.place}>"


@checked
def open(
    url: str | Path | Database | None = None,
    *,
    token: str | None = None,
    timeout: Seconds | None = None,
    broker: str | None = None,
    by: str | None = None,
    files: str | Path | None = None,
    session: str | None = None,
) -> Bench:
    """Open a database, which is made if there is none; or a server that `wtb serve` runs.

    Args:
        url: A database URL, such as `sqlite:///runs.db`, the path of an SQLite file (`pathlib.Path`), or an open
            database; the default is that of the command line. A URL such as `https://bench.example.org` is a server.
        token: The access token for a server; by default that of WTB_TOKEN, else of `~/.config/wtb/credentials.toml`.
        timeout: Seconds to wait for an answer of a server; by default 60.
        broker: URL of the broker; by default that of the environment, or of the stack that is up in this folder.
        by: Who acts, as events record it; by default the user of this process.
        files: Where workspaces are kept; the default is beside an SQLite database, else `.wtb`.
        session: The session of new sweeps, in place of their own, and of baselines, schedules and lists; the default is
            that of each sweep or of the environment, and lists of all.

    Returns:
        The bench. As a context manager it closes the connections.

    Raises:
        InputError: If the URL is none; if there is no such session; if there is no token for a server; or if the
            database has another version: `wtb admin db upgrade` explains the next step.
        StoreError: If the database is out of reach.

    Example:
        >>> import wtb
        >>> with wtb.open("sqlite:///:memory:") as bench:
        ...     bench.sweeps()
        []
    """
    of_server = {"token": token, "timeout": timeout}
    server = server_of(url, of_server, {"broker": broker, "by": by, "files": files})
    if server is not None:
        return Bench(open_server(server, session=session, **{k: v for k, v in of_server.items() if v is not None}))
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
        priority: Higher priorities run first; None for the sweep's own.
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
    database = open_database(db)
    prepared = _prepare(sweep, Only(), None)
    check_shared(database)  # what is refused leaves no database behind
    bench = open(database, broker=broker)
    return bench._handle(bench.backend.call(submitting.submit, prepared, priority=priority, anyway=anyway))


def _keys(sweep: Sweep | str | Path | SweepKeys) -> SweepKeys:
    """Return the keys of a sweep as they are sent, with its cases. Raises InputError."""
    if isinstance(sweep, Mapping):
        return sweep
    return sweep.keys_to_send() if isinstance(sweep, Sweep) else sweep_to_send(Path(sweep))


def _part(only: Only) -> Only | None:
    return None if only == Only() else only


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
