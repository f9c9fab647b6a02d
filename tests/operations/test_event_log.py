"""The log of an execution on both databases: decisions, calls of models and tools, reversed calls, and values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.support.prose import sentence
from wtb import Bench, ExecutionHandle, Workflow
from wtb.core.documents.event_texts import event_text
from wtb.core.errors import InputError
from wtb.display.text.costs import as_csv, costs
from wtb.operations.inspection.log import events_after, select_events
from wtb.store.log import START
from wtb.store.read import queries


def trip() -> Workflow:
    """Book by two tools, one of which can be undone, then confirm or give up."""
    wf = Workflow("trip")

    @wf.tool
    def book(*, seat: str) -> str:
        return f"booking of {seat}"

    @book.reversed_by
    def cancel(booking: str, *, seat: str) -> None: ...

    @wf.tool
    def announce(*, text: str) -> None:
        if not text:
            raise ValueError("nothing to announce")

    def plan(state: dict[str, Any], ctx: wtb.Context) -> dict[str, Any]:
        ctx.call(model="small", tokens_in=100, tokens_out=5, cached=80, usd=0.25, duration_s=0.5)
        return {"plan": ctx.tools.book(seat=state["seat"])}

    def alone(state: dict[str, Any]) -> dict[str, Any]:
        return {"plan": "stay"}

    planning = wf.node(plan, name="plan")
    planning.variant("alone", alone)

    @wf.node
    def confirm(state: dict[str, Any], ctx: wtb.Context) -> dict[str, Any]:
        ctx.tools.announce(text=state["plan"])
        ctx.call(tool="mail", duration_s=0.125)
        return {"confirmed": True}

    @wf.node
    def give_up(state: dict[str, Any]) -> None:
        raise ValueError("no trip")

    def is_booked(state: dict[str, Any]) -> bool:
        return str(state["plan"]).startswith("booking")

    def is_full(state: dict[str, Any]) -> bool:
        return bool(state["seat"] == "")

    wf.entry(planning)
    wf.edge(planning, give_up, when=is_full, priority=1)
    wf.edge(planning, confirm, when=is_booked)
    wf.edge(planning, give_up, default=True)
    return wf


@pytest.fixture
def bench(prepared_url: str, tmp_path: Path) -> Iterator[Bench]:
    with wtb.open(prepared_url, by="ana", files=tmp_path / "files") as opened:
        yield opened


def run(bench: Bench, **choices: str) -> ExecutionHandle:
    return bench.start(trip(), {"seat": "12A"}, variants=choices).wait()


def sweep_of(bench: Bench, execution: ExecutionHandle) -> str:
    return queries.find_execution(bench.database, execution.id).sweep_id


def data_of(execution: ExecutionHandle, *kinds: str, values: bool = False) -> list[dict[str, Any]]:
    return [dict(event["data"]) for event in execution.log(kinds=kinds, values=values)]


def test_a_decision_names_the_edges_that_were_tried(bench: Bench) -> None:
    execution = run(bench)
    (event,) = execution.log(kinds=["decision"])

    decision: Any = event["data"]
    assert [list(edge) for edge in decision["tried"]] == [["give_up", "is_full", False], ["confirm", "is_booked", True]]
    assert (decision["node"], decision["to"], decision["why"]) == ("plan", "confirm", "is_booked is true")
    assert decision["checkpoint"] == execution.history().checkpoints[1].id
    assert event_text("decision", decision) == "plan → confirm: is_booked is true (not give_up if is_full)"


def test_calls_of_models_and_tools_stand_between_the_start_and_the_end_of_their_node(bench: Bench) -> None:
    execution = run(bench)
    kinds = ["node_run", "model", "tool", "decision", "checkpoint", "execution"]
    assert [event["kind"] for event in execution.log(kinds=kinds)] == [
        "execution.started",
        *("node_run.started", "model.called", "tool.called", "node_run.succeeded", "decision", "checkpoint.created"),
        *("node_run.started", "tool.called", "tool.called", "node_run.succeeded", "checkpoint.created"),
        "execution.completed",
    ]
    (call,) = data_of(execution, "model.called")
    spent = {"tokens_in": 100, "tokens_out": 5, "cached": 80, "usd": 0.25, "duration_s": 0.5}
    assert {name: call[name] for name in spent} == spent
    assert event_text("model.called", call) == "plan=default called small in 500 ms, 100 (80 cached) + 5 tokens, $0.250"
    whole = queries.event_rows(bench.database, sweep_of(bench, execution))
    positions = [(row["transaction"], row["id"]) for row in whole]
    assert positions == sorted(set(positions)), "each is followed once from any position"
    for place, position in enumerate(positions):
        assert queries.event_rows(bench.database, sweep_of(bench, execution), after=position) == whole[place + 1 :]


def test_values_come_on_request(bench: Bench) -> None:
    execution = run(bench)
    of_plan, _ = data_of(execution, "node_run.succeeded")
    assert of_plan["writes"].keys() == {"plan"}
    assert (of_plan["visit"], of_plan["attempt"]) == (0, 1)
    assert "values" not in of_plan

    of_plan, of_confirm = data_of(execution, "node_run.succeeded", values=True)
    assert (of_plan["values"], of_confirm["values"]) == ({"plan": "booking of 12A"}, {"confirmed": True})
    (end,) = data_of(execution, "execution.completed", values=True)
    assert end["values"] == {"seat": "12A", "plan": "booking of 12A", "confirmed": True}
    book, announce, mail = data_of(execution, "tool.called", values=True)
    assert (book["arguments"], book["result"]) == ({"seat": "12A"}, "booking of 12A")
    assert (announce["tool"], announce["result"], "arguments" in mail) == ("announce", None, False)
    selection = select_events(bench.backend, sweep_of(bench, execution), kinds=["node_run.succeeded"], values=True)
    page = events_after(bench.backend, selection, START)
    assert selection.page < 1000, "streams have pages that fit"
    assert [dict(event["data"])["values"] for event in page.events] == [{"plan": "booking of 12A"}, {"confirmed": True}]


def test_a_failed_execution_ends_with_its_failure(bench: Bench) -> None:
    execution = run(bench, plan="alone")
    (end,) = data_of(execution, "execution.failed")
    assert end == {"cells": 1, "error": "node 'give_up': ValueError: no trip", "node": "give_up"}
    (failed,) = data_of(execution, "node_run.failed")
    assert (failed["visit"], failed["attempt"]) == (0, 1)
    assert data_of(execution, "variant.applied") == [{"node": "plan", "variant": "alone", "replaces": "default"}]
    (decision,) = data_of(execution, "decision")
    assert [edge[2] for edge in decision["tried"]] == [False, False, True]


def test_a_rollback_names_the_calls_that_it_undid(bench: Bench) -> None:
    execution = run(bench)
    before = list(execution.log())
    root = execution.history().checkpoints[0].id

    execution.rollback(root)

    log = list(execution.log())
    assert log[: len(before)] == before, "what happened stays as it was"
    new = [event["kind"] for event in log[len(before) :]]
    assert new.index("rollback.begun") < new.index("tool.reversed") < new.index("execution.rolled_back")
    (reversed_call,) = data_of(execution, "tool.reversed")
    first_call = data_of(execution, "tool.called")[0]
    identity = ("node_run", "attempt", "number", "tool", "node")
    assert [reversed_call[name] for name in identity] == [first_call[name] for name in identity]
    (rolled_back,) = data_of(execution, "execution.rolled_back")
    text = event_text("execution.rolled_back", rolled_back)
    assert "undone: 1 call (book of plan); no reverse: 1 call (announce of confirm)" in text

    execution.undo_rollback()

    second_call = data_of(execution, "tool.called")[-1]
    assert (second_call["tool"], second_call["again"]) == ("book", True)


def test_one_execution_of_a_sweep_has_its_own_calls(bench: Bench) -> None:
    sweep = wtb.Sweep(workflow=trip(), cases=[{"id": "one", "input": {"seat": "1"}}], vary={"plan": "all"})
    handle = bench.run(sweep)
    execution = handle.execution("one", {"plan": "default"})
    of_all = [event for event in handle.log(kinds=["tool.called"]) if event["execution"] == execution.id]
    assert of_all == list(execution.log(kinds=["tool.called"])) != []
    counts = {row["kind"]: row["count"] for row in execution.count_events(kinds=["tool", "model"])}
    assert counts == {"tool.called": 3, "model.called": 1}


def test_costs_by_tool_count_failures_time_cost_and_what_was_undone(bench: Bench) -> None:
    execution = run(bench)
    execution.rollback(execution.history().checkpoints[0].id)
    bench.start(failing(), {}).wait()

    report = bench.costs(by=["tool"])

    rows = {row["tool"]: row for row in report["rows"]}
    names = ("calls", "failed_calls", "reversed_calls", "usd")
    assert {tool: tuple(rows[tool].get(name) for name in names) for tool in rows} == {
        "book": (1, 0, 1, 0.0),
        "announce": (1, 0, 0, 0.0),
        "mail": (1, 0, 0, 0.0),
        "pay": (1, 1, 0, 0.0),
        "search": (2, 1, 0, 0.5),
    }
    assert rows["mail"]["duration_s"] == 0.125
    assert [report["total"].get(name) for name in names[:3]] == [6, 2, 1]
    table = costs(report, 100)
    assert table.splitlines()[0].split() == ["tool", "calls", "failed", "undone", "time", "spent"]
    assert as_csv(report).splitlines()[0].endswith("failed_calls,duration_s,reversed_calls")
    of_nodes = bench.costs(by=["node", "tool"])["rows"]
    assert ("pay", "pay") in {(row["node"], row["tool"]) for row in of_nodes}
    with pytest.raises(InputError, match=sentence("by model or by tool")):
        bench.costs(by=["model", "tool"])


def failing() -> Workflow:
    """Search twice, once in vain, and pay without success."""
    wf = Workflow("failing")

    @wf.tool(name="pay")
    def charge() -> None:
        raise ValueError("no money")

    @wf.node
    def pay(state: dict[str, Any], ctx: wtb.Context) -> None:
        ctx.call(tool="search", usd=0.5, duration_s=1.0)
        ctx.call(tool="search", response={"error": "TimeoutError: too slow"})
        ctx.tools.pay()

    wf.entry(pay)
    return wf
