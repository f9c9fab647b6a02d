"""Workflows publish their parameters and inputs, so that you can fill in both without their code."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, StateGraph

from wtb import Workflow
from wtb.authoring.code.described import workflow_of
from wtb.authoring.code.describing import describe_workflow, written_keys
from wtb.integrations.langgraph import as_workflow

KEY = object()


class State(TypedDict, total=False):
    question: str
    messages: list[str]
    docs: list[str]
    draft: str
    answer: str
    note: str


def parameters_of(workflow: Workflow, node: str) -> Any:
    described: Any = describe_workflow(workflow.facts())
    return described["nodes"][node]["variants"]["default"]["function"]["parameters"]


def native() -> Workflow:
    wf = Workflow("native", state=State)

    @wf.node
    def retrieve(state: Any, ctx: Any, *, k: int = 3, model: Literal["mini", "large"] = "mini", key: Any = KEY) -> Any:
        update = {"docs": [state["question"]] * k}
        if state.get("note"):
            update["draft"] = "x"
        return update

    @wf.node
    def answer(state: Any, *, prompt: str) -> Any:
        def unrelated() -> Any:
            return {"question": 1}

        return {"answer": prompt, **({"messages": [unrelated()]} if prompt else {})}

    wf.entry(retrieve)
    wf.edge(retrieve, answer)
    return wf


def test_parameters_of_native_nodes_have_types_and_defaults() -> None:
    described = parameters_of(native(), "retrieve")
    assert {name: parameter.get("default") for name, parameter in described.items()} == {
        "k": 3,
        "model": "mini",
        "key": None,
    }
    assert "default" not in described["key"], "it cannot be stored"
    assert described["model"]["type"]["schema"]["enum"] == ["mini", "large"]
    assert parameters_of(native(), "answer")["prompt"]["required"]


def test_a_case_needs_what_no_node_writes() -> None:
    assert describe_workflow(native().facts())["inputs"] == ["question", "note"]


def test_a_key_that_the_first_node_reads_is_an_input_although_nodes_write_it() -> None:
    wf = Workflow("chat", state=State)
    wf.entry(wf.node(lambda state: {"messages": [*state["messages"], "hello"]}, name="talk"))
    assert "messages" in describe_workflow(wf.facts())["inputs"]


def test_a_declared_input_is_what_a_case_needs() -> None:
    class Input(TypedDict):
        answer: str

    wf = Workflow("declared", state=State, input=Input)
    wf.entry(wf.node(lambda state: {"answer": "x"}, name="say"))
    assert describe_workflow(wf.facts())["inputs"] == ["answer"]


def graph() -> Workflow:
    builder: Any = StateGraph(State)

    def say(state: State, prompt: str = "Hi", runtime: Any = None, *, times: int = 2) -> State:
        return {"answer": prompt * times}

    builder.add_node("say", say)
    builder.add_node("stop", RunnableLambda(lambda state: {"note": "x"}))
    builder.add_edge(START, "say")
    builder.add_edge("say", "stop")
    builder.add_edge("stop", END)
    wf: Workflow = as_workflow(builder.compile(), "graph", None)
    return wf


def test_arguments_after_the_first_are_parameters_of_langgraph_nodes_and_runnables_have_none() -> None:
    parameters = parameters_of(graph(), "say")
    assert {name: parameter.get("default") for name, parameter in parameters.items()} == {"prompt": "Hi", "times": 2}
    assert parameters_of(graph(), "stop") == {}


def test_a_published_langgraph_node_takes_levels_where_its_code_is_not() -> None:
    node = workflow_of(describe_workflow(graph().facts()))["say"]
    parameters, takes_any = node["default"].parameters
    assert (list(parameters), takes_any) == (["prompt", "times"], False)
    stop = workflow_of(describe_workflow(graph().facts()))["stop"]
    assert stop["default"].parameters == ({}, False)


def test_a_mapping_that_is_extended_step_by_step_is_read_to_its_end() -> None:
    def node(state: dict[str, int]) -> dict[str, int]:
        update = {"a": 1}
        update = update | {"b": 2}
        other = update
        update = {**other, "c": 3}
        return update  # noqa: RET504 - its last value refers to itself

    assert written_keys(node) == {"a", "b", "c"}
