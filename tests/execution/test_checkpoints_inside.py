"""Checkpoints inside a node: saved values and files are there when it starts again in the same visit."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.bench import Bench, one_node
from tests.support.flows import Flows, attempts_of, events_of
from tests.support.prose import sentence
from tests.support.waiting import until
from wtb.authoring.context.attempt_record import Record
from wtb.authoring.context.surroundings import CheckpointTaker
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.config.run_options import Run
from wtb.core.errors import InputError, StateError
from wtb.execution.engine.attempt import timed_checkpoints
from wtb.operations.context import Context
from wtb.operations.control.rollback import rollback
from wtb.planning.sweep_spec import parse_spec
from wtb.store.control import executions as steering
from wtb.store.control.forks import retry
from wtb.store.files.workspaces import Snapshot
from wtb.store.tables.schema import checkpoints, executions

Make = Callable[..., Bench]


def inside(bench: Bench) -> list[dict[str, Any]]:
    rows = [row for row in bench.rows(checkpoints) if row["inside"] is not None]
    return sorted(rows, key=lambda row: float(row["created_at"]))


def test_an_attempt_continues_from_what_the_one_before_it_saved(run_sweep: Make) -> None:
    def a(state: Any, ctx: Any) -> dict[str, Any]:
        done = ctx.saved.get("done", 0)
        leftovers = sorted(path.name for path in ctx.workspace.iterdir())
        (ctx.workspace / "first").write_text("1")
        ctx.checkpoint("halfway", done=done + 10)
        ctx.saved["done"] = "changed"
        (ctx.workspace / "after").write_text("lost")
        if ctx.attempt == 1:
            raise ValueError("after the checkpoint")
        return {"done": done, "left": leftovers}

    bench = run_sweep(one_node(a, retries=1, backoff=0.01))

    state = bench.cells()[0].state
    assert (state["done"], state["left"]) == (10, ["first"])
    first, second = inside(bench)
    assert (first["name"], first["trigger"], first["writers"]) == ("halfway", "manual", [])
    assert first["parent_id"] == second["parent_id"] == bench.ran("a")[0]["checkpoint_id"]
    (execution,) = bench.rows(executions)
    assert execution["head_id"] not in (first["id"], second["id"])
    assert first["inside"]["node_run"] == bench.ran("a")[0]["id"]


def test_what_was_saved_survives_the_end_of_the_process_and_of_the_run(flows: Flows) -> None:
    text = """
@wf.node
def a(state, ctx):
    say("seen", ctx.saved.get("n", 0))
    n = ctx.saved.get("n", 0) + 1
    (ctx.workspace / f"file-{n}").write_text(str(n))
    ctx.checkpoint("counted", n=n)
    if n < 4:
        os._exit(7)
    return {"n": n, "files": sorted(os.listdir(ctx.workspace))}
"""
    bench = flows.bench(text, run={"set_aside_after": 2})
    bench.run()
    assert bench.counts == {"set_aside": 1}

    retry(bench.database, bench.sweep_id, ("set_aside",))
    bench.run()
    retry(bench.database, bench.sweep_id, ("set_aside",))
    bench.run()

    assert flows.lines_of("seen") == ["0", "1", "2", "3"]
    assert bench.cells()[0].state["files"] == ["file-1", "file-2", "file-3", "file-4"]


def test_time_based_checkpoints_are_taken_when_they_are_due(run_sweep: Make) -> None:
    def a(state: Any, ctx: Any) -> dict[str, Any]:
        return {"taken": [ctx.checkpoint("late", every=3600), ctx.checkpoint("now", every=0, n=1)]}

    bench = run_sweep(one_node(a))

    assert bench.cells()[0].state["taken"] == [False, True]
    assert [(row["name"], row["trigger"]) for row in inside(bench)] == [("now", "time")]


def test_what_cannot_be_saved_is_an_error_that_names_it(run_sweep: Make) -> None:
    def a(state: Any, ctx: Any) -> None:
        ctx.checkpoint("bad", thing=object())

    bench = run_sweep(one_node(a))

    assert sentence("checkpoint {}, key {} cannot be stored", "'bad'", "'thing'") in bench.cells()[0].error
    assert inside(bench) == []


def test_a_node_that_is_skipped_leaves_no_files_of_its_checkpoints(run_sweep: Make) -> None:
    wf = Workflow("long")

    @wf.node(on_error="skip")
    def a(state: Any, ctx: Any) -> None:
        (ctx.workspace / "half").write_text("done")
        ctx.checkpoint("halfway")
        raise ValueError("no")

    @wf.node
    def b(state: Any, ctx: Any) -> dict[str, Any]:
        return {"files": [path.name for path in ctx.workspace.iterdir()]}

    wf.entry(a)
    wf.edge(a, b)
    wf.edge(b, END)

    assert run_sweep(wf).cells()[0].state["files"] == []


def test_a_rollback_to_a_checkpoint_inside_a_node_continues_from_there(run_sweep: Make) -> None:
    wf = Workflow("long")
    effects: list[str] = []

    @wf.tool
    def note(*, text: str) -> str:
        effects.append(text)
        return text.upper()

    @note.reversed_by
    def erase(result: str, *, text: str) -> None:
        effects.append(f"un{text}")

    @wf.node
    def a(state: Any, ctx: Any) -> dict[str, Any]:
        first = ctx.tools.note(text="first")
        (ctx.workspace / "notes").write_text(ctx.saved.get("n", "none"))
        ctx.checkpoint("noted", n="saved")
        return {"got": [first, ctx.tools.note(text="second"), (ctx.workspace / "notes").read_text()]}

    wf.entry(a)
    wf.edge(a, END)
    bench = run_sweep(wf)
    assert bench.cells()[0].state["got"] == ["FIRST", "SECOND", "none"]
    (checkpoint,) = inside(bench)

    (row,) = bench.rows(executions)
    rollback(Context(bench.database), row["id"], checkpoint["id"], bound=bench.prepared.bound)
    (row,) = bench.rows(executions)
    assert (row["status"], row["head_id"] == checkpoint["id"]) == ("paused", False)
    steering.resume(bench.database, row["id"], by="ada")
    bench.run()

    assert effects == ["first", "second", "unsecond", "second"]
    assert bench.cells()[0].state["got"] == ["FIRST", "SECOND", "saved"]


# By time, for nodes that take none


SILENT = """
@wf.node
{word} a(state, ctx):
    files = sorted(os.listdir(ctx.workspace))
    if ctx.attempt == 1:
        (ctx.workspace / "model.bin").write_text("half")
        {save}
        say("pid", os.getpid())
        {wait}
    return {{"files": files, "saved": ctx.saved}}
