"""Checkpoints inside a node: what it saved and its files are there when it starts again in the same visit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.bench import Bench
from tests.support.flows import Flows
from wtb.authoring.edges import END
from wtb.authoring.workflow import Workflow
from wtb.operations.context import Context
from wtb.operations.control.rollback import rollback
from wtb.store.control import executions as steering
from wtb.store.runs.retry import retry
from wtb.store.tables.schema import checkpoints, executions

Make = Callable[..., Bench]


def inside(bench: Bench) -> list[dict[str, Any]]:
    taken = [row for row in bench.rows(checkpoints) if row["inside"] is not None]
    return sorted(taken, key=lambda row: float(row["created_at"]))


def test_an_attempt_goes_on_from_what_the_one_before_it_saved(run_sweep: Make) -> None:
    wf = Workflow("long")

    @wf.node(retries=1, backoff=0.01)
    def a(state: Any, ctx: Any) -> dict[str, Any]:
        done = ctx.saved.get("done", 0)
        left = sorted(path.name for path in ctx.workspace.iterdir())
        (ctx.workspace / "first").write_text("1")
        ctx.checkpoint("halfway", done=done + 10)
        ctx.saved["done"] = "changed"
        (ctx.workspace / "after").write_text("lost")
        if ctx.attempt == 1:
            raise ValueError("after the checkpoint")
        return {"done": done, "left": left}

    wf.entry(a)
    wf.edge(a, END)

    bench = run_sweep(wf)

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

    assert flows.said("seen") == ["0", "1", "2", "3"]
    assert bench.cells()[0].state["files"] == ["file-1", "file-2", "file-3", "file-4"]


def test_time_based_checkpoints_are_taken_when_they_are_due(run_sweep: Make) -> None:
    wf = Workflow("long")

    @wf.node
    def a(state: Any, ctx: Any) -> dict[str, Any]:
        return {"taken": [ctx.checkpoint("late", every=3600), ctx.checkpoint("now", every=0, n=1)]}

    wf.entry(a)
    wf.edge(a, END)

    bench = run_sweep(wf)

    assert bench.cells()[0].state["taken"] == [False, True]
    assert [(row["name"], row["trigger"]) for row in inside(bench)] == [("now", "time")]


def test_what_cannot_be_saved_is_an_error_that_names_it(run_sweep: Make) -> None:
    wf = Workflow("long")

    @wf.node
    def a(state: Any, ctx: Any) -> None:
        ctx.checkpoint("bad", thing=object())

    wf.entry(a)
    wf.edge(a, END)

    bench = run_sweep(wf)

    assert "checkpoint 'bad', key 'thing' cannot be stored" in bench.cells()[0].error
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


def test_a_rollback_to_a_checkpoint_inside_a_node_goes_on_from_there(run_sweep: Make) -> None:
    wf = Workflow("long")
    made: list[str] = []

    @wf.tool
    def note(*, text: str) -> str:
        made.append(text)
        return text.upper()

    @note.reversed_by
    def erase(result: str, *, text: str) -> None:
        made.append(f"un{text}")

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
    (taken,) = inside(bench)

    (row,) = bench.rows(executions)
    rollback(Context(bench.database), row["id"], taken["id"], bound=bench.prepared.bound)
    (row,) = bench.rows(executions)
    assert (row["status"], row["head_id"] == taken["id"]) == ("paused", False)
    steering.resume(bench.database, row["id"], by="ada")
    bench.run()

    assert made == ["first", "second", "unsecond", "second"]
    assert bench.cells()[0].state["got"] == ["FIRST", "SECOND", "saved"]
