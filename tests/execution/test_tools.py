"""Tool calls of nodes are recorded as they happen, on threads and in node processes, and are not repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.bench import Bench
from tests.support.flows import Flows
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.operations.context import Context
from wtb.operations.control.answers import answer
from wtb.store.tables.schema import approvals, invocations

Make = Callable[..., Bench]

TOOLS = """
@wf.tool
def search(*, q):
    say("made", f"search {q}")
    return [q]

@wf.tool
def book(*, seat):
    say("made", f"book {seat}")
    return f"booked {seat}"
"""


def calls(bench: Bench) -> list[tuple[int, int, str, str]]:
    query = sa.select(invocations).order_by(invocations.c.number)
    with bench.database.read() as connection:
        return [(row.attempt, row.number, row.tool, row.status) for row in connection.execute(query)]


def test_tool_calls_are_kept_with_their_node_run(run_sweep: Make) -> None:
    wf = Workflow("travel")

    @wf.tool
    def book(*, seat: int) -> dict[str, int]:
        if seat > 2:
            raise ValueError("full")
        return {"seat": seat}

    @wf.node
    def a(state: Any, ctx: Any) -> dict[str, Any]:
        first = ctx.tools.book(seat=1)
        try:
            ctx.tools.book(seat=3)
        except ValueError as error:
            return {"got": first, "error": str(error)}
        return {}

    wf.entry(a)
    wf.edge(a, END)

    bench = run_sweep(wf)

    assert bench.cells()[0].state == {"x": 1, "got": {"seat": 1}, "error": "full"}
    with bench.database.read() as connection:
        first, second = connection.execute(sa.select(invocations).order_by(invocations.c.number)).mappings()
    assert (first["tool"], first["arguments"], first["result"]) == ("book", '{"seat":1}', '{"seat":1}')
    assert (second["status"], second["error"], second["result"]) == ("failed", "ValueError: full", None)
    assert first["node_run_id"] == bench.ran("a")[0]["id"]


def test_an_attempt_that_failed_makes_its_calls_again(flows: Flows) -> None:
    text = """
@wf.node(retries=1, backoff=0.01)
def a(state, ctx):
    ctx.tools.search(q="x")
    if ctx.attempt == 1:
        raise ValueError("no")
    return {"y": ctx.tools.book(seat=2)}
"""
    bench = flows.run(TOOLS + text, run={"checkpoints": "fine"})

    assert bench.cells()[0].state["y"] == "booked 2"
    assert flows.lines_of("made") == ["search x", "search x", "book 2"]
    assert calls(bench) == [(1, 0, "search", "done"), (2, 1, "search", "done"), (2, 2, "book", "done")]


def test_with_fine_checkpoints_a_lost_attempt_continues_after_its_last_call(flows: Flows) -> None:
    text = """
@wf.node
def a(state, ctx):
    result = ctx.tools.search(q="x")
    (ctx.workspace / f"notes-{ctx.attempt}").write_text("kept")
    ctx.tools.book(seat=1)
    if ctx.attempt == 1:
        os._exit(7)
    return {"found": result, "files": sorted(os.listdir(ctx.workspace))}
"""
    bench = flows.run(TOOLS + text, run={"checkpoints": "fine"})

    assert flows.lines_of("made") == ["search x", "book 1"]
    state = bench.cells()[0].state
    assert (state["found"], state["files"]) == (["x"], ["notes-1", "notes-2"])
    assert calls(bench) == [(1, 0, "search", "done"), (1, 1, "book", "done")]
    named = [row["data"]["name"] for row in bench.events if row["data"].get("name")]
    assert [name for name in named if "#" in name] == ["search #0", "book #1"]


def test_without_them_it_makes_its_calls_again(flows: Flows) -> None:
    text = """
@wf.node
def a(state, ctx):
    ctx.tools.search(q="x")
    if ctx.attempt == 1:
        os._exit(7)
"""
    bench = flows.run(TOOLS + text)

    assert flows.lines_of("made") == ["search x", "search x"]
    assert bench.counts == {"succeeded": 1}


@pytest.mark.parametrize(("action", "changes", "y"), [("approve", {}, 1), ("modify", {"x": 7}, 7)])
def test_calls_from_before_a_question_are_not_made_again_after_its_answer(
    bench: Make, action: str, changes: dict[str, Any], y: int
) -> None:
    wf = Workflow("travel")
    bookings: list[str] = []

    @wf.tool
    async def book(*, seat: int) -> str:
        bookings.append(f"book {seat}")
        return f"booked {seat}"

    @wf.node
    def a(state: Any, ctx: Any) -> dict[str, Any]:
        first = ctx.tools.book(seat=1)
        (ctx.workspace / "ticket").write_text(first)
        ctx.checkpoint("booked", first=first)
        ctx.ask("And another?")
        ticket = (ctx.workspace / "ticket").read_text()
        return {"y": state["x"], "got": [ctx.saved, ticket, ctx.tools.book(seat=2)]}

    wf.entry(a)
    wf.edge(a, END)
    sweep = bench(wf)
    sweep.run()
    (approval,) = sweep.rows(approvals)

    answer(Context(sweep.database, by="ada"), approval["id"], action, set=changes, bound=sweep.prepared.bound)
    sweep.run()

    assert bookings == ["book 1", "book 2"]
    state = sweep.cells()[0].state
    assert (state["y"], state["got"]) == (y, [{"first": "booked 1"}, "booked 1", "booked 2"])