"""
WAITING = {"def": "until((HERE / 'go').exists)", "async def": "await asyncio.to_thread(until, (HERE / 'go').exists)"}


def taken_by_time(bench: Bench) -> list[dict[str, Any]]:
    return [row for row in inside(bench) if row["trigger"] == "time"]


@pytest.mark.parametrize("word", WAITING)
@pytest.mark.parametrize("save", ["pass", 'ctx.checkpoint("by hand", epoch=3); (ctx.workspace / "later").touch()'])
def test_a_killed_node_that_takes_no_checkpoints_resumes_with_its_files(flows: Flows, save: str, word: str) -> None:
    text = SILENT.format(save=save, word=word, wait=WAITING[word])
    bench = flows.bench(text, run={"checkpoints": {"every": "50ms"}})
    run = bench.start()
    (checkpoint, *_) = until(lambda: taken_by_time(bench), "a checkpoint by time")
    os.kill(int(flows.lines_of("pid")[0]), signal.SIGKILL)
    while not run.wait(30):
        pass
    run.finish()
    (cell,) = bench.cells()
    by_hand = save != "pass"
    assert cell.state["files"] == (["later", "model.bin"] if by_hand else ["model.bin"])
    assert cell.state["saved"] == ({"epoch": 3} if by_hand else {})
    assert checkpoint["name"] is None
    assert [attempt["failure"]["kind"] for attempt in attempts_of(bench) if attempt["failure"]] == ["killed"]


def test_an_attempt_that_changes_nothing_leaves_one_checkpoint_and_ends_as_without(flows: Flows) -> None:
    text = SILENT.format(save="pass", word="def", wait=WAITING["def"])
    bench = flows.bench(text, run={"checkpoints": {"every": "20ms"}, "stall": "100ms"})
    run = bench.start()
    until(lambda: events_of(bench, "execution.stalled"), "a stall, which checkpoints by time do not hide")
    (flows.code / "go").touch()
    while not run.wait(30):
        pass
    run.finish()
    assert len(taken_by_time(bench)) == 1
    assert bench.counts == {"succeeded": 1}


class Changing:
    """A workspace that returns prepared snapshots in turn, and then the last one again."""

    def __init__(self, *snapshots: str | Exception) -> None:
        self.snapshots = list(snapshots)
        self.all_taken = threading.Event()

    def take(self, **_: Any) -> Snapshot:
        snapshot = self.snapshots.pop(0) if len(self.snapshots) > 1 else self.snapshots[0]
        if len(self.snapshots) == 1:
            self.all_taken.set()
        if isinstance(snapshot, Exception):
            raise snapshot
        return Snapshot(snapshot)


def test_what_cannot_be_taken_is_logged_once_and_tried_again() -> None:
    broken = StateError("'model.bin' is still being written to")
    workspace, reported = Changing(broken, broken, "a" * 64, "a" * 64, "b" * 64, "b" * 64, "b" * 64), []
    record = Record(on_event=lambda kind, details: reported.append((kind, details)))
    taker = CheckpointTaker(workspace, record, None, {})  # type: ignore[arg-type]
    with timed_checkpoints(taker, 0.001, record):
        assert workspace.all_taken.wait(30)
    logged = [details for kind, details in reported if kind == "event"]
    assert [details[2]["level"] for details in logged] == ["warning"]
    assert (
        sentence("no checkpoint was taken by time: ") + sentence("{} is still being written to", "'model.bin'")
        in logged[0][2]["message"]
    )
    assert [details["workspace"] for kind, details in reported if kind == "checkpoint"] == ["a" * 64, "b" * 64]


@pytest.mark.parametrize(
    "checkpoint_setting", ["often", {"every": 0}, {"every": "10m", "each": 1}, {"tools": True}, ["fine"]]
)
def test_checkpoints_that_are_none_are_rejected_with_their_place(checkpoint_setting: Any) -> None:
    with pytest.raises(InputError, match=r"run\.checkpoints"):
        parse_spec({"workflow": "a:b", "cases": "c", "vary": {"a": "all"}, "run": {"checkpoints": checkpoint_setting}})


def test_checkpoints_by_time_may_be_after_tool_calls_too() -> None:
    both = Run(checkpoints={"every": "10m", "tools": True})
    assert (both.checkpoint_every, both.takes_tool_checkpoints) == (600, True)
    assert Run(checkpoints=both.model_dump()["checkpoints"]) == both
    assert (Run(checkpoints="fine").checkpoint_every, Run(checkpoints="fine").takes_tool_checkpoints) == (None, True)
    assert Run().takes_tool_checkpoints is False
