"""LangGraph's functional API, states of a single value, and inputs that are objects: they run as they are."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from json import loads
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy, interrupt
from pydantic import BaseModel

from tests.integrations.langgraph.graph_stepping import Stepped, alone
from tests.support.bench import Bench
from tests.support.prose import sentence
from wtb.authoring.code.fingerprint import fingerprint
from wtb.authoring.code.import_paths import as_workflow
from wtb.core.errors import InputError
from wtb.handles.start import prepare_single
from wtb.integrations.langgraph import variants

Step = Callable[..., Stepped]


@task
def double(x: int) -> int:
    return 2 * x


@task
async def negative(x: int, *, loud: bool = False) -> int:
    return -x


@task
def fails(x: int) -> int:
    raise ValueError(f"no {x}")


class Inputs(TypedDict):
    x: int


@entrypoint()
def doubled(inputs: Inputs, *, plus: int = 0) -> dict[str, int]:
    return {"y": double(inputs["x"]).result() + plus}


@entrypoint()
async def negated(inputs: Inputs) -> Any:
    return entrypoint.final(value={"y": await negative(inputs["x"], loud=True)}, save=1)


@entrypoint()
def nothing(inputs: Any) -> None:
    return None


@entrypoint()
def questioner(inputs: str) -> str:
    return f"{inputs} {interrupt('which?')} {double(1).result()}"


@entrypoint()
def failing(inputs: int) -> int:
    return fails(inputs).result()


def other(inputs: Inputs) -> dict[str, int]:
    return {"y": 0}


def root(value: Any) -> dict[str, Any]:
    return {"__root__": value}


@pytest.mark.parametrize("graph", [doubled, negated])
def test_an_entrypoint_does_what_it_does_alone(graph: Any, step: Step) -> None:
    stepped = step(graph, root({"x": 3}))

    assert stepped.failure is None
    assert stepped.state == root(alone(graph, {"x": 3}))


def test_what_an_entrypoint_returns_is_the_state_also_where_it_is_nothing(step: Step) -> None:
    assert step(nothing, root("given")).state == root(None)


def test_the_tasks_of_an_entrypoint_are_seen_as_calls(step: Step) -> None:
    calls = [
        [(call["tool"], loads(call["prompt"]), loads(call["response"])) for call in step(graph, root({"x": 3})).calls]
        for graph in (doubled, negated)
    ]

    assert calls == [[("double", [3], 6)], [("negative", [3, {"loud": True}], -3)]]


def test_a_task_that_fails_is_seen_as_a_call_and_fails_its_node(step: Step) -> None:
    stepped = step(failing, root(3))

    assert stepped.failed.message == "no 3"
    assert [(call["tool"], loads(call["response"])) for call in stepped.calls] == [("fails", "ValueError: no 3")]


def test_tasks_that_a_node_of_a_graph_calls_are_seen_as_calls(step: Step) -> None:
    graph = StateGraph(Inputs).add_node("a", lambda state: {"x": double(state["x"]).result()}).add_edge(START, "a")

    assert [(call["tool"], loads(call["response"])) for call in step(graph, {"x": 3}).calls] == [("double", 6)]


def test_an_entrypoint_asks_people(step: Step) -> None:
    stepped = step(questioner, root("this"), answers=["one"])

    assert stepped.state == root("this one 2")
    assert [question.text for question in stepped.questions] == ["which?"]


def test_an_entrypoint_is_tried_again_by_its_policy(step: Step) -> None:
    errors = [OSError("first")]

    @entrypoint(retry_policy=RetryPolicy(max_attempts=2, retry_on=OSError, initial_interval=0.01))
    def flaky(inputs: str) -> str:
        if errors:
            raise errors.pop()
        return inputs

    stepped = step(flaky, root("done"))

    assert stepped.state == root("done")
    assert len(stepped.ran) == 2


def test_an_entrypoint_has_variants(run_sweep: Callable[..., Bench]) -> None:
    wf = as_workflow(
        variants(doubled).add("doubled", "more", plus=1).add("doubled", "other", other).add("doubled", "neg", negated),
        "tests:graph",
    )

    swept = run_sweep(wf, [{"id": "a", "input": {"x": 3}}], {"doubled": "all"})

    root_by_variant = {cell.combination["doubled"]: cell.state["__root__"] for cell in swept.cells()}
    assert root_by_variant == {"default": {"y": 6}, "more": {"y": 7}, "other": {"y": 0}, "neg": {"y": -3}}


def test_a_change_of_an_entrypoint_changes_its_fingerprint() -> None:
    def entrypoint_node(words: str) -> Any:
        @entrypoint()
        def speak(inputs: str) -> str:
            return words

        return as_workflow(speak, "tests:graph").nodes["speak"]

    codes = [
        fingerprint(node.code(node.variants["default"]))
        for node in (entrypoint_node("a"), entrypoint_node("b"), entrypoint_node("a"))
    ]
    assert codes[0] == codes[2] != codes[1]


@pytest.mark.parametrize(
    ("kind", "node", "case_input", "expected"),
    [
        (list[str], lambda state: [*state, "b"], ["a"], ["a", "b"]),
        (Annotated[list, operator.add], lambda state: ["b"], ["a"], ["a", "b"]),
        (str, lambda state: f"{state}b", "a", "ab"),
        (int, lambda state: state + 1, 1, 2),
    ],
    ids=["list", "joined list", "text", "number"],
)
def test_a_graph_whose_state_is_a_single_value_takes_it_as_it_is(
    kind: Any, node: Any, case_input: Any, expected: Any, run_sweep: Callable[..., Bench]
) -> None:
    graph = StateGraph(kind).add_node("a", node).add_edge(START, "a")

    swept = run_sweep(
        as_workflow(graph, "tests:graph"),
        [{"id": "bare", "input": case_input}, {"id": "by key", "input": root(case_input)}],
        {"a": "all"},
    )

    assert graph.compile().invoke(case_input) == expected
    assert [cell.state for cell in swept.cells()] == [root(expected)] * 2


@dataclass
class AsDataclass:
    x: int = 1
    words: list[str] | None = None


class AsModel(BaseModel):
    x: int = 1
    words: list[str] | None = None


@pytest.mark.parametrize(
    "case_input", [AsDataclass(2, ["a"]), AsModel(x=2, words=["a"])], ids=lambda case_input: type(case_input).__name__
)
def test_an_input_may_be_an_object_as_in_langgraph(case_input: Any, run_sweep: Callable[..., Bench]) -> None:
    graph = StateGraph(type(case_input)).add_node("a", lambda state: {"x": state.x + 1}).add_edge(START, "a")

    swept = run_sweep(as_workflow(graph, "tests:graph"), [{"id": "a", "input": case_input}], {"a": "all"})

    assert [cell.state for cell in swept.cells()] == [{"x": 3, "words": ["a"]}]
    assert swept.cells()[0].state == graph.compile().invoke(case_input)


def test_a_single_execution_takes_the_same_inputs() -> None:
    of_object = StateGraph(AsModel).add_node("a", lambda state: {"x": 1}).add_edge(START, "a")
    of_list = StateGraph(list[str]).add_node("a", lambda state: state).add_edge(START, "a")

    def inputs(graph: Any, case_input: Any) -> list[Any]:
        return [case.input for case in prepare_single(as_workflow(graph, "tests:graph"), case_input).picked()]

    assert inputs(of_object, AsModel(x=2)) == [{"x": 2}]
    assert inputs(of_list, ["a"]) == [root(["a"])]


def test_an_input_of_another_kind_is_refused() -> None:
    graph = StateGraph(Inputs).add_node("a", lambda state: {"x": 1}).add_edge(START, "a")

    with pytest.raises(
        InputError, match=sentence("'input' is {}; expected a mapping from keys of the state", "a list of 1")
    ):
        prepare_single(as_workflow(graph, "tests:graph"), ["a"])
