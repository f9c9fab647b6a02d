"""Every engine asks each question of a node once a visit, whatever else the node does."""

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
from tests.execution.test_engine_contract import ctx
from tests.support.bench import Bench
from tests.support.prose import sentence
from wtb.authoring.code.import_paths import as_workflow
from wtb.authoring.workflow import Workflow
from wtb.core.errors import Rejected
from wtb.operations.context import Context
from wtb.operations.control.answers import answer
from wtb.operations.control.rollback import rollback
from wtb.store.control import approvals, executions

Ask = Callable[[str], str]
QUICK = RetryPolicy(max_attempts=3, initial_interval=0.0, jitter=False)


def by_context(text: str) -> str:
    return str(ctx().ask(text).feedback)


def by_interrupt(text: str) -> str:
    return str(interrupt(text))


def by_both(text: str) -> str:
    """Ask every other letter by `interrupt`, so that the two ways take turns."""
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
    questions: list[str] = field(default_factory=list)

    def run(self, limit: int = 20) -> Any:
        """Run to the end, one answer at a time. Returns the final state of the first cell."""
        for _ in range(limit):
            self.bench.run()
            if not self.answer():
                return self.bench.cells()[0].state
        raise AssertionError(f"still asking after {limit} answers: {self.questions}")

    def answer(self, action: str = "approve", **more: Any) -> bool:
        open_rows = approvals.approval_rows(self.bench.database, sweep_id=self.bench.sweep_id)
        for row in open_rows[:1]:
            self.questions.append(row.question)
            feedback = f"{row.question[:-1]}! {self.questions.count(row.question)}"
            context = Context(self.bench.database, by="ada")
            answer(context, row.id, action, bound=self.bench.prepared.bound, **{"feedback": feedback, **more})
        return bool(open_rows)

    def roll_back(self, node: str) -> None:
        """Roll the only execution back to the writes of a node, and run it again from there."""
        (execution,) = self.bench.executions
        rollback(Context(self.bench.database, by="ada"), execution.id, node, bound=self.bench.prepared.bound)
        executions.resume(self.bench.database, execution.id, by="ada")


@pytest.fixture
def desk(memory_bench: Any) -> Iterator[Callable[..., Desk]]:
    desks: list[Desk] = []

    def make(workflow: Workflow, vary: Any = None, **case_input: Any) -> Desk:
        desks.append(Desk(memory_bench(workflow, [{"id": "one", "input": case_input}], vary)))
        return desks[-1]

    yield make
    for open_desk in desks:
        open_desk.bench.database.close()


Make = Callable[..., Desk]


