"""Tool calls of an attempt are recorded, replayed, or rejected with a reason."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.prose import sentence
from wtb.authoring.tools import Tool, Tools
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.core.errors import InputError, StateError, WorkflowError


def tools(*definitions: Tool, done: Any = ()) -> tuple[Tools, list[dict[str, Any]]]:
    calls: list[dict[str, Any]] = []
    return Tools({tool.name: tool for tool in definitions}, calls.append, done), calls


def outcomes(calls: list[dict[str, Any]]) -> list[tuple[str, str, Any]]:
    return [(call["tool"], call["status"], call["result"]) for call in calls]


def test_a_call_is_told_with_its_arguments_and_result() -> None:
    toolbox, calls = tools(Tool("add", lambda a, b: a + b))

    assert toolbox.add(b=2, a=1) == 3
    assert toolbox["add"](a=1, b=2) == 3

    assert calls[0]["arguments"] == calls[1]["arguments"] == '{"a":1,"b":2}'
    assert outcomes(calls) == [("add", "done", "3")] * 2


def test_a_call_that_fails_is_told_and_raises_what_the_tool_raised() -> None:
    def broken() -> None:
        raise ValueError("no\0such thing")

    toolbox, calls = tools(Tool("broken", broken))

    with pytest.raises(ValueError, match="such thing"):
        toolbox.broken()

    assert outcomes(calls) == [("broken", "failed", None)]
    assert calls[0]["error"] == "ValueError: no\ufffdsuch thing"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda toolbox: toolbox.serch(q=1), InputError, "no tool 'serch'; did you mean 'search'"),
        (lambda toolbox: toolbox["x"](q=1), InputError, sentence("expected one of: {}", "search")),
        (lambda toolbox: toolbox.search(1), InputError, sentence("expected its arguments by name")),
        (
            lambda toolbox: toolbox.search(q=object()),
            StateError,
            sentence("tool {}, argument {} cannot be stored", "'search'", "'q'"),
        ),
        (
            lambda toolbox: toolbox.search(q=1),
            StateError,
            sentence("tool {}: what it returned cannot be stored", "'search'"),
        ),
    ],
)
def test_what_a_tool_cannot_take_or_give_is_refused(call: Any, error: type[Exception], words: str) -> None:
    toolbox, _ = tools(Tool("search", lambda q: object()))

    with pytest.raises(error, match=words):
        call(toolbox)


def test_an_async_tool_is_awaited_in_an_async_node_and_gives_its_result_in_a_sync_one() -> None:
    async def search(q: str) -> str:
        await asyncio.sleep(0)
        return q.upper()

    toolbox, calls = tools(Tool("search", search))

    async def node() -> list[str]:
        return await asyncio.gather(toolbox.search(q="a"), toolbox.search(q="b"))

    assert asyncio.run(node()) == ["A", "B"]
    assert toolbox.search(q="c") == "C"
    assert sorted(call["result"] for call in calls) == ['"A"', '"B"', '"C"']


def test_calls_that_were_done_are_not_made_again_until_the_first_that_differs() -> None:
    steps: list[int] = []

    def step(n: int) -> int:
        steps.append(n)
        return n * 10

    toolbox, calls = tools(Tool("step", step))
    for n in (1, 1, 2, 3):
        toolbox.step(n=n)
    replay, _ = tools(Tool("step", step), done=calls)
    steps.clear()

    assert [replay.step(n=n) for n in (1, 1, 2)] == [10, 10, 20]
    assert steps == []
    assert [replay.step(n=n) for n in (7, 3)] == [70, 30]
    assert steps == [7, 3]


def test_a_call_that_had_failed_is_made_again_and_those_after_it_are_not() -> None:
    attempts: list[str] = []

    def flaky() -> str:
        attempts.append("flaky")
        if len(attempts) == 1:
            raise OSError("once")
        return "fine"

    def book() -> str:
        attempts.append("book")
        return "booked"

    toolbox, calls = tools(Tool("flaky", flaky), Tool("book", book))
    with pytest.raises(OSError, match="once"):
        toolbox.flaky()
    toolbox.book()
    replay, _ = tools(Tool("flaky", flaky), Tool("book", book), done=calls)

    assert (replay.flaky(), replay.book()) == ("fine", "booked")
    assert attempts == ["flaky", "book", "flaky"]


def test_a_replayed_async_tool_can_be_awaited() -> None:
    async def search(q: str) -> str:
        raise AssertionError("it was called before")

    done = [{"tool": "search", "arguments": '{"q":"a"}', "status": "done", "result": '"A"'}]
    toolbox, calls = tools(Tool("search", search), done=done)

    async def node() -> str:
        answer: str = await toolbox.search(q="a")
        return answer

    assert asyncio.run(node()) == "A"
    assert calls == []


def test_a_workflow_has_tools_by_name_with_what_takes_them_back() -> None:
    wf = Workflow("w")

    @wf.tool
    def book(*, flight: str) -> str:
        """Book it."""
        return flight

    @book.reversed_by
    def cancel(booking: str, *, flight: str) -> None: ...

    wf.tool(print, name="say")

    assert wf.tools["book"] is book
    assert (book.reverse, book.description) == (cancel, "Book it.")
    assert wf.tools["say"].reverse is None


def test_tools_that_cannot_work_are_problems_of_the_workflow() -> None:
    wf = Workflow("w")
    wf.entry(wf.node(lambda state: None, name="a"))
    wf.edge("a", END)
    wf.tool(lambda x, /: None, name="t")
    wf.tool(lambda: None, name="t", reverse=3)  # type: ignore[arg-type]

    with pytest.raises(WorkflowError) as refused:
        wf.validate()

    assert sentence("{} is positional-only", "'x'") in str(refused.value)
    assert sentence("its {} function is {}", "reverse", "int") in str(refused.value)
    assert sentence("two tools are named {}", "'t'") in str(refused.value)
