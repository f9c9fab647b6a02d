"""The LangGraph examples as sweeps: the same final states as with LangGraph alone, at a lower cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from examples.langgraph.chat import small_model
from examples.langgraph.retrieval.graph import ask
from tests.acceptance.langgraph_alone import SWEEPS, Cell, all_combinations
from tests.support.model_server import require_small_model
from tests.support.project import Project

pytestmark = pytest.mark.nodes("langgraph")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(empty_project: Project) -> Project:
    """A project in the folder of the examples, with its own database."""
    (empty_project.folder / "examples").symlink_to(ROOT / "examples")
    return empty_project


def swept(folder: Project, file: str, *options: str, check: int = 0) -> Any:
    """The matrix after `wtb run`."""
    name = f"examples/langgraph/{file}.yaml"
    arguments = ("--concurrency", "1", "--quiet", "--format", "json", *options)
    return folder.inside("run", name, *arguments, check=check).json


def states(folder: Project, sweep: str) -> dict[Cell, dict[str, Any]]:
    return {(cell["case"], tuple(cell["combination"].values())): cell["state"] for cell in folder.cells(sweep)}


def test_a_sweep_of_the_agent_ends_every_cell_as_langgraph_does_and_counts_its_tokens(folder: Project) -> None:
    expected = all_combinations(SWEEPS["agent"], 2)
    matrix = swept(folder, "agent/sweep", "--limit", "2")
    assert (matrix["cells"]["succeeded"], matrix["cells"]["total"]) == (18 * 2, 18 * 2)
    assert matrix["node_runs"]["executed"] == expected.executed
    assert matrix["node_runs"]["unshared"] == expected.unshared
    actual = states(folder, "agent")
    assert actual.keys() == expected.states.keys()
    for cell, state in expected.states.items():
        spoken = [(message["type"], message["content"]) for message in actual[cell]["messages"]]
        assert spoken == [(message.type, message.text) for message in state["messages"]], cell
        assert actual[cell]["answer"] == state["answer"], cell

    used = {cell: tokens(state["messages"]) for cell, state in expected.states.items()}
    for row in matrix["rows"]:
        mine = [count for (_, names), count in used.items() if names == tuple(row["combination"].values())]
        assert row["metrics"]["tokens"]["mean"] == sum(mine) / 2
    costs = folder.json("costs", "agent", "--by", "model")["rows"]
    (spent,) = [row for row in costs if row["model"] == "scripted"]
    assert 0 < spent["tokens_in"] + spent["tokens_out"] < sum(used.values()) / 3  # the three answers ask no model


def tokens(messages: list[Any]) -> int:
    usage = [message.usage_metadata for message in messages if isinstance(message, AIMessage)]
    return sum(each["total_tokens"] for each in usage if each)


def test_a_sweep_of_the_retrieval_grades_once_for_all_that_found_the_same(folder: Project) -> None:
    expected = all_combinations(SWEEPS["retrieval"], 2)
    matrix = swept(folder, "retrieval/sweep", "--limit", "2")
    assert (matrix["cells"]["succeeded"], matrix["cells"]["total"]) == (24 * 2, 24 * 2)
    assert matrix["node_runs"]["executed"] == expected.executed
    assert matrix["node_runs"]["unshared"] == expected.unshared
    actual = states(folder, "corrective")
    assert actual.keys() == expected.states.keys()
    for cell, state in expected.states.items():
        for key in ("ranking", "answer", "good", "rounds"):  # of what the graph gives back
            assert actual[cell][key] == state[key], (cell, key)
    assert all(row["metrics"]["ndcg"]["mean"] > 0 for row in matrix["rows"])


def test_a_real_small_model_writes_headlines_in_a_sweep(folder: Project) -> None:
    require_small_model()
    matrix = swept(folder, "retrieval/model", "--case", "lee-01", "--combination", "rewrite=headline")
    assert matrix["rows"][0]["metrics"]["tokens"]["mean"] > 24  # what it wrote, and what it read
    (state,) = states(folder, "corrective-model").values()
    assert len(state["query"]) > len(ask(state)["query"])  # the first sentence, and headlines
    reply = small_model(max_tokens=4).invoke([HumanMessage("Say hello.")])
    assert isinstance(reply, AIMessage)
    assert reply.usage_metadata is not None
    assert reply.usage_metadata["output_tokens"] == 4


def test_refunds_wait_for_people_once_for_each_letter_and_end_as_they_say(folder: Project) -> None:
    only = ("--limit", "3", "--combination", "assess=default")
    matrix = swept(folder, "approval/sweep", *only, check=1)
    assert matrix["cells"] == {**matrix["cells"], "total": 12, "succeeded": 2, "waiting": 10}
    questions = open_questions(folder)
    assert [(question["case"], question["executions"]) for question in questions] == [
        ("broken", 2), ("broken", 2), ("cracked", 1), ("cracked", 1), ("late", 2), ("late", 2),
    ]  # fmt: skip
    *earlier, late = questions
    assert late["question"] == "Pay back 23.40 EUR for R-1003?"
    for question in earlier:
        folder.inside("answer", question["id"], "send", check=0)
    folder.inside("answer", late["id"], "rewrite", "--value", '{"decision": "rewrite", "amount": 30.0}', check=0)

    folder.inside("resume", "refunds", "--quiet", check=1)
    reopened = open_questions(folder)
    assert {question["question"] for question in reopened} == {"Pay back 30.00 EUR for R-1003?"}
    for question in reopened:
        folder.inside("answer", question["id"], "send", check=0)
    matrix = folder.json("resume", "refunds", "--quiet")

    assert matrix["cells"]["succeeded"] == 12
    # For each of three cases 1 assess, 2 letters written and signed, 4 reviews and 4 sent; one letter again, for two.
    assert matrix["node_runs"]["executed"] == 3 * (1 + 2 + 2 + 4 + 4) + 2 * (1 + 1 + 1)
    paid = {cell: state["sent"] for cell, state in states(folder, "refunds").items()}
    assert all(len(sent) == 1 for sent in paid.values())
    amounts = [sent[0]["amount"] for (case, _), sent in paid.items() if case == "late"]
    assert sorted(amounts) == [23.4, 23.4, 30.0, 30.0]
    right = sorted(row["metrics"]["right"]["mean"] for row in matrix["rows"])
    assert right == pytest.approx([2 / 3, 2 / 3, 1, 1])


def open_questions(folder: Project) -> list[Any]:
    questions = folder.json("approvals", "refunds")["approvals"]
    return sorted(questions, key=lambda question: question["case"])


def test_small_refunds_go_out_unseen_where_that_is_enough(folder: Project) -> None:
    only = ("--combination", "review=above", "--combination", "assess=default")
    matrix = swept(folder, "approval/sweep", *only, check=1)
    assert {question["case"] for question in open_questions(folder)} == {"broken", "late"}
    assert matrix["cells"]["succeeded"] == 4 * 2
    ended = {case: state.get("outcome") for (case, _), state in states(folder, "refunds").items()}
    assert ended["cracked"] == ended["little-late"] == "sent"
    assert ended["content"] == ended["nobody"] == "refused"


def test_messages_that_are_typed_in_are_checked_by_their_own_type(folder: Project) -> None:
    start = ("start", "examples.langgraph.agent.graph:graph", "--quiet", "--set")
    refused = folder.inside(*start, "messages=[{role: nobody, content: Hello}]", check=2)
    assert "key 'messages'" in refused.output
    assert "'nobody'" in refused.output
    done = folder.inside(*start, "messages=[{role: user, content: What does a blue mug cost?}]", check=0)
    assert done.json["answer"] == "It is 7.50."
