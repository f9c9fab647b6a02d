"""What calls read and answered, as attributes of spans have it: only where somebody asked for it.

Sources: OpenTelemetry's GenAI conventions, 1.38 (`gen_ai.input.messages`); OpenInference 0.1 (`input.value`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from typing_extensions import TypedDict

from wtb.core.serialization.plain_json import readable, storable

MOST_CONTENT: Final = 32_000  # characters of one attribute

Attributes = dict[str, str | int | float | bool | None]


def model_content(prompt: str | None, response: str | None) -> Attributes:
    """Return what a model was asked and answered, both typed JSON, as messages."""
    return {
        "gen_ai.input.messages": _messages(prompt, "user"),
        "gen_ai.output.messages": _messages(response, "assistant"),
    }


def tool_content(arguments: str | None, result: str | None) -> Attributes:
    """Return what a tool was given and what it returned, both typed JSON."""
    return {"gen_ai.tool.call.arguments": _text(arguments), "gen_ai.tool.call.result": _text(result)}


def openinference(kind: str, about: Attributes) -> Attributes:
    """Return what OpenInference calls the attributes of a span.

    Args:
        kind: What it is: `CHAIN`, `LLM` or `TOOL`.
        about: Its attributes `gen_ai.*`.
    """
    read, wrote = about.get("gen_ai.usage.input_tokens"), about.get("gen_ai.usage.output_tokens")
    found: Attributes = {"openinference.span.kind": kind}
    if kind == "LLM":
        total = read + wrote if isinstance(read, int) and isinstance(wrote, int) else None
        found |= {
            "llm.model_name": about.get("gen_ai.request.model"),
            "llm.token_count.prompt": read,
            "llm.token_count.completion": wrote,
            "llm.token_count.total": total,
            "llm.cost.total": about.get("wtb.cost.usd"),
        }
    found["tool.name"] = about.get("gen_ai.tool.name")
    found["input.value"] = about.get("gen_ai.input.messages") or about.get("gen_ai.tool.call.arguments")
    found["output.value"] = about.get("gen_ai.output.messages") or about.get("gen_ai.tool.call.result")
    return found


def _messages(encoded: str | None, role: str) -> str | None:
    if encoded is None:
        return None
    said = readable(encoded.encode())
    if isinstance(said, Mapping) and isinstance(said.get("messages"), list):  # a request with its options
        said = said["messages"]
    each = said if isinstance(said, list) and all(_is_message(one) for one in said) else [{"content": said}]
    messages = [_message(one.get("role", role), one["content"]) for one in each]
    whole = json.dumps(messages)
    if len(whole) <= MOST_CONTENT:
        return whole
    return json.dumps([_message(role, storable(_plain(said), MOST_CONTENT // 2))])


class _Part(TypedDict):
    type: str
    content: str


class _Message(TypedDict):
    """A message, as OpenTelemetry's conventions for generative AI have it."""

    role: str
    parts: list[_Part]


def _is_message(one: object) -> bool:
    return isinstance(one, Mapping) and "content" in one


def _message(role: object, content: object) -> _Message:
    return {"role": str(role), "parts": [{"type": "text", "content": _plain(content)}]}


def _text(encoded: str | None) -> str | None:
    return None if encoded is None else storable(_plain(readable(encoded.encode())), MOST_CONTENT)


def _plain(said: object) -> str:
    return said if isinstance(said, str) else json.dumps(said)
