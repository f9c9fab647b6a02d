"""Executions that people pause, change, resume, cancel and try again, while a sweep runs and while none does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.bench import Bench, finish, make_bench
from tests.support.prose import sentence
from tests.support.waiting import until
from wtb import Workflow
from wtb.authoring.breakpoints import parse_breakpoint
from wtb.core.errors import ConflictError
from wtb.operations.context import Context
from wtb.operations.control.pause_cancel import pause_and_wait, retry
from wtb.operations.control.state_edits import checked_changes
from wtb.store.control import executions as steering
from wtb.store.control import sweeps as control
from wtb.store.database import Database
from wtb.store.process_identity import identity
from wtb.store.read import queries
from wtb.store.runs import leases
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import executions, sweeps

CASES = [{"id": "one", "input": {"x": 1}}]


class Gate:
    """A node that signals its arrival, and waits until the test opens the gate."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self.visits = 0

    def pass_through(self) -> None:
        self.visits += 1
        self.entered.release()
        assert self.open.wait(60), "the test never opened the gate"

    def wait_until_entered(self) -> None:
        assert self.entered.acquire(timeout=60), "the node was never entered"


@pytest.fixture
def local(sqlite_url: str, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """Submit a sweep on SQLite alone, for tests that do not depend on the database."""
    opened = Database(sqlite_url)
    opened.prepare()
    yield lambda workflow, *args, **spec: make_bench(opened, tmp_path / "files", workflow, *args, **spec)
    opened.close()


@pytest.fixture
def gate() -> Iterator[Gate]:
    new_gate = Gate()
    yield new_gate
    new_gate.open.set()


def three_steps(gate: Gate) -> Workflow:
    """first -> middle -> last, of which `middle` waits at the gate, and `first` and `last` have two variants."""
    wf = Workflow("steps")

    @wf.node
    def first(state: dict[str, Any], *, by: int = 1) -> dict[str, Any]:
        return {"x": state["x"] + by}

    @wf.node
    def middle(state: dict[str, Any]) -> dict[str, Any]:
        gate.pass_through()
        return {"middle": True}

    @wf.node
    def last(state: dict[str, Any], *, by: int = 10) -> dict[str, Any]:
        return {"x": state["x"] * by}

    first.variant("two", by=2)
    last.variant("hundred", by=100)
    wf.entry(first)
    wf.edge(first, middle)
    wf.edge(middle, last)
    return wf


def only(bench: Bench, status: str) -> ExecutionRow:
    """Return the only execution of a status."""
    (execution,) = [row for row in bench.executions if row.status == status]
    return execution


def kinds(bench: Bench, *names: str) -> list[str]:
    return [event["kind"] for event in bench.events if event["kind"] in names]


def pause(bench: Bench, execution: str, **options: Any) -> None:
    steering.pause(bench.database, execution, reason="by ann: look", by="ann", **options)


def watch_started(bench: Bench) -> Callable[[], set[str]]:
    """Return a function that returns the executions with a head."""
    return lambda: {row.id for row in bench.executions if row.head_id is not None}


def test_an_execution_that_runs_pauses_before_its_next_step_and_continues_where_it_was(
    bench: Callable[..., Bench], gate: Gate
) -> None:
    sweep = bench(three_steps(gate), CASES)
    run = sweep.start()
    gate.wait_until_entered()
    execution = only(sweep, "running").id

    pause(sweep, execution)
    until(lambda: run.sweep.holds.requests, "the run sees what is asked of it")
    gate.open.set()
    while not run.wait(30):
        pass

    assert run.finish().reason == "paused executions: 1"
    row = only(sweep, "paused")
    assert (row.reason, row.asked, row.owner_id) == ("by ann: look", None, None)
    assert [node_run["node"] for node_run in sweep.node_runs] == ["first", "middle"]
    assert sweep.counts == {"pending": 1}

    steering.resume(sweep.database, execution, by="ann")
    assert sweep.run().status == "completed"
    assert (sweep.counts, gate.visits) == ({"succeeded": 1}, 1)
    expected = [f"execution.{word}" for word in ("pausing", "paused", "resumed", "completed")]
    assert kinds(sweep, *expected) == expected


def test_an_execution_that_is_taken_away_leaves_nothing_of_its_node_and_runs_it_again(
    bench: Callable[..., Bench], gate: Gate
) -> None:
    sweep = bench(three_steps(gate), CASES)
    run = sweep.start()
    gate.wait_until_entered()
    until(lambda: sweep.ran("middle"), "that the node began is committed")
    execution = only(sweep, "running").id

    pause(sweep, execution, at_once=True)
    assert only(sweep, "paused").id == execution
    steering.resume(sweep.database, execution, by="ann")  # the same process claims it again while the old node runs
    gate.wait_until_entered()
    gate.open.set()
    while not run.wait(30):
        pass

    assert run.finish().status == "completed"
    assert sweep.counts == {"succeeded": 1}
    (node_run,) = sweep.ran("middle")
    assert (node_run["status"], node_run["attempts"], gate.visits) == ("succeeded", 2, 2)
    assert kinds(sweep, "attempt.failed") == []


def test_what_forks_while_it_is_asked_to_pause_pauses_with_all_its_children(
    bench: Callable[..., Bench], gate: Gate
) -> None:
    sweep = bench(three_steps(gate), CASES, {"last": ["default", "hundred"]})
    run = sweep.start()
    gate.wait_until_entered()
    parent = only(sweep, "running")
    # Asked in the database alone, as by another process in the second before this one looks.
    pause(sweep, parent.id)
    run.sweep.holds.refresh = lambda requests, breakpoints: None  # type: ignore[method-assign]  # it never gets to look
    gate.open.set()
    finish(run)

    children = [row for row in sweep.executions if row.parent_id == parent.id]
    assert len(children) == 2, "it forked"
    # Those that ran to their end in that second did; none goes on unasked.
    assert all(row.asked is not None or row.status in ("paused", "completed") for row in children)


def test_those_that_wait_for_a_slot_are_paused_without_getting_one(local: Callable[..., Bench], gate: Gate) -> None:
    cases = [{"id": f"c{n}", "input": {"x": n}} for n in range(3)]
    sweep = local(three_steps(gate), cases, run={"concurrency": 1})
    run = sweep.start()
    gate.wait_until_entered()
    waiting = [row.id for row in sweep.executions if row.id not in until(watch_started(sweep), "the first has begun")]
    assert len(waiting) == 2

    line = pause_and_wait(Context(sweep.database, by="ann"), waiting[0], patience_s=60)

    assert [(row.id, row.status) for row in line] == [(waiting[0], "paused")]
    gate.open.set()
    finish(run)
    assert sweep.counts == {"succeeded": 2, "pending": 1}
    steering.resume_all(sweep.database, sweep.sweep_id, by="ann")
    assert sweep.run().status == "completed"
    assert sweep.counts == {"succeeded": 3}


def test_a_process_that_runs_a_sweep_takes_what_somebody_resumes(local: Callable[..., Bench], gate: Gate) -> None:
    cases = [{"id": f"c{n}", "input": {"x": n}} for n in range(2)]
    sweep = local(three_steps(gate), cases, run={"concurrency": 2})
    paused = sorted(row.id for row in sweep.executions)[0]
    pause(sweep, paused)
    run = sweep.start()
    gate.wait_until_entered()

    steering.resume(sweep.database, paused, by="ann")

    gate.wait_until_entered()
    gate.open.set()
    assert finish(run).status == "completed"
    assert sweep.counts == {"succeeded": 2}


def test_a_cancelled_execution_ends_its_cells_alone_and_can_be_tried_again(
    bench: Callable[..., Bench], gate: Gate
) -> None:
    sweep = bench(three_steps(gate), CASES, {"first": ["default", "two"]})
    run = sweep.start()
    gate.wait_until_entered()
    gate.wait_until_entered()
    execution = until(lambda: [row for row in sweep.executions if row.origin == "fork"], "the fork is committed")[0]

    steering.pause(sweep.database, execution.id, reason="by ann", by="ann")
    assert steering.cancel(sweep.database, execution.id, reason="by ann", by="ann") == 1
    assert queries.find_execution(sweep.database, execution.id).asked is None

    gate.open.set()
    assert finish(run).status == "completed"
    assert sweep.counts == {"succeeded": 1, "cancelled": 1}
    with pytest.raises(ConflictError, match=r"is cancelled .*possible: retry it"):
        steering.cancel(sweep.database, execution.id, reason="again", by="ann")
    retry_id = retry(sweep.database, queries.find_execution(sweep.database, execution.id))
    assert sweep.run().status == "completed"
    assert sweep.counts == {"succeeded": 2}
    assert queries.find_execution(sweep.database, retry_id).status == "completed"


def test_the_last_open_execution_of_a_sweep_that_nobody_runs_ends_it_when_cancelled(
    local: Callable[..., Bench], gate: Gate
) -> None:
    sweep = local(three_steps(gate), CASES)
    (row,) = sweep.executions

    steering.cancel(sweep.database, row.id, reason="by ann", by="ann")

    assert (sweep.status, sweep.counts) == ("completed", {"cancelled": 1})


def opened_meanwhile(sweep: Bench, decide: Callable[[], Any], *, to: str) -> Any:
    """Decide about a sweep while a transaction that holds the sweep's lock, as a rollback does, changes the status of
    an ended execution. Return the decision's outcome."""
    query = sa.select(sweeps.c.id).where(sweeps.c.id == sweep.sweep_id).with_for_update(key_share=True)
    blocked = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()")
    with ThreadPoolExecutor(1) as aside:
        with sweep.database.write() as connection:
            connection.execute(executions.update().values(status=to))
            connection.execute(query)
            coming = aside.submit(decide)
            if not sweep.database.is_sqlite:
                until(lambda: connection.scalar(blocked), "the decision waits")
        return coming.result(60)


def test_a_sweep_is_not_completed_while_one_of_its_executions_is_opened_again(
    bench: Callable[..., Bench], gate: Gate
) -> None:
    gate.open.set()
    sweep = bench(three_steps(gate), CASES)
    sweep.run()
    sweep.database.execute(sweeps.update().values(status="running"))

    remaining = opened_meanwhile(sweep, lambda: steering.complete(sweep.database, sweep.sweep_id), to="paused")

    assert (remaining, sweep.status) == ({"paused": 1}, "running")
    sweep.database.execute(executions.update().values(status="completed"))
    assert (steering.complete(sweep.database, sweep.sweep_id), sweep.status) == ({}, "completed")


def test_cancelling_a_sweep_ends_what_is_opened_meanwhile(bench: Callable[..., Bench], gate: Gate) -> None:
    gate.open.set()
    sweep = bench(three_steps(gate), CASES)
    sweep.run()
    sweep.database.execute(sweeps.update().values(status="paused"))

    opened_meanwhile(sweep, lambda: control.cancel(sweep.database, sweep.sweep_id, reason="r", by="ann"), to="paused")

    assert (sweep.status, [row.status for row in sweep.executions]) == ("cancelled", ["cancelled"])


def test_resuming_with_another_state_makes_a_checkpoint_and_marks_the_cells(
    local: Callable[..., Bench], gate: Gate
) -> None:
    gate.open.set()
    sweep = local(three_steps(gate), CASES)
    (row,) = sweep.executions
    steering.set_breakpoints(sweep.database, sweep.sweep_id, ["before last if x == 2"], by="ann")
    assert sweep.run().status == "paused"
    row = only(sweep, "paused")
    assert row.reason == "breakpoint before last if x == 2"

    changes = checked_changes(sweep.prepared.bound, {"x": 7})
    steering.resume(sweep.database, row.id, by="ann", changes=changes)
    assert sweep.run().status == "completed"

    (cell,) = sweep.cells()
    assert cell.state["x"] == 70
    assert cell.path == ("first", "middle", "last")
    assert sweep.executions[0].edited


def test_a_breakpoint_stops_all_cells_before_they_fork_and_not_again_when_resumed(
    local: Callable[..., Bench], gate: Gate
) -> None:
    gate.open.set()
    sweep = local(three_steps(gate), CASES, {"last": ["default", "hundred"]})
    steering.set_breakpoints(sweep.database, sweep.sweep_id, ["before last", "after first"], by="ann")

    stops = []
    while sweep.run().status == "paused":
        stops.append(only(sweep, "paused").reason)
        steering.resume_all(sweep.database, sweep.sweep_id, by="ann")

    assert stops == ["breakpoint after first", "breakpoint before last"]
    assert sweep.counts == {"succeeded": 2}


def test_a_condition_that_cannot_be_told_pauses_and_says_so(local: Callable[..., Bench], gate: Gate) -> None:
    gate.open.set()
    sweep = local(three_steps(gate), CASES)
    steering.set_breakpoints(sweep.database, sweep.sweep_id, ["before middle if answer.score < 0.5"], by="ann")

    sweep.run()

    assert sentence("{}: the state has no key {}", "is unknown", "'answer' yet") in only(sweep, "paused").reason


def test_what_is_impossible_is_refused_with_what_is_possible(
    local: Callable[..., Bench], gate: Gate, subtests: pytest.Subtests
) -> None:
    sweep = local(three_steps(gate), CASES)
    (row,) = sweep.executions
    for status, possible in (
        ("completed", sentence("fork it, or roll it back")),
        ("failed", "retry it"),
        ("forked", "wtb show"),
        ("running", "pause, cancel"),
    ):
        owner = {"owner_id": "somebody"} if status == "running" else {}
        sweep.database.execute(executions.update().where(executions.c.id == row.id).values(status=status, **owner))
        with subtests.test(status), pytest.raises(ConflictError, match=f"is {status}: .*{possible}"):
            steering.resume(sweep.database, row.id, by="ann")


def test_what_a_dead_process_holds_is_paused_at_once(local: Callable[..., Bench], gate: Gate) -> None:
    sweep = local(three_steps(gate), CASES)
    dead = replace(identity(), pid=2**22 + 1)
    leases.register(sweep.database, dead)
    (row,) = leases.claim(sweep.database, sweep.sweep_id, dead.id, 1, 30.0)

    (paused,) = pause_and_wait(Context(sweep.database, by="ann"), row.id, patience_s=0.0)

    assert (paused.status, paused.owner_id, paused.token) == ("paused", None, row.token + 1)


def test_two_who_pause_at_once_are_both_told_and_it_is_paused_once(bench: Callable[..., Bench], gate: Gate) -> None:
    sweep = bench(three_steps(gate), CASES)
    (row,) = sweep.executions
    refused: list[str] = []

    def pause_by(name: str) -> None:
        try:
            steering.pause(sweep.database, row.id, reason=f"by {name}", by=name)
        except ConflictError as error:
            refused.append(str(error))

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(pause_by, ("ann", "bob")))
    assert len(refused) == 1
    assert sentence("is paused ({}", "by ") in refused[0]
    assert kinds(sweep, "execution.paused") == ["execution.paused"]


def test_a_breakpoint_is_written_in_one_way_and_checked_against_the_graph() -> None:
    nodes, keys = ["answer", "after care"], ["docs", "answer"]
    assert str(parse_breakpoint("answer", nodes)) == "before answer"
    assert str(parse_breakpoint("after answer if len(docs) == 0", nodes, keys)) == "after answer if len(docs) == 0"
    assert str(parse_breakpoint("after care", nodes)) == "before after care"
    assert parse_breakpoint("after after care", nodes).when == "after"


def test_a_sweep_that_ends_as_it_reaches_a_limit_stays_ended(local: Callable[..., Bench], gate: Gate) -> None:
    """Given a run that a limit has stopped, when its sweep is cancelled before the pause, then it stays so."""
    sweep = local(three_steps(gate), [{"input": {"x": 1}}])
    run = sweep.start()
    gate.wait_until_entered()
    run.stop.request("limit reached: node_runs = 2", limit="node_runs")
    control.cancel(sweep.database, sweep.sweep_id, reason="by ann", by="ann")
    gate.open.set()
    assert run.wait(30)
    ended = run.finish()
    assert (ended.status, ended.reason, sweep.status) == ("cancelled", "by ann", "cancelled")