def test_several_questions_of_one_node_are_each_asked_once(way: Way, desk: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        return {"words": [way.ask(text) for text in ("A?", "B?", "A?", "C?", "D?", "A?")]}

    dialog = desk(way.subject.line(a))

    assert dialog.run()["words"] == ["A! 1", "B! 1", "A! 2", "C! 1", "D! 1", "A! 3"]
    assert dialog.questions == ["A?", "B?", "A?", "C?", "D?", "A?"]
    assert dialog.bench.executed == 1


def test_nodes_that_follow_each_other_and_visits_of_one_node_each_ask(way: Way, desk: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        return {"words": [way.ask("A?"), way.ask("B?")], "x": state["x"] + 1}

    dialog = desk(way.subject.loop(a, lambda state: bool(state["x"] < 2)), x=0)

    assert dialog.run()["words"] == ["A! 1", "B! 1", "A! 2", "B! 2"]
    assert dialog.questions == ["A?", "B?", "A?", "B?"]


def test_nodes_of_one_step_that_ask_the_same_each_ask(way: Way, desk: Make) -> None:
    def asks(state: State) -> dict[str, Any]:
        return {"words": [way.ask("A?"), way.ask("B?")]}

    dialog = desk(way.subject.diamond(lambda state: {}, asks, asks, lambda state: {}))

    words = dialog.run()["words"]
    assert sorted(words) == ["A! 1", "A! 2", "B! 1", "B! 2"]
    assert sorted(dialog.questions) == ["A?", "A?", "B?", "B?"]


def test_tasks_of_one_node_that_ask_the_same_each_ask(way: Way, desk: Make) -> None:
    def work(state: State) -> dict[str, Any]:
        return {"words": [f"{state['x']} {way.ask('A?')} {way.ask('B?')}"]}

    dialog = desk(way.sender.sends(lambda state: {}, work, lambda state: {}), items=[7, 8, 9])

    words = [word.split(" ", 1) for word in dialog.run()["words"]]
    assert [number for number, _ in words] == ["7", "8", "9"]
    assert sorted(rest for _, rest in words) == [f"A! {number} B! {number}" for number in (1, 2, 3)]
    assert sorted(dialog.questions) == ["A?"] * 3 + ["B?"] * 3


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

    dialog = desk(way.subject.retried(a, 3))

    assert dialog.run()["words"] == ["A! 1", "B! 1", "C! 1"]
    assert dialog.questions == ["A?", "B?", "C?"]


def test_a_node_that_is_rolled_back_asks_anew(way: Way, desk: Make) -> None:
    def b(state: State) -> dict[str, Any]:
        return {"words": [way.ask("A?"), way.ask("B?")]}

    dialog = desk(way.subject.line(lambda state: {"x": 1}, b, lambda state: {"y": 2}))
    assert dialog.run()["words"] == ["A! 1", "B! 1"]

    dialog.roll_back("a")

    assert dialog.run()["words"] == ["A! 2", "B! 2"]
    assert dialog.questions == ["A?", "B?", "A?", "B?"]


def test_a_node_that_is_rolled_back_between_two_of_its_questions_asks_both_anew(way: Way, desk: Make) -> None:
    def b(state: State) -> dict[str, Any]:
        return {"words": [way.ask("A?"), way.ask("B?")]}

    dialog = desk(way.subject.line(lambda state: {"x": 1}, b))
    dialog.bench.run()
    assert dialog.answer()
    dialog.bench.run()

    dialog.roll_back("a")

    assert dialog.run()["words"] == ["A! 2", "B! 1"]
    assert dialog.questions == ["A?", "A?", "B?"]


def test_an_answer_that_changes_the_state_is_found_by_the_place_of_its_question(way: Way, desk: Make) -> None:
    def a(state: State) -> dict[str, Any]:
        return {"words": [way.ask(f"A{state['x']}?"), way.ask(f"B{state['x']}?"), way.ask("C?")]}

    dialog = desk(way.subject.line(a), x=1)
    dialog.bench.run()
    assert dialog.answer("modify", set={"x": 2})

    assert dialog.run()["words"] == ["A1! 1", "B2! 1", "C! 1"]
    assert dialog.questions == ["A1?", "B2?", "C?"]


@pytest.mark.parametrize("first", ["A?", "B?"])
def test_a_rejection_ends_the_cell_and_nothing_more_is_asked(way: Way, desk: Make, first: str) -> None:
    def a(state: State) -> dict[str, Any]:
        return {"words": [way.ask(first), way.ask("C?")]}

    dialog = desk(way.subject.line(a))
    dialog.bench.run()
    assert dialog.answer("reject", feedback="too early")
    dialog.run()

    assert dialog.questions == [first]
    assert [(cell.status, cell.error) for cell in dialog.bench.cells()] == [
        ("cancelled", "node 'a': Rejected: rejected by ada: too early")
    ]


def test_async_nodes_ask_like_others(way: Way, desk: Make) -> None:
    async def a(state: State) -> dict[str, Any]:
        return {"words": [way.ask("A?"), way.ask("B?"), way.ask("A?")]}

    assert desk(way.subject.line(a)).run()["words"] == ["A! 1", "B! 1", "A! 2"]


def test_variants_share_the_answers_to_what_both_ask(way: Way, desk: Make) -> None:
    workflow = way.subject.line(lambda state: {"words": [way.ask("A?"), way.ask("B?")]})
    way.subject.add_variant(workflow, "a", "other", lambda state: {"words": [way.ask("A?"), way.ask("C?")]})
    dialog = desk(workflow, vary={"a": ["default", "other"]})

    dialog.run()

    assert sorted(dialog.questions) == ["A?", "B?", "C?"]
    assert [cell.state["words"] for cell in dialog.bench.cells()] == [["A! 1", "B! 1"], ["A! 1", "C! 1"]]


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

    dialog = desk(way.subject.line(a))

    assert dialog.run()["words"] == ["A! 1", "B! 1"]
    assert sorted(dialog.questions) == ["A?", "B?"]


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

    dialog = desk(way.subject.line(a))
    dialog.bench.run()
    assert dialog.answer("reject")

    assert dialog.run()["words"] == [sentence("rejected by {}", "ada: A! 1"), "B! 1"]


# Graphs within graphs, and what a node of a graph calls


def parts() -> dict[str, Callable[[Ask], Any]]:
    """Build graphs whose node `a` asks A?, B? and C? through other parts of LangGraph."""

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
    dialog = desk(as_workflow(parts()[part](ask), "shape"))

    assert dialog.run()["words"] == ["A! 1", "B! 1", "C! 1"]
    assert dialog.questions == ["A?", "B?", "C?"]


def test_an_interrupt_takes_no_answer_of_the_context(desk: Make) -> None:
    """If a node takes another path after an answer, its next question is another question."""
    passes: list[int] = []

    def a(state: State) -> dict[str, Any]:
        passes.append(0)
        asks = [(by_context, "A?"), (by_interrupt, "B?")]
        return {"words": [ask(text) for ask, text in (asks if len(passes) == 1 else reversed(asks))]}

    dialog = desk(LangGraph().line(a))

    assert dialog.run()["words"] == ["B! 1", "A! 1"]
    assert dialog.questions == ["A?", "B?"]
