"""Evaluators of tool calls, of forbidden text, and of quantities."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from tests.authoring.test_library import score
from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase


def openai(*calls: tuple[str, str]) -> dict[str, Any]:
    tool_calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": args}} for name, args in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": tool_calls}


MESSAGES: dict[str, Any] = {
    "openai": [
        {"role": "user", "content": "Where is it?"},
        openai(("search", '{"q": "parcel", "k": 3}')),
        {"role": "tool", "content": "found", "name": "search"},
        openai(("refund", '{"id": 7}')),
    ],
    "anthropic": [
        {"role": "user", "content": "Where is it?"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "1", "name": "search", "input": {"q": "parcel", "k": 3}},
            ],
        },
        {"role": "assistant", "content": [{"type": "tool_use", "id": "2", "name": "refund", "input": {"id": 7}}]},
    ],
    "calls": [{"name": "search", "args": {"q": "parcel", "k": 3}}, {"name": "refund", "args": {"id": 7}}],
}


def langchain() -> list[Any]:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    def asks(name: str, args: dict[str, Any]) -> AIMessage:
        return AIMessage(content="", tool_calls=[{"name": name, "args": args, "id": name}])

    return [
        HumanMessage("Where is it?"),
        asks("search", {"q": "parcel", "k": 3}),
        ToolMessage("found", tool_call_id="search", name="search"),
        asks("refund", {"id": 7}),
    ]


@pytest.mark.parametrize("kind", [*MESSAGES, "langchain"])
def test_calls_are_read_from_messages_of_every_kind(kind: str) -> None:
    messages = langchain() if kind == "langchain" else MESSAGES[kind]
    assert score("tool_calls", messages) == 2
    assert score("tools_called", messages, ["refund", "search"])
    assert score("tools_called", messages, tools=["search", "refund"], order="exact")
    assert not score("tools_called", messages, tools=["refund", "search"], order="in_order")
    assert not score("tools_called", messages, tools=["search"], order="exact")
    assert score("tools_avoided", messages, tools=["delete"])
    assert not score("tools_avoided", messages, tools=["refund"])
    assert score("tool_arguments", messages, [{"name": "search", "args": {"q": "parcel"}}])
    assert not score("tool_arguments", messages, [{"name": "search", "args": {"q": "letter"}}])
    assert not score("tool_arguments", messages, [{"name": "refund", "args": {"id": 7}}] * 2), "it was made once"


def test_loops_are_calls_that_were_made_before() -> None:
    same, other = ("search", '{"k": 1, "q": "a"}'), ("search", '{"q": "b", "k": 1}')
    assert score("repeated_tool_calls", [openai(same), openai(other), openai(("search", '{"q": "a", "k": 1}'))]) == 1
    assert score("repeated_tool_calls", [openai(same), openai(other)]) == 0
    assert score("tool_calls", [openai(("search", "no {JSON"))]) == 1
    limit = make_evaluator("repeated_tool_calls", {"field": "a", "at_most": 0}, str)
    assert limit.score_of(ScoredCase("case", {}), CellResult({"a": [openai(same), openai(same)]})) == 0


def test_the_nodes_that_ran_are_held_against_a_list() -> None:
    def visited(nodes: list[str], order: str) -> bool:
        evaluator = make_evaluator("nodes_visited", {"nodes": nodes, "order": order}, str)
        return bool(evaluator.fn(ScoredCase("case", {}), CellResult({}, path=("plan", "act", "check", "act"))))

    assert visited(["act", "plan"], "any")
    assert visited(["plan", "check", "act"], "in_order")
    assert not visited(["check", "plan"], "in_order")
    assert not visited(["plan", "act"], "exact")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no_personal_data", "write to bob.b+x@mail.example.com"),
        ("no_personal_data", "card 4111-1111-1111-1111."),
        ("no_personal_data", "pay GB82 WEST 1234 5698 7654 32 PAY"),
        ("no_personal_data", "DE89370400440532013000"),
        ("no_personal_data", "call +44 20 7946 0958"),
        ("no_personal_data", "SSN 078-05-1120"),
        ("no_secrets", "key=AKIAIOSFODNN7EXAMPLE"),
        ("no_secrets", "ghp_" + "a1" * 18),
        ("no_secrets", "sk-ant-" + "x" * 30),
        ("no_secrets", "-----BEGIN RSA PRIVATE KEY-----"),
    ],
)
def test_what_has_the_form_of_a_secret_or_of_personal_data_is_found(name: str, text: str) -> None:
    assert not score(name, text)


@pytest.mark.parametrize(
    "text",
    [
        "On 2026-01-02 at 10:30 we sent 1,234,567 parcels.",
        "order 4111-1111-1111-1112",
        "DE89370400440532013001",
        "version 1.2.3 of a@b",
        "task-force and sk-short",
        "000-12-3456",
    ],
)
def test_what_only_looks_like_it_is_left_alone(text: str) -> None:
    assert score("no_personal_data", text)
    assert score("no_secrets", text)


def test_kinds_of_personal_data_are_chosen() -> None:
    assert score("no_personal_data", "a@example.com", kinds=["card"])
    assert not score("no_personal_data", "a@example.com", kinds=["card", "email"])


def test_patterns_of_safety_take_time_in_proportion_to_the_text() -> None:
    draw = random.Random(3)
    for alphabet in ("a.", "1 -", "A1 ", "eyJ.", "-BEGIN "):
        text = "".join(draw.choice(alphabet) for _ in range(100_000))
        started = time.process_time()
        score("no_personal_data", text)
        score("no_secrets", text)
        assert time.process_time() - started < 10, alphabet


@pytest.mark.parametrize(
    ("answer", "expected", "close"),
    [
        ("5 km", "5000 m", True),
        ("5km", "5000 m", True),
        ("20 degC", "68 degF", True),
        ("1 kg m^2/s^2", "1 J", True),
        ("100 kWh", "360 MJ", True),
        (5, "5", True),
        ("5 km", "5000 s", False),
        ("5 km", "5001 m", False),
        ("five km", "5 km", False),
        ("5 parcels", "5 m", False),
        ("5 m^9^9^9", "5 m", False),
        ("9**9**9", "1", False),
    ],
)
def test_quantities_are_compared_whatever_their_units(answer: Any, expected: Any, close: bool) -> None:
    assert score("quantity_close", answer, expected) is close
