"""What every engine promises to nodes that ask: each question once for each visit, whatever else the node does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

import pytest
from langgraph.func import task
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy, interrupt

from tests.execution.engine_subjects import Fanned, LangGraph, Native, Sender, State, Subject
from tests.support.bench import Bench
from tests.support.prose import sentence
from wtb import current_context
from wtb.authoring.code.resolve import as_workflow
from wtb.authoring.context.node_context import Context as NodeContext
from wtb.authoring.workflow import Workflow
from wtb.core.errors import Rejected
from wtb.operations.context import Context
from wtb.operations.control.answers import answer
from wtb.operations.control.rollback import rollback
from wtb.store.control import executions, questions

Ask = Callable[[str], str]
QUICK = RetryPolicy(max_attempts=3, initial_interval=0.0, jitter=False)


def ctx() -> NodeContext:
    context = current_context()
    assert context is not None, "a node finds its context"
    return context


def by_context(text: str) -> str:
    return str(ctx().ask(text).feedback)


def by_interrupt(text: str) -> str:
    return str(interrupt(text))


def by_both(text: str) -> str:
    """Every other letter by `interrupt`, so that the two take turns."""
    return by_interrupt(text) if ord(text[0]) % 2 else by_context(text)


@dataclass
class Way:
    """A way to ask, in workflows of one engine."""

    name: str
    subject: Subject
    sender: Sender
    ask: Ask


WAYS = (
    Way("native", Native(), Fanned(), by_context),
    Way("langgraph", LangGraph(), LangGraph(), by_context),
    Way("langgraph and interrupt", LangGraph(), LangGraph(), by_both),
    Way("interrupt alone", LangGraph(), LangGraph(), by_interrupt),
)


@pytest.fixture(params=WAYS, ids=[way.name for way in WAYS])
def way(request: pytest.FixtureRequest) -> Way:
    way: Way = request.param
    return way


@dataclass
class Desk:
    """Runs a sweep of one workflow, and answers its questions: "Which?" by "Which! 1", then "Which! 2"."""

    bench: Bench
    asked: list[str] = field(default_factory=list)

    def run(self, most: int = 20) -> Any:
        """Run to the end, one answer at a time. Returns the final state of the first cell."""
        for _ in range(most):
            self.bench.run()
            if not self.answer():
                return self.bench.cells()[0].state
        raise AssertionError(f"still asking after {most} answers: {self.asked}")

    def answer(self, action: str = "approve", **more: Any) -> bool:
        open_rows = questions.approval_rows(self.bench.database, sweep_id=self.bench.sweep_id)
        for row in open_rows[:1]:
            self.asked.append(row.question)
            said = f"{row.question[:-1]}! {self.asked.count(row.question)}"
            context = Context(self.bench.database, by="ada")
            answer(context, row.id, action, bound=self.bench.prepared.bound, **{"feedback": said, **more})
        return bool(open_rows)

    def roll_back(self, node: str) -> None:
        """Roll its only execution back to what a node wrote, and let it run again from there."""
        (execution,) = self.bench.executions
        rollback(Context(self.bench.database, by="ada"), execution.id, node, bound=self.bench.prepared.bound)
        executions.resume(self.bench.database, execution.id, by="ada")


@pytest.fixture
def desk(memory_bench: Any) -> Iterator[Callable[..., Desk]]:
    desks: list[Desk] = []

    def make(workflow: Workflow, vary: Any = None, **given: Any) -> Desk:
        desks.append(Desk(memory_bench(workflow, [{"id": "one", "input": given}], vary)))
        return desks[-1]

    yield make
    for made in desks:
        made.bench.database.close()


Make = Callable[..., Desk]


def test_several_questions_of_one_node_are_each_asked_once(way: Way, desk: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        return {"words": [way.ask(text) for text in ("A?", "B?", "A?", "C?", "D?", "A?")]}

    made = desk(way.subject.line(a))

    assert made.run()["words"] == ["A! 1", "B! 1", "A! 2", "C! 1", "D! 1", "A! 3"]
    assert made.asked == ["A?", "B?", "A?", "C?", "D?", "A?"]
    assert made.bench.executed == 1


def test_nodes_that_follow_each_other_and_visits_of_one_node_each_ask(way: Way, desk: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        return {"words": [way.ask("A?"), way.ask("B?")], "x": state["x"] + 1}

    made = desk(way.subject.loop(a, lambda state: bool(state["x"] < 2)), x=0)

    assert made.run()["words"] == ["A! 1", "B! 1", "A! 2", "B! 2"]
    assert made.asked == ["A?", "B?", "A?", "B?"]


def test_nodes_of_one_step_that_ask_the_same_each_ask(way: Way, desk: Make) -> None:
    def asks(state: State) -> dict[str, Any]:
        return {"words": [way.ask("A?"), way.ask("B?")]}

    made = desk(way.subject.diamond(lambda state: {}, asks, asks, lambda state: {}))

    words = made.run()["words"]
    assert sorted(words) == ["A! 1", "A! 2", "B! 1", "B! 2"]
    assert sorted(made.asked) == ["A?", "A?", "B?", "B?"]


def test_tasks_of_one_node_that_ask_the_same_each_ask(way: Way, desk: Make) -> None:
    def work(state: State) -> dict[str, Any]:
        return {"words": [f"{state['x']} {way.ask('A?')} {way.ask('B?')}"]}

    made = desk(way.sender.sends(lambda state: {}, work, lambda state: {}), items=[7, 8, 9])

    words = [word.split(" ", 1) for word in made.run()["words"]]
    assert [item for item, _ in words] == ["7", "8", "9"]
    assert sorted(said for _, said in words) == [f"A! {number} B! {number}" for number in (1, 2, 3)]
    assert sorted(made.asked) == ["A?"] * 3 + ["B?"] * 3


def test_an_attempt_after_a_failure_asks_only_what_was_not_answered(way: Way, desk: Make) -> None:
    failures = [ConnectionError("after A"), ConnectionError("after B")]

    def a(state: State) -> dict[str, Any]:
        words = [way.ask("A?")]
        if len(failures) == 2:
            raise failures.pop()
        words.append(way.ask("B?"))
        if failures:
            raise failures.pop()
        return {"words": [*words, way.ask("C?")]}

    made = desk(way.subject.retried(a, 3))

    assert made.run()["words"] == ["A! 1", "B! 1", "C! 1"]
    assert made.asked == ["A?", "B?", "C?"]


def test_a_node_that_is_rolled_back_asks_anew(way: Way, desk: Make) -> None:
    def b(state: State) -> dict[str, Any]:
        return {"words": [way.ask("A?"), way.ask("B?")]}

    made = desk(way.subject.line(lambda state: {"x": 1}, b, lambda state: {"y": 2}))
    assert made.run()["words"] == ["A! 1", "B! 1"]

    made.roll_back("a")

    assert made.run()["words"] == ["A! 2", "B! 2"]
    assert made.asked == ["A?", "B?", "A?", "B?"]


def test_a_node_that_is_rolled_back_between_two_of_its_questions_asks_both_anew(way: Way, desk: Make) -> None:
    def b(state: State) -> dict[str, Any]:
        return {"words": [way.ask("A?"), way.ask("B?")]}

    made = desk(way.subject.line(lambda state: {"x": 1}, b))
    made.bench.run()
    assert made.answer()
    made.bench.run()

    made.roll_back("a")

    assert made.run()["words"] == ["A! 2", "B! 1"]
    assert made.asked == ["A?", "A?", "B?"]


def test_an_answer_that_changes_the_state_is_found_by_the_place_of_its_question(way: Way, desk: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        return {"words": [way.ask(f"A{state['x']}?"), way.ask(f"B{state['x']}?"), way.ask("C?")]}

    made = desk(way.subject.line(a), x=1)
    made.bench.run()
    assert made.answer("modify", set={"x": 2})

    assert made.run()["words"] == ["A1! 1", "B2! 1", "C! 1"]
    assert made.asked == ["A1?", "B2?", "C?"]


@pytest.mark.parametrize("first", ["A?", "B?"])
def test_a_rejection_ends_the_cell_and_nothing_more_is_asked(way: Way, desk: Make, first: str) -> None:
    def a(state: State) -> dict[str, Any]:
        return {"words": [way.ask(first), way.ask("C?")]}

    made = desk(way.subject.line(a))
    made.bench.run()
    assert made.answer("reject", feedback="too early")
    made.run()

    assert made.asked == [first]
    assert [(cell.status, cell.error) for cell in made.bench.cells()] == [
        ("cancelled", "node 'a': Rejected: rejected by ada: too early")
    ]


def test_async_nodes_ask_like_others(way: Way, desk: Make) -> None:
    async def a(state: State) -> dict[str, Any]:
        return {"words": [way.ask("A?"), way.ask("B?"), way.ask("A?")]}

    assert desk(way.subject.line(a)).run()["words"] == ["A! 1", "B! 1", "A! 2"]


def test_variants_share_the_answers_to_what_both_ask(way: Way, desk: Make) -> None:
    workflow = way.subject.line(lambda state: {"words": [way.ask("A?"), way.ask("B?")]})
    way.subject.add_variant(workflow, "a", "other", lambda state: {"words": [way.ask("A?"), way.ask("C?")]})
    made = desk(workflow, vary={"a": ["default", "other"]})

    made.run()

    assert sorted(made.asked) == ["A?", "B?", "C?"]
    assert [cell.state["words"] for cell in made.bench.cells()] == [["A! 1", "B! 1"], ["A! 1", "C! 1"]]


# What only questions by the context promise


CONTEXT = tuple(way for way in WAYS if way.ask is by_context)


@pytest.mark.parametrize("way", CONTEXT, ids=[way.name for way in CONTEXT])
def test_threads_of_a_node_may_ask_in_another_order_after_an_answer(way: Way, desk: Make) -> None:
    passes: list[int] = []

    def a(state: State) -> dict[str, Any]:
        passes.append(0)
        turns = {text: threading.Event() for text in ("A?", "B?")}
        first = "AB"[len(passes) % 2] + "?"

        def asks(text: str) -> str:
            if text != first:
                turns[first].wait(30)
            try:
                return way.ask(text)
            finally:
                turns[text].set()

        with ThreadPoolExecutor(2) as threads:
            waiting = [threads.submit(copy_context().run, asks, text) for text in turns]
        return {"words": [future.result() for future in waiting]}

    made = desk(way.subject.line(a))

    assert made.run()["words"] == ["A! 1", "B! 1"]
    assert sorted(made.asked) == ["A?", "B?"]


@pytest.mark.parametrize("way", CONTEXT, ids=[way.name for way in CONTEXT])
def test_a_node_may_handle_a_rejection_but_no_question_without_an_answer(way: Way, desk: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        try:
            first = way.ask("A?")
        except Rejected as rejected:
            first = str(rejected)
        except Exception:  # noqa: BLE001 - as users write it
            first = "swallowed"
        return {"words": [first, way.ask("B?")]}

    made = desk(way.subject.line(a))
    made.bench.run()
    assert made.answer("reject")

    assert made.run()["words"] == [sentence("rejected by {}", "ada: A! 1"), "B! 1"]


# Graphs within graphs, and what a node of a graph calls


def parts() -> dict[str, Callable[[Ask], Any]]:
    """Graphs whose node `a` asks A?, B? and C? by way of other parts of LangGraph."""

    def asks(ask: Ask) -> Callable[[State], dict[str, Any]]:
        return lambda state: {"words": [ask("A?"), ask("B?"), ask("C?")]}

    def graph(node: Any, **options: Any) -> Any:
        builder: Any = StateGraph(State)
        return builder.add_node("a", node, **options).add_edge(START, "a")

    def by_tasks(ask: Ask) -> Callable[[State], dict[str, Any]]:
        call = task(lambda text: ask(text), name="call")
        return lambda state: {"words": [call(text).result() for text in ("A?", "B?", "C?")]}

    def invoked(ask: Ask) -> Callable[[State], dict[str, Any]]:
        inner = graph(asks(ask)).compile()
        return lambda state: {"words": inner.invoke({"x": 1})["words"]}

    return {
        "a graph that is a node": lambda ask: graph(graph(asks(ask)).compile()),
        "one with retries, which runs as one node": lambda ask: graph(graph(asks(ask)).compile(), retry_policy=QUICK),
        "a graph in a graph in a graph": lambda ask: graph(graph(graph(asks(ask)).compile()).compile()),
        "tasks that a node calls": lambda ask: graph(by_tasks(ask)),
        "a graph that a node invokes": lambda ask: graph(invoked(ask)),
        "a node with an error handler": lambda ask: graph(
            asks(ask), error_handler=lambda state: {"words": ["handled"]}, retry_policy=QUICK
        ),
    }


@pytest.mark.parametrize("ask", [by_context, by_both, by_interrupt])
@pytest.mark.parametrize("part", parts())
def test_parts_of_graphs_ask_like_nodes(part: str, ask: Ask, desk: Make) -> None:
    made = desk(as_workflow(parts()[part](ask), "shape"))

    assert made.run()["words"] == ["A! 1", "B! 1", "C! 1"]
    assert made.asked == ["A?", "B?", "C?"]


def test_an_interrupt_takes_no_answer_of_the_context(desk: Make) -> None:
    """A node that goes another way after an answer: what it asks then is another question."""
    passes: list[int] = []

    def a(state: State) -> dict[str, Any]:
        passes.append(0)
        asks = [(by_context, "A?"), (by_interrupt, "B?")]
        return {"words": [ask(text) for ask, text in (asks if len(passes) == 1 else reversed(asks))]}

    made = desk(LangGraph().line(a))

    assert made.run()["words"] == ["B! 1", "A! 1"]
    assert made.asked == ["A?", "B?"]
