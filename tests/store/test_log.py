"""The log is one sequence, although most events are derived from other rows."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.bench import Bench
from tests.support.prose import sentence
from wtb.authoring.context.node_context import Context
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.core.scoring.measure import Measure, Score
from wtb.store.control.forks import retry
from wtb.store.control.rescore import write_scores
from wtb.store.control.rollback import Ending, begin
from wtb.store.database import Database
from wtb.store.event_sources import DERIVED
from wtb.store.log import (
    START,
    LogPosition,
    add_event,
    derived_counts,
    event_row,
    insert_events,
    keep_events,
    subject,
    take_positions,
)
from wtb.store.read import details, queries
from wtb.store.read.activity import overdue
from wtb.store.runs.batch import Batch
from wtb.store.runs.flush import flush
from wtb.store.runs.queue import DEFAULT_QUEUE
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import calls, cells, checkpoints, events, executions, invocations, node_runs, sweeps

DERIVED_KINDS = {kind for derived in DERIVED for kind in derived.kinds}


def forking() -> Workflow:
    """Two nodes of two variants, the first of which fails once in one variant."""
    workflow = Workflow("forking")
    seen: set[int] = set()

    def charge(amount: int) -> str:
        return f"charged {amount}"

    def first(state: dict[str, Any], ctx: Context, *, add: int = 1) -> dict[str, Any]:
        ctx.call(
            model="small", prompt="hi", response="ho", tokens_in=7, tokens_out=2, usd=0.5, duration_s=0.25, cached=3
        )
        if add == 2 and state["x"] not in seen:
            seen.add(state["x"])
            raise ValueError("once")
        ctx.call(model="small", response={"error": "Overloaded: later"})
        ctx.tools.charge(amount=add)
        return {"a": state["x"] + add}

    def second(state: dict[str, Any], *, times: int = 1) -> dict[str, Any]:
        return {"b": state["a"] * times}

    workflow.node(first, name="first", retries=1).variant("more", add=2)
    workflow.node(second, name="second").variant("twice", times=2)
    workflow.entry("first")
    workflow.edge("first", END, when=is_negative)
    workflow.edge("first", "second", default=True)
    workflow.edge("second", END)
    workflow.tool(charge)
    return workflow


def is_negative(state: dict[str, Any]) -> bool:
    return bool(state["a"] < 0)


@pytest.fixture
def sweep(run_sweep: Callable[..., Bench]) -> Bench:
    cases = [{"id": str(x), "input": {"x": x}} for x in range(3)]
    return run_sweep(forking(), cases, {"first": "all", "second": "all"})


def log_of(database: Database, sweep_id: str, after: LogPosition = START, limit: int | None = None) -> list[Any]:
    return queries.event_rows(database, sweep_id, after=after, limit=limit)


def paged(database: Database, sweep_id: str, size: int, kinds: Sequence[str] = ()) -> list[Any]:
    """Return the log as it is read page by page."""
    rows: list[Any] = []
    after = START
    while page := queries.event_rows(database, sweep_id, kinds=kinds, after=after, limit=size):
        assert len(page) <= size
        rows += page
        after = (page[-1]["transaction"], page[-1]["id"])
    return rows


def test_what_rows_say_has_no_row_of_its_own(sweep: Bench) -> None:
    stored = {row["kind"] for row in sweep.rows(events)}
    assert stored & DERIVED_KINDS == set()
    assert {row["kind"] for row in log_of(sweep.database, sweep.sweep_id)} == stored | DERIVED_KINDS


def test_events_stand_in_the_order_in_which_they_happened(sweep: Bench) -> None:
    log = log_of(sweep.database, sweep.sweep_id)

    assert [(row["transaction"], row["id"]) for row in log] == sorted((row["transaction"], row["id"]) for row in log)
    assert len({row["id"] for row in log}) == len(log)
    of: dict[str, list[str]] = defaultdict(list)
    for row in log:
        if row["execution_id"]:
            of[row["execution_id"]].append(row["kind"])
    done = ["model.called", "model.called", "tool.called", "node_run.succeeded", "decision", "checkpoint.created"]
    second = ["node_run.started", "node_run.succeeded", "checkpoint.created"]
    ends = ["execution.completed", "cell.succeeded"]
    assert set(map(tuple, of.values())) == {
        ("execution.started", "execution.forked"),
        ("node_run.started", *done, "execution.forked"),
        ("variant.applied", "node_run.started", "model.called", "attempt.failed", *done, "execution.forked"),
        (*second, *ends),
        ("variant.applied", *second, *ends),
    }


@pytest.mark.parametrize(("between", "holds"), [("another", True), ("e", False)])
def test_a_node_run_holds_its_start_at_its_success_unless_its_execution_has_an_event_between(
    between: str, holds: bool
) -> None:
    batch = Batch()
    batch.add("e", 1, node_run={**_started_row("run"), "replaces": "default", "started_event": 1})  # type: ignore[typeddict-item]
    batch.add(between, 1, appended={"events": [event_row(subject("default", "s"), "attempt.failed", {})]})
    batch.add("e", 1, node_run_change=("run", {"ended_event": 0}))

    _, row = batch.node_runs["run"]
    assert row["ended_event"] == batch.events - 1
    assert (row["started_event"], row["started_transaction"]) == ((None, 0) if holds else (1, None))
    assert row["ended_event"] == (5 if holds else 3)  # it has room for the variant, the start and the success


def test_events_say_what_their_rows_say(sweep: Bench) -> None:
    runs = {(run["execution_id"], run["node"]): run for run in sweep.node_runs}
    checkpoint_by_id = {row["id"]: row for row in sweep.rows(checkpoints)}
    heads = {execution.id: str(execution.head_id) for execution in sweep.executions}
    for row in log_of(sweep.database, sweep.sweep_id):
        data = row["data"]
        if row["kind"] == "execution.completed":
            head = heads[row["execution_id"]]
            assert data == {"cells": 1, "result": checkpoint_by_id[head]["state"]}
        elif row["kind"] == "execution.forked":
            head = heads[row["execution_id"]]
            children = [execution for execution in sweep.executions if execution.parent_id == row["execution_id"]]
            assert data == {"children": len(children), "by": checkpoint_by_id[head]["position"]["next"]}
        elif row["kind"] == "cell.succeeded":
            (cell,) = (cell for cell in sweep.rows(cells) if cell["execution_id"] == row["execution_id"])
            of = {"case": str(cell["case_number"]), "repeat": 0, "combination": cell["combination"]}
            assert data == {**of, "scores": {}}
        elif row["kind"] == "checkpoint.created":
            position = checkpoint_by_id[data["checkpoint"]]["position"]
            assert data == {"checkpoint": data["checkpoint"], "step": position["step"], "next": position["next"]}
        elif row["kind"] == "decision":
            assert checkpoint_by_id[data.pop("checkpoint")]["position"]["next"] == ["second"]
            conditions = [[END, "is_negative", False], ["second", None, True]]
            why = {"why": sentence("no condition is true"), "tried": conditions}
            assert data == {"node": "first", "to": "second", "key": None, **why}
        elif row["kind"] == "variant.applied":
            assert data == {"node": data["node"], "variant": data["variant"], "replaces": "default"}
        elif row["kind"] in DERIVED_KINDS:
            run = runs[row["execution_id"], data["node"]]
            named = {"node": run["node"], "variant": run["variant"]}
            started = named | {"visit": 0, "attempt": 1}
            spent = {"usd": run["usd"]} if run["usd"] else {}
            ended = {"attempt": run["attempts"], "duration_s": run["duration_s"], "writes": run["writes"], **spent}
            called = {**named, "node_run": run["id"], "attempt": data.get("attempt")}
            assert (
                data
                == {
                    "node_run.started": started,
                    "node_run.succeeded": started | ended,
                    "tool.called": called | {"tool": "charge", "number": 0, "duration_s": data.get("duration_s")},
                    "model.called": called | _model_call(failed="error" in data),
                }[row["kind"]]
            )
        assert (row["session_id"], row["sweep_id"]) == ("default", sweep.sweep_id)


def _model_call(*, failed: bool) -> dict[str, Any]:
    if failed:
        nothing = {"tokens_in": 0, "tokens_out": 0, "usd": 0.0, "duration_s": None}
        return {"model": "small", **nothing, "error": "Overloaded: later"}
    return {"model": "small", "tokens_in": 7, "tokens_out": 2, "usd": 0.5, "duration_s": 0.25, "cached": 3}


@pytest.fixture
def shared_ends(run_sweep: Callable[..., Bench]) -> Bench:
    """Not all variants are reached, so that an execution ends with three cells, with the scores that it wrote."""
    workflow = Workflow("short")

    def first(state: dict[str, Any]) -> dict[str, Any]:
        return {"a": state["x"] / 3}

    def never(state: dict[str, Any], *, add: int = 0) -> dict[str, Any]:
        return {}

    workflow.node(first, name="first")
    node = workflow.node(never, name="never")
    node.variant("other", add=1)
    node.variant("third", add=2)
    workflow.entry("first")
    workflow.edge("first", END)
    workflow.edge("first", "never", when=lambda state: state["x"] < 0)

    def share(case: Any, run: Any) -> dict[str, float]:
        return {"share": run.state["a"], "half": 0.5}

    def broken(case: Any, run: Any) -> float:
        raise ValueError("no such score")

    cases = [{"id": f"case {x}", "input": {"x": x}} for x in range(2)]
    return run_sweep(workflow, cases, {"never": "all"}, evaluators={"share": share, "broken": broken})


ENDS = ["execution.completed", *["cell.succeeded"] * 3]


def test_the_ends_of_cells_that_one_execution_stands_for_follow_its_own(shared_ends: Bench) -> None:
    log = [row for row in log_of(shared_ends.database, shared_ends.sweep_id) if row["kind"] in ENDS]

    assert [row["kind"] for row in log] == ENDS * 2
    for end, *of_cells in (log[:4], log[4:]):
        assert end["data"].pop("result").keys() == {"x", "a"}
        assert end["data"] == {"cells": 3}
        assert [row["id"] for row in of_cells] == list(range(end["id"] + 1, end["id"] + 4))
        for number, row in enumerate(of_cells):
            x = int(row["data"]["case"].removeprefix("case "))
            scores = dict(row["data"].pop("scores"))
            assert row["data"] == {"case": f"case {x}", "repeat": 0, "combination": number}
            assert "no such score" in scores.pop("broken")
            assert scores == {"share.share": x / 3, "share.half": 0.5}
            assert all(isinstance(value, float) for value in scores.values())


def test_pages_may_end_among_the_events_of_one_row(shared_ends: Bench) -> None:
    whole = log_of(shared_ends.database, shared_ends.sweep_id)
    for kinds in (["execution.completed"], ["cell."], ENDS, ["sweep.", "cell.succeeded"]):
        matches = [row for row in whole if row["kind"].startswith(tuple(kinds))]
        for size in (1, 2, 3):
            assert paged(shared_ends.database, shared_ends.sweep_id, size, kinds) == matches, (kinds, size)


def _rescored(sweep: Bench, of: ExecutionRow) -> None:
    write_scores(sweep.database, sweep.row, [(of, [Score("share.half", 9.0, Measure())])])


def _retried(sweep: Bench, of: ExecutionRow) -> None:
    retry(sweep.database, sweep.sweep_id, ("succeeded",), execution_id=of.id)


def _rolled_back(sweep: Bench, of: ExecutionRow) -> None:
    (root,) = (row["id"] for row in sweep.rows(checkpoints) if not row["parent_id"] and row["execution_id"] == of.id)
    begin(sweep.database, of.id, root, Ending("anna", None, "rolled back", "its beginning", None))


@pytest.mark.parametrize("superseded", [_rescored, _retried, _rolled_back])
def test_an_outcome_that_is_superseded_stays_in_the_log_as_it_was(
    shared_ends: Bench, superseded: Callable[[Bench, ExecutionRow], None]
) -> None:
    before = log_of(shared_ends.database, shared_ends.sweep_id)
    (of, other) = shared_ends.executions

    superseded(shared_ends, of)

    assert log_of(shared_ends.database, shared_ends.sweep_id)[: len(before)] == before
    written = [row["execution_id"] for row in shared_ends.rows(events) if row["kind"] in ENDS]
    assert set(written) == {of.id}, "only what was superseded is written"
    with shared_ends.database.read() as connection:
        assert derived_counts(connection, shared_ends.sweep_id, of.id).keys().isdisjoint(ENDS)
        assert derived_counts(connection, shared_ends.sweep_id, other.id)["cell.succeeded"] == 3


def test_ids_that_are_taken_at_the_same_time_follow_one_another(database: Database) -> None:
    def take(_: int) -> list[int]:
        with database.write() as connection:
            return list(take_positions(connection, 400)[1])

    with ThreadPoolExecutor(4) as pool:
        id_lists = list(pool.map(take, range(40)))

    assert all(ids == list(range(ids[0], ids[0] + 400)) for ids in id_lists)
    assert len({id for ids in id_lists for id in ids}) == 40 * 400


def test_pages_of_any_size_are_the_whole_log(sweep: Bench) -> None:
    for size in (1, 2, 7):
        assert paged(sweep.database, sweep.sweep_id, size) == log_of(sweep.database, sweep.sweep_id), size


def test_a_filter_takes_from_the_whole_log(sweep: Bench) -> None:
    whole = log_of(sweep.database, sweep.sweep_id)
    kind_lists = [["node_run."], ["checkpoint.created", "execution."], ["cell"], ["decision"], ["tool.called"]]
    for kinds in [*kind_lists, ["model.called"], ["variant.applied", "attempt."]]:
        matches = queries.event_rows(sweep.database, sweep.sweep_id, kinds=kinds)
        assert matches, kinds
        assert paged(sweep.database, sweep.sweep_id, 2, kinds) == matches, kinds
        assert matches == [row for row in whole if row["kind"].startswith(tuple(kinds))], kinds
    assert queries.event_rows(sweep.database, sweep.sweep_id, severities=["warning"]) == [
        row for row in whole if row["severity"] == "warning"
    ]
    execution_id = whole[-2]["execution_id"]
    assert queries.event_rows(sweep.database, sweep.sweep_id, execution=execution_id) == [
        row for row in whole if row["execution_id"] == execution_id
    ]


def test_an_end_is_read_with_its_own_scores_alone(sweep: Bench) -> None:
    """SQLite knows nothing of how many there are: it read all scores of a sweep for each execution that ended."""
    if not sweep.database.is_sqlite:
        pytest.skip("PostgreSQL counts rows before it plans; benchmarks/distributed/query_plans.py looks at its plans")
    statements: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        statements.append((statement, parameters))

    sa.event.listen(sweep.database.engine, "before_cursor_execute", note)
    assert queries.event_rows(sweep.database, sweep.sweep_id, kinds=["cell"], limit=5)
    sa.event.remove(sweep.database.engine, "before_cursor_execute", note)
    (statement, parameters) = next(pair for pair in statements if "scores" in pair[0])
    with sweep.database.read() as connection:
        plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    (of_scores,) = [line for line in plan if line.startswith(("SEARCH scores", "SCAN scores"))]
    assert "sweep_id=? AND metric=? AND case_number=? AND repeat=? AND combination=?" in of_scores


def test_counts_are_those_of_the_log(sweep: Bench) -> None:
    log = log_of(sweep.database, sweep.sweep_id)
    counted = {(row.kind, row.severity): row.number for row in details.event_counts(sweep.database, sweep.sweep_id)}
    assert counted == {key: sum((r["kind"], r["severity"]) == key for r in log) for key in counted}
    assert sum(counted.values()) == len(log) == details.belongings(sweep.database, sweep.sweep_id)["events"]


@pytest.mark.parametrize("then", ["change", "go"])
def test_the_log_stays_as_it_is_when_rows_change_or_go(sweep: Bench, then: str) -> None:
    before = log_of(sweep.database, sweep.sweep_id)
    with sweep.database.write() as connection:
        for table in (node_runs, checkpoints, executions):
            keep_events(connection, table, list(connection.scalars(sa.select(table.c.id))))
        assert derived_counts(connection, sweep.sweep_id) == {}
        if then == "go":
            connection.execute(checkpoints.delete())
        else:
            connection.execute(node_runs.update().values(execution_id="another", status="failed"))

    assert log_of(sweep.database, sweep.sweep_id) == before


def test_what_comes_after_a_flush_stands_after_it(sweep: Bench) -> None:
    last = log_of(sweep.database, sweep.sweep_id)[-1]
    with sweep.database.write() as connection:
        add_event(connection, subject("default", sweep.sweep_id), "sweep.pinned", {})

    (new,) = log_of(sweep.database, sweep.sweep_id, (last["transaction"], last["id"]))

    assert new["kind"] == "sweep.pinned"
    assert new["id"] > last["id"]


def test_a_follower_waits_for_older_transactions_before_it_sees_what_rows_say(prepared_postgres_url: str) -> None:
    database = Database(prepared_postgres_url)
    with database.write() as connection:
        _insert_sweep(connection)

    with database.engine.connect() as slow, slow.begin():
        add_event(slow, subject("default", "s"), "sweep.running", {})
        batch = Batch()
        batch.add("e", 1, node_run=_started_row("run"))
        assert flush(database, batch, 30.0) == set()  # begins second, commits first
        assert log_of(database, "s") == []  # showing it now would lose the older one for ever

    kinds = [row["kind"] for row in log_of(database, "s")]
    assert kinds == ["sweep.running", "node_run.started"]
    database.close()


@pytest.mark.parametrize("seconds_ago", [0, 100])
def test_a_node_run_that_began_lately_is_something_that_happened_in_its_sweep(
    database: Database, seconds_ago: int
) -> None:
    with database.write() as connection:
        _insert_sweep(connection)
        old = {**subject("default", "s"), "kind": "sweep.submitted", "severity": "info", "at": 0.0, "data": {}}
        insert_events(connection, [old])
        connection.execute(sweeps.update().values(queued=True))
        waits = "SELECT 'waits', session_id, sweep_id, origin, 1, 0, combinations, 'pending', 0 FROM executions"
        names = "id, session_id, sweep_id, origin, case_number, repeat, combinations, status, created_at"
        connection.execute(sa.text(f"INSERT INTO executions ({names}) {waits}"))
    batch = Batch()
    batch.add("e", 1, node_run={**_started_row("run"), "started_at": time.time() - seconds_ago})
    flush(database, batch, 30.0)

    assert overdue(database, [DEFAULT_QUEUE], 50.0) == ({"waits"} if seconds_ago else set())


def _insert_sweep(connection: sa.Connection) -> None:
    for statement in (
        "INSERT INTO workflows (id, name, version, graph) VALUES ('w', 'w', '', '{}')",
        "INSERT INTO runners (id, host, boot, pid, process_started_at) VALUES ('mine', 'h', 'b', 1, 0)",
        "INSERT INTO sweeps (id, session_id, workflow_id, name, status, spec, fingerprints, cells) "
        "VALUES ('s', 'default', 'w', 's', 'running', '{}', '{}', 1)",
        "INSERT INTO executions (id, session_id, sweep_id, origin, case_number, repeat, combinations, status, "
        "owner_id, token, created_at) VALUES ('e', 'default', 's', 'root', 0, 0, '[0]', 'running', 'mine', 1, 0)",
        "INSERT INTO checkpoints (id, sweep_id, execution_id, position, state, writers, totals, trigger, created_at) "
        "VALUES ('c', 's', 'e', '{}', '{}', '[]', '[]', 'step', 0)",
    ):
        connection.execute(sa.text(statement))


def _started_row(id: str) -> dict[str, Any]:
    row: dict[str, Any] = {"id": id, "sweep_id": "s", "execution_id": "e", "checkpoint_id": "c"}
    row |= {"task": "a", "node": "a"}
    row |= {"variant": "default", "visit": 0, "status": "running", "attempts": 0, "cells": 1, "fingerprint": "f"}
    row |= {"started_at": time.time(), "duration_s": 0.0, "usd": 0.0, "tokens_in": 0, "tokens_out": 0}
    return {**row, "started_transaction": None, "started_event": 0}


def as_restored(sweep: Bench, ahead: int) -> None:
    """Shift the log as if it were restored from a server that was `ahead` transactions ahead."""
    with sweep.database.write() as connection:
        for table, column in (
            (events, events.c.transaction),
            (node_runs, node_runs.c.started_transaction),
            (node_runs, node_runs.c.ended_transaction),
            (checkpoints, checkpoints.c.created_transaction),
            (executions, executions.c.ended_transaction),
            (calls, calls.c.logged_transaction),
            (invocations, invocations.c.logged_transaction),
        ):
            connection.execute(table.update().where(column.is_not(None)).values({column: column + ahead}))


@pytest.mark.parametrize("ahead", [0, 1_000_000])
def test_a_log_continues_where_the_database_is_restored_to_another_server(sweep: Bench, ahead: int) -> None:
    """Numbers of transactions are the server's: those of the other are no less over for being larger."""
    before = [(row["id"], row["kind"], row["data"]) for row in log_of(sweep.database, sweep.sweep_id)]
    if sweep.database.is_sqlite:
        ahead = 0
    as_restored(sweep, ahead)
    assert (log_of(sweep.database, sweep.sweep_id) == []) == (ahead > 0)

    sweep.database.prepare()

    log = log_of(sweep.database, sweep.sweep_id)
    assert [(row["id"], row["kind"], row["data"]) for row in log] == (sorted(before) if ahead else before)
    with sweep.database.write() as connection:
        add_event(connection, subject("default", sweep.sweep_id), "sweep.pinned", {})
    last = log[-1]
    (new,) = log_of(sweep.database, sweep.sweep_id, (last["transaction"], last["id"]))
    assert new["kind"] == "sweep.pinned"
    assert log_of(sweep.database, sweep.sweep_id) == [*log, new]
    sweep.database.prepare()
    assert log_of(sweep.database, sweep.sweep_id) == [*log, new], "once is enough"
