"""A failing provider is handled in a node of a LangGraph graph as in a node of WTB."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypedDict

import openai
import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy

from tests.support.bench import Bench
from tests.support.model_provider import Fault, ModelProvider, answer_to, limited, model_provider
from wtb.analysis.matrix.build import build
from wtb.authoring.code.import_paths import as_workflow
from wtb.core import provider_faults

Make = Callable[..., Bench]
CASES = [
    {"id": f"c{x}", "input": {"q": f"question {x}"}, "expected": {"a": [answer_to(f"question {x}")]}} for x in range(8)
]
EXACT = [{"exact_match": {"field": "a"}}]


class State(TypedDict):
    q: str
    a: Annotated[list[str], operator.add]


@pytest.fixture
def provider() -> Iterator[ModelProvider]:
    with model_provider() as running:
        yield running


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_faults, "FIRST_WAIT_S", 0.01)


@pytest.fixture
def asks(provider: ModelProvider) -> Iterator[Callable[[State], dict[str, Any]]]:
    client: Any = openai.OpenAI(base_url=f"{provider.url}/v1", api_key="k", max_retries=0)

    def ask(state: State) -> dict[str, Any]:
        chat: Any = [{"role": "user", "content": state["q"]}]
        reply = client.chat.completions.create(model="m", messages=chat)
        return {"a": [reply.choices[0].message.content]}

    yield ask
    client.close()


def wrapping(ask: Callable[[State], dict[str, Any]]) -> Callable[[State], dict[str, Any]]:
    def tool(state: State) -> dict[str, Any]:
        try:
            return ask(state)
        except openai.APIError as error:
            try:
                raise ValueError("the tool failed") from error
            except ValueError:
                raise RuntimeError("the agent failed")  # noqa: B904 - the cause is only the context

    return tool


def graph_of(*nodes: Any, **rules: Any) -> StateGraph[Any]:
    """Build a graph of nodes side by side."""
    builder: StateGraph[Any] = StateGraph(State)
    for number, node in enumerate(nodes):
        builder.add_node(f"n{number}", node, **rules).add_edge(START, f"n{number}").add_edge(f"n{number}", END)
    return builder


def run(bench: Make, builder: StateGraph[Any], cases: Any = CASES) -> Bench:
    sweep = bench(as_workflow(builder.compile(), "providers"), cases, {"n0": "all"}, evaluate=EXACT)
    sweep.run()
    return sweep


@pytest.mark.parametrize("policy", [None, RetryPolicy(max_attempts=1), RetryPolicy(retry_on=KeyError)])
@pytest.mark.parametrize("wrap", [lambda ask: ask, wrapping])
def test_a_rate_limit_is_waited_for_whatever_the_policy(
    provider: ModelProvider, bench: Make, asks: Any, wrap: Any, policy: RetryPolicy | None
) -> None:
    provider.fault = lambda number, text: limited("0.05") if number < 3 else None
    sweep = run(bench, graph_of(wrap(asks), retry_policy=policy), CASES[:1])
    assert sweep.counts == {"succeeded": 1}
    assert build(sweep.database, sweep.row)["rows"][0]["metrics"]["exact_match"]["mean"] == 1.0
    postponed = [event["data"] for event in sweep.events if event["kind"] == "attempt.postponed"]
    assert [details["fault"]["reason"] for details in postponed] == ["rate_limit"] * 3
    assert all(details["wait_s"] >= 0.05 for details in postponed)


@pytest.mark.parametrize("wrap", [lambda ask: ask, wrapping])
def test_a_request_that_is_never_served_is_lost_and_not_graded(
    provider: ModelProvider, bench: Make, asks: Any, wrap: Any
) -> None:
    waits = threading.Event()  # the lost request, and with it others have yet to be served

    def fault(number: int, text: str) -> Fault | None:
        if text != "question 0":
            return None
        if text in provider.requests[:-1]:
            waits.set()
        return Fault(503)

    def answer(text: str) -> str:
        assert waits.wait(60)
        return answer_to(text)

    provider.fault, provider.answer = fault, answer
    sweep = run(bench, graph_of(wrap(asks)))
    assert sweep.counts == {"succeeded": 7, "failed": 1}
    report = build(sweep.database, sweep.row)
    assert (report["provider"]["lost"], report["rows"][0]["failed"]) == (1, 0)
    assert (report["rows"][0]["metrics"]["exact_match"]["mean"], report["rows"][0]["n"]) == (1.0, 8)
    (failure,) = [cell.failure for cell in sweep.cells() if cell.failure is not None]
    assert failure["kind"] == "provider"


def test_parallel_branches_wait_each_for_itself(provider: ModelProvider, bench: Make, asks: Any) -> None:
    provider.fault = lambda number, text: (limited("0.01"), Fault(503))[number % 2] if number < 4 else None

    def notes(state: State) -> dict[str, Any]:
        return {"a": ["noted"]}

    case = {**CASES[0], "expected": {"a": [answer_to("question 0"), answer_to("question 0"), "noted"]}}
    sweep = run(bench, graph_of(asks, asks, notes), [case])
    assert sweep.counts == {"succeeded": 1}
    assert build(sweep.database, sweep.row)["rows"][0]["metrics"]["exact_match"]["mean"] == 1.0
    assert len(provider.requests) == 6
    assert sum(event["kind"] == "attempt.postponed" for event in sweep.events) == 4
