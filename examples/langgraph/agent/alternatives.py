"""Other ways to do the nodes of the agent, for `vary` in sweep.yaml."""

import re
from collections.abc import Callable
from typing import Any

from langchain_core.messages import SystemMessage, ToolMessage
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest

from examples.langgraph.agent.graph import PROMPT, State, error_text, model
from examples.langgraph.agent.tools import calculate, lookup, nearest


def one_at_a_time(state: State) -> dict[str, Any]:
    """Let the model call one tool a turn: more turns, each with the whole conversation."""
    bound = model.bind_tools([lookup, calculate], parallel_tool_calls=False)
    return {"messages": [bound.invoke([SystemMessage(PROMPT), *state["messages"]])]}


def in_its_head(state: State, *, prompt: str = "Look up what you need, and estimate the rest.") -> dict[str, Any]:
    """Ask the model without a calculator."""
    bound = model.bind_tools([lookup])
    return {"messages": [bound.invoke([SystemMessage(prompt), *state["messages"]])]}


def _with_corrected_item(request: ToolCallRequest, execute: Callable[[ToolCallRequest], Any]) -> Any:
    """Execute the call; if it fails on the name of an item, once more with the nearest name."""
    done = execute(request)
    item = nearest(str(request.tool_call["args"].get("item")))
    if done.status != "error" or item is None:
        return done
    arguments = {**request.tool_call["args"], "item": item}
    return execute(request.override(tool_call={**request.tool_call, "args": arguments}))


retrying = ToolNode([lookup, calculate], handle_tool_errors=error_text, wrap_tool_call=_with_corrected_item)
"""Tries a failed lookup again itself, which saves the model a turn."""


def terse(state: State) -> dict[str, Any]:
    """Answer with the figure alone, if there is one."""
    text = state["messages"][-1].text
    figure = re.search(r"-?\d+(\.\d+)?", text)
    return {"answer": text if figure is None or "cannot tell" in text else figure[0]}


def cited(state: State) -> dict[str, Any]:
    """Answer with the model's last message and the rows of the table that it used."""
    calls = {call["id"]: call["args"] for message in state["messages"] for call in getattr(message, "tool_calls", [])}
    rows = [
        f"{calls[message.tool_call_id]['field']} of {calls[message.tool_call_id]['item']}: {message.text}"
        for message in state["messages"]
        if isinstance(message, ToolMessage) and message.name == "lookup" and message.status == "success"
    ]
    return {"answer": " ".join([state["messages"][-1].text, *(f"[{row}]" for row in rows)])}
