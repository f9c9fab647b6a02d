"""A thread that LangGraph kept, as a history: what ran, in which visits, and where going back leads."""

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
    made = StateGraph(State)
    made.add_node("count", lambda state: {"n": state.get("n", 0) + 1})
    made.add_node("look", lambda sent: {"seen": [sent["at"]]})
    made.add_node("judge", lambda state: None)
    made.add_edge(START, "count")
    made.add_conditional_edges(
        "count", lambda state: [Send("look", {"at": str(n)}) for n in range(state["n"])], ["look"]
    )
    made.add_edge("look", "judge")
    made.add_conditional_edges("judge", lambda state: "count" if state["n"] < 2 else END)
    return made.compile(checkpointer=InMemorySaver())


THREAD: Any = {"configurable": {"thread_id": "1"}}


def test_the_path_and_the_visits_are_those_of_the_thread(graph: Any) -> None:
    graph.invoke({}, THREAD)

    found = history(graph, THREAD)

    assert found.path == ("count", "look", "judge", "count", "look", "look", "judge")
    visits = [(boundary.node, boundary.visit) for boundary in found.boundaries]
    assert visits == [("count", 0), ("look", 0), ("judge", 0), ("count", 1), ("look", 1), ("judge", 1)]
    assert found.latest is not None
    assert found.latest.position.next == ()
    assert [dict(one.position.fan_out) for one in found.checkpoints if one.position.fan_out] == [{"look": 2}]


def test_a_target_is_a_checkpoint_that_langgraph_goes_on_from(graph: Any) -> None:
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

    found = history(graph, THREAD)

    assert found.path == ("count", "look")
    assert found.latest is not None
    assert found.latest.state["n"] != found.checkpoints[-2].state["n"]
