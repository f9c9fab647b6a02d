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

from tests.support.bench import Bench, make_bench
from tests.support.prose import sentence
from wtb import END, Workflow
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
    """A node that waits until the test lets it go on, and says that it is there."""

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
    """Submit a sweep on SQLite alone: for what is no matter of the database."""
    opened = Database(sqlite_url)
    opened.prepare()
    yield lambda workflow, *args, **spec: make_bench(opened, tmp_path / "files", workflow, *args, **spec)
    opened.close()


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


def three_steps(gate: Gate) -> Workflow:
    """first -> held -> last, of which `held` waits at the gate, and `first` and `last` have two variants."""
    wf = Workflow("steps")

    @wf.node
    def first(state: dict[str, Any], *, by: int = 1) -> dict[str, Any]:
        return {"x": state["x"] + by}

    @wf.node
    def held(state: dict[str, Any]) -> dict[str, Any]:
        gate.pass_through()
        return {"held": True}

    @wf.node
    def last(state: dict[str, Any], *, by: int = 10) -> dict[str, Any]:
        return {"x": state["x"] * by}

    first.variant("two", by=2)
    last.variant("hundred", by=100)
    wf.entry(first)
    wf.edge(first, held)
    wf.edge(held, last)
    wf.edge(last, END)
    return wf


def only(bench: Bench, status: str) -> ExecutionRow:
    """The one execution of a status."""
    (found,) = [row for row in bench.executions if row.status == status]
    return found


def kinds(bench: Bench, *wanted: str) -> list[str]:
    return [event["kind"] for event in bench.events if event["kind"] in wanted]


def pause(bench: Bench, execution: str, **options: Any) -> None:
    steering.pause(bench.database, execution, reason="by ann: look", by="ann", **options)


