"""Action nodes as nodes of LangGraph graphs: both modes, all the forms that LangGraph calls, with and without WTB."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt

from tests.execution.engine_subjects import State
from tests.support.prose import sentence
from wtb import Context, InputError, Workflow
from wtb.authoring.code.import_paths import as_workflow
from wtb.integrations.langgraph import variants
from wtb.integrations.models import ActionNode
from wtb.testing import Answer, run_cell, run_node

CONFIG: RunnableConfig = {"configurable": {"thread_id": "one"}}


def model(prompt: str) -> tuple[str, dict[str, Any]]:
    return f"<{prompt}>", {"tokens_in": 7, "tokens_out": 3, "usd": 0.5}


def plain(state: State) -> str:
    return f"say {state['x']}"


def in_context(state: State, ctx: Context | None, *, tone: str = "dry") -> str:
    return f"say {state['x']} {tone}ly in {'no run' if ctx is None else ctx.node}"


def with_config(state: State, config: RunnableConfig) -> str:
    return f"say {state['x']} in {config['configurable']['thread_id']}"


def with_runtime(state: State, runtime: Runtime[Any]) -> str:
    return f"say {state['x']} in attempt {runtime.execution_info.node_attempt if runtime.execution_info else None}"


async def later(state: State, ctx: Context | None) -> str:
    await asyncio.sleep(0)
    return f"say {state['x']} later"


def confirm(state: State, response: str) -> dict[str, Any]:
    return {"words": [response]}


def feedback(text: str) -> Answer:
    return Answer("approve", feedback=text)


def graph_of(*args: Any, **options: Any) -> Any:
    builder: Any = StateGraph(State)
    builder.add_node("review", ActionNode(*args, **options))
    return builder.add_edge(START, "review")


FORMS = [
    (plain, "<say 1>"),
    (in_context, "<say 1 dryly in review>"),
    (with_config, "<say 1 in one/0>"),
    (with_runtime, "<say 1 in attempt 1>"),
    (later, "<say 1 later>"),
]


@pytest.mark.parametrize(("instructions", "response"), FORMS)
def test_a_graph_takes_instructions_in_every_form_that_it_calls(instructions: Any, response: str, step: Any) -> None:
    stepped = step(graph_of(instructions, confirm, client=model), {"x": 1})

    assert stepped.failure is None
    assert stepped.state["words"] == [response]
    assert [call["tokens_in"] for call in stepped.calls] == [7]


@pytest.mark.parametrize("instructions", [plain, in_context, with_config, with_runtime, later])
def test_a_person_responds_in_interactive_mode(instructions: Any, step: Any) -> None:
    stepped = step(
        graph_of(instructions, confirm, client=model, mode="interactive"), {"x": 1}, answers=[feedback("mine")]
    )

    assert stepped.state["words"] == ["mine"]
    (question,) = stepped.questions
    assert (question.kind, question.text.startswith("say 1")) == ("action", True)


@pytest.mark.parametrize(("mode", "words"), [("autonomous", ["<say 1>"]), ("interactive", [])])
def test_the_mode_of_a_run_has_the_last_word(mode: str, words: Any, memory_bench: Any) -> None:
    workflow = as_workflow(graph_of(plain, confirm, client=model), "shape")
    sweep = memory_bench(workflow, [{"id": "one", "input": {"x": 1}}], run={"mode": mode})
    sweep.run()

    (cell,) = sweep.cells()
    assert cell.state["words"] == words
    assert sweep.counts == ({"succeeded": 1} if words else {"waiting": 1})
    sweep.database.close()


def test_variants_have_parameters_of_the_instructions() -> None:
    candidates = variants(graph_of(in_context, confirm, client=model)).add("review", "warm", tone="warm")
    assert run_cell(candidates, {"x": 1}, review="warm").state["words"] == ["<say 1 warmly in review>"]

    wrong = variants(graph_of(in_context, confirm, client=model)).add("review", "warm", tonne="warm")
    assert sentence("takes no parameter {}", "'tonne'") + sentence("; did you mean '{}'?", "tone") + sentence(
        " (it takes: {})", "tone"
    ) in str(as_workflow(wrong, "shape").problems)


def test_the_second_pass_may_lead_elsewhere_and_a_node_needs_no_name() -> None:
    def decide(state: State, response: str, ctx: Context) -> Command[Any]:
        return Command(goto=END if "no" in response else "after", update={"words": [f"{ctx.node}: {response}"]})

    builder: Any = StateGraph(State)
    builder.add_node(ActionNode(plain, decide, name="review", client=lambda prompt: "yes"))
    builder.add_node("after", lambda state: {"words": ["after"]})
    builder.add_edge(START, "review")

    assert run_cell(builder, {"x": 1}).state["words"] == ["review: yes", "after"]


def test_several_action_nodes_and_interrupts_of_a_graph_each_ask(step: Any) -> None:
    builder: Any = StateGraph(State)
    builder.add_node("first", ActionNode(plain, confirm, mode="interactive"))
    builder.add_node("check", lambda state: {"words": [interrupt("fine?")]})
    builder.add_node("second", ActionNode(plain, confirm, mode="interactive"))
    for start, end in ((START, "first"), ("first", "check"), ("check", "second")):
        builder.add_edge(start, end)

    stepped = step(builder, {"x": 1}, answers=[feedback("1"), "2", feedback("3")])

    assert stepped.state["words"] == ["1", "2", "3"]
    assert [question.kind for question in stepped.questions] == ["action", "ask", "action"]


def test_a_graph_without_a_client_says_what_is_missing(step: Any) -> None:
    failure = step(graph_of(plain, confirm, mode="autonomous"), {"x": 1}).failure
    assert "pass ActionNode(client=...)" in failure.message


# Without WTB


@pytest.mark.parametrize("instructions", [plain, in_context, with_config, with_runtime])
def test_langgraph_alone_runs_a_graph_with_the_client(instructions: Any) -> None:
    graph = graph_of(instructions, confirm, client=model).compile()
    assert graph.invoke({"x": 1}, CONFIG)["words"][0].startswith("<say 1")
    assert asyncio.run(graph.ainvoke({"x": 1}, CONFIG))["words"][0].startswith("<say 1")


@pytest.mark.parametrize("options", [{}, {"client": model, "mode": "interactive"}])
def test_langgraph_alone_interrupts_where_there_is_no_client_or_a_person_responds(options: Any) -> None:
    graph = graph_of(plain, confirm, **options).compile(checkpointer=InMemorySaver())
    assert graph.invoke({"x": 1}, CONFIG)["__interrupt__"][0].value == "say 1"
    assert graph.invoke(Command(resume="mine"), CONFIG)["words"] == ["mine"]


@pytest.mark.parametrize("around", [(), (CONFIG,), (Runtime(),), (None,)])
def test_an_action_node_is_called_by_hand_like_a_function(around: Any) -> None:
    assert ActionNode(plain, client=model)({"x": 1}, *around) == {"response": "<say 1>"}
    assert ActionNode(in_context, client=model)({"x": 1}, *around) == {"response": "<say 1 dryly in no run>"}
    assert asyncio.run(ActionNode(later, client=model)({"x": 1}, *around)) == {"response": "<say 1 later>"}


def test_what_is_called_by_hand_with_langgraphs_own_passes_it_on() -> None:
    assert ActionNode(with_config, client=model)({"x": 1}, CONFIG) == {"response": "<say 1 in one>"}
    assert ActionNode(with_runtime, client=model)({"x": 1}, Runtime()) == {"response": "<say 1 in attempt None>"}


def test_a_native_workflow_takes_the_same_action_nodes() -> None:
    wf = Workflow("native")
    wf.node(ActionNode(plain, confirm, client=model))
    wf.node(ActionNode(in_context, confirm, client=model))
    assert run_node(wf, "plain", {"x": 1}) == {"words": ["<say 1>"]}
    assert run_node(wf, "in_context", {"x": 1}, answers=["mine"]) == {"words": ["mine"]}


def test_instructions_without_a_state_are_refused() -> None:
    with pytest.raises(InputError, match=r"instructions cannot be called with \(state\) or \(state, ctx\)"):
        ActionNode(lambda: "x")
