"""The graphs of the LangGraph examples, run by LangGraph itself: they do what their descriptions say."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from langchain_core.tools import ToolException
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from examples.langgraph.agent import alternatives as agents
from examples.langgraph.agent import graph as agent
from examples.langgraph.agent.tools import calculate, lookup
from examples.langgraph.approval.graph import graph as approval
from examples.langgraph.retrieval import graph as retrieval
from tests.acceptance.langgraph_alone import FOLDER, SWEEPS, cases, run, with_node
from tests.support.prose import sentence
from wtb.authoring.code.import_paths import load
from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase
from wtb.planning.cases import Case
from wtb.planning.sweep_spec import SweepSpec


def scores(spec: SweepSpec, case: Case, state: dict[str, Any]) -> dict[str, float]:
    scored = ScoredCase(case.id, case.input, case.expected, case.tags)
    evaluators = [make_evaluator(ref.name, ref.options, load) for ref in spec.evaluate]
    return {evaluator.name: float(evaluator.fn(scored, CellResult(state))) for evaluator in evaluators}


def test_the_graphs_know_nothing_of_wtb() -> None:
    for file in FOLDER.rglob("*.py"):
        if file.parent.name == "bot":  # whose nodes are action nodes of WTB
            continue
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        named = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        named |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        knows = any(name.partition(".")[0] == "wtb" for name in named)
        assert not knows or file.name == "scores.py", file


def test_the_agent_answers_all_questions_with_a_calculator_and_some_without() -> None:
    spec = SWEEPS["agent"]
    estimating = with_node(agent.graph, "agent", agents.in_its_head)
    right = {case.id: scores(spec, case, run(agent.graph, case.input))["right"] for case in cases(spec).values()}
    assert set(right.values()) == {1}
    assert len(right) == 10
    guessed = {case.id: scores(spec, case, run(estimating, case.input))["right"] for case in cases(spec).values()}
    assert {id for id, answer in guessed.items() if not answer} == {"order", "spelling", "difference", "ratio"}


def test_the_agent_asks_for_several_tools_at_once_unless_told_not_to() -> None:
    order = cases(SWEEPS["agent"])["order"].input
    calls = [len(message.tool_calls) for message in run(agent.graph, order)["messages"] if message.type == "ai"]
    assert calls == [2, 1, 0]
    single = run(with_node(agent.graph, "agent", agents.one_at_a_time), order)["messages"]
    assert [len(message.tool_calls) for message in single if message.type == "ai"] == [1, 1, 1, 0]


def test_a_tool_that_fails_tells_the_model_or_is_tried_again_by_the_tool_node() -> None:
    spelling = cases(SWEEPS["agent"])["spelling"].input
    replies = [message for message in run(agent.graph, spelling)["messages"] if message.type == "tool"]
    assert [message.name for message in replies] == ["lookup"] * 4 + ["calculate"]
    assert [message.status for message in replies] == ["error"] * 2 + ["success"] * 3
    near = sentence("; did you mean '{}'?", "tea pot")
    assert replies[0].text == sentence("there is no {} {}", "item", "'teapot'") + near
    retried = run(with_node(agent.graph, "tools", agents.retrying), spelling)["messages"]
    assert [message.status for message in retried if message.type == "tool"] == ["success"] * 3


def test_the_scripted_model_counts_its_tokens() -> None:
    messages = run(agent.graph, cases(SWEEPS["agent"])["order"].input)["messages"]
    replies = [message for message in messages if message.type == "ai"]
    counts = [message.usage_metadata["input_tokens"] for message in replies]
    assert counts == sorted(set(counts))  # each turn reads all that was said before
    assert all(message.usage_metadata["output_tokens"] > 0 for message in replies)
    assert {message.response_metadata["model_name"] for message in replies} == {"scripted"}


@pytest.mark.parametrize("expression", ["1 / 0", "2 ** 9", "__import__('os')", "1 +", "'a' * 9"])
def test_the_calculator_says_what_it_cannot_work_out(expression: str) -> None:
    with pytest.raises(ToolException, match="cannot work out"):
        calculate.invoke({"expression": expression})


def test_the_tools_give_what_is_in_the_table_and_what_it_comes_to() -> None:
    assert lookup.invoke({"item": "oak tray", "field": "weight"}) == "1260"
    assert calculate.invoke({"expression": "(1 - 4) * 7.50 + 2 / 4"}) == "-22"


def test_retrieval_grades_each_document_once_and_searches_again_until_there_is_enough() -> None:
    case = cases(SWEEPS["retrieval"])["lee-01"]
    steps = list(retrieval.graph.compile().stream(case.input, stream_mode="updates"))
    graded = [step["grade"]["grades"][0]["document"] for step in steps if "grade" in step]
    documents = [set(step["retrieve"]["found"]) for step in steps if "retrieve" in step]
    assert len(graded) == len(set(graded))
    assert set(graded) == set().union(*documents)
    assert case.id not in graded
    names = [name for step in steps for name in step if name not in ("ask", "grade")]
    rounds = ["rewrite", "retrieve", "sift"] * (len(documents) - 1)
    assert names == ["retrieve", "sift", *rounds, "answer"]
    good = [len(step["sift"]["good"]) for step in steps if "sift" in step]
    assert all(number < retrieval.ENOUGH for number in good[:-1])
    assert len(documents) == retrieval.ROUNDS or good[-1] >= retrieval.ENOUGH


def test_retrieval_ends_where_a_search_finds_nothing_new() -> None:
    case_input = cases(SWEEPS["retrieval"])["lee-01"].input
    same = with_node(retrieval.graph, "rewrite", lambda state: {"query": state["query"]})
    steps = list(same.compile().stream(case_input, stream_mode="updates"))
    assert sum("grade" in step for step in steps) == 8
    assert sum("retrieve" in step for step in steps) == retrieval.ROUNDS
    assert "answer" in steps[-1]


def test_a_refund_waits_for_a_person_and_is_sent_as_approved() -> None:
    case_input = cases(SWEEPS["approval"])["broken"].input
    compiled, thread = approval.compile(checkpointer=InMemorySaver()), {"configurable": {"thread_id": "1"}}
    (question,) = compiled.invoke(case_input, thread)["__interrupt__"]
    assert question.value["question"] == "Pay back 24.90 EUR for R-1001?"
    assert question.value["options"] == ["send", "rewrite", "refuse"]
    assert compiled.get_state(thread).values["sent"] == []
    state = compiled.invoke(Command(resume="send"), thread)
    assert state["outcome"] == "sent"
    assert state["sent"] == [{"order": "R-1001", "amount": 24.9, "letter": question.value["letter"]}]


def test_a_person_has_a_letter_written_again_changes_it_or_refuses() -> None:
    case_input = cases(SWEEPS["approval"])["late"].input
    revision = {"decision": "rewrite", "amount": 30.0, "note": "A voucher is on its way."}
    state = run(approval, case_input, revision, "send")
    assert [refund["amount"] for refund in state["sent"]] == [30.0]
    assert "we pay back 30.00 EUR" in state["letter"]
    assert "A voucher is on its way." in state["letter"]
    changed = run(approval, case_input, {"decision": "send", "letter": "Here you are."})
    assert changed["sent"][0]["letter"] == "Here you are."
    refused = run(approval, case_input, {"decision": "refuse", "note": "it came in time"})
    assert (refused["outcome"], refused["sent"]) == ("refused", [])
    assert "it came in time" in refused["letter"]


def test_the_letter_of_the_subgraph_is_written_and_signed_and_may_be_formal() -> None:
    case_input = cases(SWEEPS["approval"])["broken"].input
    formal = with_node(approval, "draft.write", load("examples.langgraph.approval.alternatives:formal"))
    friendly, stiff = (run(graph, case_input)["letter"].splitlines() for graph in (approval, formal))
    assert friendly[1] == "Sorry about that! As it arrived broken, we pay back 24.90 EUR for R-1001."
    assert stiff[1].startswith("We refer to your order R-1001.")
    assert (friendly[0], friendly[2]) == (stiff[0], stiff[2]) == ("Dear Ada,", "Your shop")


@pytest.mark.parametrize("answer", ["yes", {"decision": "send", "amount": 1.0}, {"note": "?"}])
def test_an_answer_that_is_none_of_the_options_is_refused(answer: Any) -> None:
    with pytest.raises(ValueError, match=r"expected send, rewrite or refuse|this decision may change letter"):
        run(approval, cases(SWEEPS["approval"])["broken"].input, answer)