def begun(bench: Bench) -> Callable[[], set[str]]:
    """Asks for the executions that have a head."""
    return lambda: {row.id for row in bench.executions if row.head_id is not None}


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait for something that is seen within a second, however slow the machine is."""
    waiting = threading.Event()
    for _ in range(1200):
        if found := condition():
            return found
        waiting.wait(0.05)
    raise AssertionError(f"still waiting: {what}")


def test_an_execution_that_runs_pauses_before_its_next_step_and_goes_on_where_it_was(
    bench: Callable[..., Bench], gate: Gate
) -> None:
    made = bench(three_steps(gate), CASES)
    run = made.start()
    gate.wait_until_entered()
    execution = only(made, "running").id

    pause(made, execution)
    until(lambda: run.sweep.holds.requests, "the run sees what is asked of it")
    gate.open.set()
    while not run.wait(30):
        pass

    assert run.finish().reason == "paused executions: 1"
    row = only(made, "paused")
    assert (row.reason, row.asked, row.owner_id) == ("by ann: look", None, None)
    assert [one["node"] for one in made.node_runs] == ["first", "held"]
    assert made.counts == {"pending": 1}

    steering.resume(made.database, execution, by="ann")
    assert made.run().status == "completed"
    assert (made.counts, gate.visits) == ({"succeeded": 1}, 1)
    wanted = [f"execution.{word}" for word in ("pausing", "paused", "resumed", "completed")]
    assert kinds(made, *wanted) == wanted


def test_an_execution_that_is_taken_away_leaves_nothing_of_its_node_and_runs_it_again(
    bench: Callable[..., Bench], gate: Gate
) -> None:
    made = bench(three_steps(gate), CASES)
    run = made.start()
    gate.wait_until_entered()
    until(lambda: made.ran("held"), "that the node began is committed")
    execution = only(made, "running").id

    pause(made, execution, at_once=True)
    assert only(made, "paused").id == execution
    steering.resume(made.database, execution, by="ann")  # the same process claims it again while the old node runs
    gate.wait_until_entered()
    gate.open.set()
    while not run.wait(30):
        pass

    assert run.finish().status == "completed"
    assert made.counts == {"succeeded": 1}
    (held,) = made.ran("held")
    assert (held["status"], held["attempts"], gate.visits) == ("succeeded", 2, 2)
    assert kinds(made, "attempt.failed") == []


def test_what_forks_while_it_is_asked_to_pause_pauses_with_all_its_children(
    bench: Callable[..., Bench], gate: Gate
) -> None:
    made = bench(three_steps(gate), CASES, {"last": ["default", "hundred"]})
    run = made.start()
    gate.wait_until_entered()
    parent = only(made, "running")
    # Asked in the database alone, as by another process in the second before this one looks.
    pause(made, parent.id)
    run.sweep.holds.refresh = lambda requests, breakpoints: None  # type: ignore[method-assign]  # it never gets to look
    gate.open.set()
    while not run.wait(30):
        pass
    run.finish()

    children = [row for row in made.executions if row.parent_id == parent.id]
    assert len(children) == 2, "it forked"
    # Those that ran to their end in that second did; none goes on unasked.
    assert all(row.asked is not None or row.status in ("paused", "completed") for row in children)


def test_those_that_wait_for_a_slot_are_paused_without_getting_one(local: Callable[..., Bench], gate: Gate) -> None:
    cases = [{"id": f"c{n}", "input": {"x": n}} for n in range(3)]
    made = local(three_steps(gate), cases, run={"concurrency": 1})
    run = made.start()
    gate.wait_until_entered()
    waiting = [row.id for row in made.executions if row.id not in until(begun(made), "the first has begun")]
    assert len(waiting) == 2

    line = pause_and_wait(Context(made.database, by="ann"), waiting[0], patience_s=60)

    assert [(row.id, row.status) for row in line] == [(waiting[0], "paused")]
    gate.open.set()
    while not run.wait(30):
        pass
    run.finish()
    assert made.counts == {"succeeded": 2, "pending": 1}
    steering.resume_all(made.database, made.sweep_id, by="ann")
    assert made.run().status == "completed"
    assert made.counts == {"succeeded": 3}


def test_a_process_that_runs_a_sweep_takes_what_somebody_resumes(local: Callable[..., Bench], gate: Gate) -> None:
    cases = [{"id": f"c{n}", "input": {"x": n}} for n in range(2)]
    made = local(three_steps(gate), cases, run={"concurrency": 2})
    paused = sorted(row.id for row in made.executions)[0]
    pause(made, paused)
    run = made.start()
    gate.wait_until_entered()

    steering.resume(made.database, paused, by="ann")

    gate.wait_until_entered()
    gate.open.set()
    while not run.wait(30):
        pass
    assert run.finish().status == "completed"
    assert made.counts == {"succeeded": 2}


def test_a_cancelled_execution_ends_its_cells_alone_and_can_be_tried_again(
    bench: Callable[..., Bench], gate: Gate
) -> None:
    made = bench(three_steps(gate), CASES, {"first": ["default", "two"]})
    run = made.start()
    gate.wait_until_entered()
    gate.wait_until_entered()
    execution = until(lambda: [row for row in made.executions if row.origin == "fork"], "the fork is committed")[0]

    steering.pause(made.database, execution.id, reason="by ann", by="ann")
    assert steering.cancel(made.database, execution.id, reason="by ann", by="ann") == 1
    assert queries.find_execution(made.database, execution.id).asked is None

    gate.open.set()
    while not run.wait(30):
        pass
    assert run.finish().status == "completed"
    assert made.counts == {"succeeded": 1, "cancelled": 1}
    with pytest.raises(ConflictError, match=r"is cancelled .*possible: retry it"):
        steering.cancel(made.database, execution.id, reason="again", by="ann")
    again = retry(made.database, queries.find_execution(made.database, execution.id))
    assert made.run().status == "completed"
    assert made.counts == {"succeeded": 2}
    assert queries.find_execution(made.database, again).status == "completed"


def test_the_last_open_execution_of_a_sweep_that_nobody_runs_ends_it_when_cancelled(
    local: Callable[..., Bench], gate: Gate
) -> None:
    made = local(three_steps(gate), CASES)
    (row,) = made.executions

    steering.cancel(made.database, row.id, reason="by ann", by="ann")

    assert (made.status, made.counts) == ("completed", {"cancelled": 1})


def opened_meanwhile(made: Bench, decide: Callable[[], Any], *, to: str) -> Any:
    """What comes of a decision about a sweep while a transaction gives an ended execution another status, with the
    sweep's lock as a rollback has it."""
    wanted = sa.select(sweeps.c.id).where(sweeps.c.id == made.sweep_id).with_for_update(key_share=True)
    blocked = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()")
    with ThreadPoolExecutor(1) as aside:
        with made.database.write() as connection:
            connection.execute(executions.update().values(status=to))
            connection.execute(wanted)
            coming = aside.submit(decide)
            if not made.database.is_sqlite:
                until(lambda: connection.scalar(blocked), "the decision waits")
        return coming.result(60)


def test_a_sweep_is_not_completed_while_one_of_its_executions_is_opened_again(
    bench: Callable[..., Bench], gate: Gate
) -> None:
    gate.open.set()
    made = bench(three_steps(gate), CASES)
    made.run()
    with made.database.write() as connection:
        connection.execute(sweeps.update().values(status="running"))

    left = opened_meanwhile(made, lambda: steering.complete(made.database, made.sweep_id), to="paused")

    assert (left, made.status) == ({"paused": 1}, "running")
    with made.database.write() as connection:
        connection.execute(executions.update().values(status="completed"))
    assert (steering.complete(made.database, made.sweep_id), made.status) == ({}, "completed")


def test_cancelling_a_sweep_ends_what_is_opened_meanwhile(bench: Callable[..., Bench], gate: Gate) -> None:
    gate.open.set()
    made = bench(three_steps(gate), CASES)
    made.run()
    with made.database.write() as connection:
        connection.execute(sweeps.update().values(status="paused"))

    opened_meanwhile(made, lambda: control.cancel(made.database, made.sweep_id, reason="r", by="ann"), to="paused")

    assert (made.status, [row.status for row in made.executions]) == ("cancelled", ["cancelled"])


