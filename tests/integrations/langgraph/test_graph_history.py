"""A thread that LangGraph stored, as a history: its path, its visits, and the targets of a rollback."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from wtb.integrations.langgraph import history


class State(TypedDict, total=False):
    n: int
    seen: Annotated[list[str], operator.add]


@pytest.fixture
def graph() -> Any:
    """count -> look (once for each number so far) -> count again, until there were two."""
    builder = StateGraph(State)
    builder.add_node("count", lambda state: {"n": state.get("n", 0) + 1})
    builder.add_node("look", lambda sent: {"seen": [sent["at"]]})
    builder.add_node("judge", lambda state: None)
    builder.add_edge(START, "count")
    sends = lambda state: [Send("look", {"at": str(n)}) for n in range(state["n"])]  # noqa: E731
    builder.add_conditional_edges("count", sends, ["look"])
    builder.add_edge("look", "judge")
    builder.add_conditional_edges("judge", lambda state: "count" if state["n"] < 2 else END)
    return builder.compile(checkpointer=InMemorySaver())


THREAD: Any = {"configurable": {"thread_id": "1"}}


def test_the_path_and_the_visits_are_those_of_the_thread(graph: Any) -> None:
    graph.invoke({}, THREAD)

    thread_history = history(graph, THREAD)

    assert thread_history.path == ("count", "look", "judge", "count", "look", "look", "judge")
    visits = [(boundary.node, boundary.visit) for boundary in thread_history.boundaries]
    assert visits == [("count", 0), ("look", 0), ("judge", 0), ("count", 1), ("look", 1), ("judge", 1)]
    assert thread_history.latest is not None
    assert thread_history.latest.position.next == ()
    fan_outs = [dict(checkpoint.position.fan_out) for checkpoint in thread_history.checkpoints]
    assert [fan_out for fan_out in fan_outs if fan_out] == [{"look": 2}]


def test_a_target_is_a_checkpoint_that_langgraph_continues_from(graph: Any) -> None:
    graph.invoke({}, THREAD)
    target = history(graph, THREAD).rollback_targets()["look"]

    back = {"configurable": {"thread_id": "1", "checkpoint_id": target, "checkpoint_ns": ""}}
    assert graph.get_state(back).next == ("judge",)
    assert history(graph, back).path == ("count", "look", "judge", "count", "look", "look")


def test_of_a_fork_there_is_the_line_that_leads_to_it(graph: Any) -> None:
    graph.invoke({}, THREAD)
    first = next(boundary for boundary in history(graph, THREAD).boundaries if boundary.node == "judge")
    back = {"configurable": {"thread_id": "1", "checkpoint_id": first.entry, "checkpoint_ns": ""}}
    graph.update_state(back, {"n": 5})

    thread_history = history(graph, THREAD)

    assert thread_history.path == ("count", "look")
    assert thread_history.latest is not None
    assert thread_history.latest.state["n"] != thread_history.checkpoints[-2].state["n"]
