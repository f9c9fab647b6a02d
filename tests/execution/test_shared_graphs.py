"""Async nodes of LangGraph graphs share node processes as other async nodes do."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.execution.test_shared_processes import TOGETHER, kinds, read_attempts
from tests.support.flows import Flows, events_of, states

pytestmark = pytest.mark.nodes("langgraph")

MANY = 64
WIDE: dict[str, Any] = {"cases": MANY, "run": {"concurrency": MANY, "per_process": MANY}, "vary": {"a": "all"}}
HEAD = (
    TOGETHER
    + """
from typing import TypedDict

from langgraph.graph import START, StateGraph
from langgraph.graph import END as GRAPH_END
from wtb import current_context


class State(TypedDict, total=False):
    n: int
    pid: int
    text: str
"""
)
END = """
graph = StateGraph(State)
graph.add_node("a", a)
graph.add_edge(START, "a")
graph.add_edge("a", GRAPH_END)
wf = graph.compile()
"""


@pytest.mark.nodes("started")
def test_many_runs_of_async_nodes_of_a_graph_share_a_process(flows: Flows) -> None:
    text = """
async def a(state):
    await together(64)
    print("prints", state["n"])
    return {"pid": os.getpid()}
"""
    bench = flows.run(HEAD + text, end=END, **WIDE)
    assert len({state["pid"] for state in states(bench)}) == 1
    assert Counter(row["stdout"] for row in read_attempts(bench)) == Counter(f"prints {n}\n" for n in range(MANY))


def test_a_node_of_a_graph_that_crashes_costs_the_others_no_retry(flows: Flows) -> None:
    text = """
async def a(state):
    first = current_context().attempt == 1
    if first:
        await together(64)
    if state["n"] == 7:
        os._exit(3)
    if first:
        await asyncio.sleep(600)
    return {"pid": os.getpid()}
"""
    bench = flows.run(HEAD + text, end=END, **WIDE)
    assert {cell.case: cell.status for cell in bench.cells() if cell.status != "succeeded"} == {"c7": "set_aside"}
    assert kinds(bench) == {"lost": MANY, "killed": 3}


def test_a_node_of_a_graph_that_blocks_the_loop_is_named_with_its_line(flows: Flows) -> None:
    text = """
async def a(state):
    await together(64)
    if state["n"] == 7:
        time.sleep(2.0)  # here
    return {"pid": os.getpid()}
"""
    bench = flows.run(HEAD + text, end=END, **WIDE)
    path = flows.code / f"{flows.name}.py"
    line = path.read_text().splitlines().index("        time.sleep(2.0)  # here") + 1
    (event,) = events_of(bench, "node.log")
    assert (event["level"], event["node"], event["place"]) == ("warning", "a", f"{path}:{line}")


def test_a_node_of_a_graph_streams_and_is_cancelled_at_its_deadline(flows: Flows) -> None:
    text = """
async def words(number):
    for part in ("one", "two", str(number)):
        await asyncio.sleep(0)
        yield part


async def a(state):
    await together(64)
    parts = []
    async for part in words(state["n"]):
        parts.append(part)
    try:
        await asyncio.sleep(600 if state["n"] == 7 else 0)
    except asyncio.CancelledError:
        say("cancelled", state["n"])
        raise
    return {"text": " ".join(parts), "pid": os.getpid()}
"""
    bench = flows.run(HEAD + text, end=END, limits={"cell_timeout": 3}, **WIDE)
    well = {cell.case: cell.state for cell in bench.cells() if cell.status == "succeeded"}
    assert {case: state["text"] for case, state in well.items()} == {
        f"c{n}": f"one two {n}" for n in range(MANY) if n != 7
    }
    assert len({state["pid"] for state in well.values()}) == 1
    assert flows.lines_of("cancelled") == ["7"]
    assert kinds(bench) == {"timeout": 1}