def test_resuming_with_another_state_makes_a_checkpoint_and_marks_the_cells(
    local: Callable[..., Bench], gate: Gate
) -> None:
    gate.open.set()
    made = local(three_steps(gate), CASES)
    (row,) = made.executions
    steering.set_breakpoints(made.database, made.sweep_id, ["before last if x == 2"], by="ann")
    assert made.run().status == "paused"
    row = only(made, "paused")
    assert row.reason == "breakpoint before last if x == 2"

    changes = checked_changes(made.prepared.bound, {"x": 7})
    steering.resume(made.database, row.id, by="ann", changes=changes)
    assert made.run().status == "completed"

    (cell,) = made.cells()
    assert cell.state["x"] == 70
    assert cell.path == ("first", "held", "last")
    assert made.executions[0].edited


def test_a_breakpoint_stops_all_cells_before_they_fork_and_not_again_when_resumed(
    local: Callable[..., Bench], gate: Gate
) -> None:
    gate.open.set()
    made = local(three_steps(gate), CASES, {"last": ["default", "hundred"]})
    steering.set_breakpoints(made.database, made.sweep_id, ["before last", "after first"], by="ann")

    stops = []
    while made.run().status == "paused":
        stops.append(only(made, "paused").reason)
        steering.resume_all(made.database, made.sweep_id, by="ann")

    assert stops == ["breakpoint after first", "breakpoint before last"]
    assert made.counts == {"succeeded": 2}


def test_a_condition_that_cannot_be_told_pauses_and_says_so(local: Callable[..., Bench], gate: Gate) -> None:
    gate.open.set()
    made = local(three_steps(gate), CASES)
    steering.set_breakpoints(made.database, made.sweep_id, ["before held if answer.score < 0.5"], by="ann")

    made.run()

    assert sentence("{}: the state has no key {}", "is unknown", "'answer' yet") in only(made, "paused").reason


@pytest.mark.parametrize(
    ("status", "verb", "possible"),
    [
        ("completed", steering.resume, sentence("fork it, or roll it back")),
        ("failed", steering.resume, "retry it"),
        ("forked", steering.resume, "wtb show"),
        ("running", steering.resume, "pause, cancel"),
    ],
)
def test_what_is_impossible_is_refused_with_what_is_possible(
    local: Callable[..., Bench], gate: Gate, status: str, verb: Callable[..., Any], possible: str
) -> None:
    made = local(three_steps(gate), CASES)
    (row,) = made.executions
    owner = {"owner_id": "somebody"} if status == "running" else {}
    with made.database.write() as connection:
        connection.execute(executions.update().where(executions.c.id == row.id).values(status=status, **owner))

    with pytest.raises(ConflictError, match=f"is {status}: .*{possible}"):
        verb(made.database, row.id, by="ann")


def test_what_a_dead_process_holds_is_paused_at_once(local: Callable[..., Bench], gate: Gate) -> None:
    made = local(three_steps(gate), CASES)
    dead = replace(identity(), pid=2**22 + 1)
    leases.register(made.database, dead)
    (row,) = leases.claim(made.database, made.sweep_id, dead.id, 1, 30.0)

    (paused,) = pause_and_wait(Context(made.database, by="ann"), row.id, patience_s=0.0)

    assert (paused.status, paused.owner_id, paused.token) == ("paused", None, row.token + 1)


def test_two_who_pause_at_once_are_both_told_and_it_is_paused_once(bench: Callable[..., Bench], gate: Gate) -> None:
    made = bench(three_steps(gate), CASES)
    (row,) = made.executions
    refused: list[str] = []

    def one(name: str) -> None:
        try:
            steering.pause(made.database, row.id, reason=f"by {name}", by=name)
        except ConflictError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=one, args=(name,)) for name in ("ann", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(refused) == 1
    assert sentence("is paused ({}", "by ") in refused[0]
    assert kinds(made, "execution.paused") == ["execution.paused"]


def test_a_breakpoint_is_written_in_one_way_and_checked_against_the_graph() -> None:
    nodes, keys = ["answer", "after care"], ["docs", "answer"]
    assert str(parse_breakpoint("answer", nodes)) == "before answer"
    assert str(parse_breakpoint("after answer if len(docs) == 0", nodes, keys)) == "after answer if len(docs) == 0"
    assert str(parse_breakpoint("after care", nodes)) == "before after care"
    assert parse_breakpoint("after after care", nodes).when == "after"


def test_a_sweep_that_ends_as_it_reaches_a_limit_stays_ended(local: Callable[..., Bench], gate: Gate) -> None:
    """Given a run that a limit has stopped, when its sweep is cancelled before the pause, then it stays so."""
    made = local(three_steps(gate), [{"input": {"x": 1}}])
    run = made.start()
    gate.wait_until_entered()
    run.stop.request("limit reached: node_runs = 2", limit="node_runs")
    control.cancel(made.database, made.sweep_id, reason="by ann", by="ann")
    gate.open.set()
    assert run.wait(30)
    ended = run.finish()
    assert (ended.status, ended.reason, made.status) == ("cancelled", "by ann", "cancelled")
