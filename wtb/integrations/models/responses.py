"""Reads answers of models by their shape: the text, the tool calls and the tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from wtb.authoring.context.usage import Usage, reported_usage
from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import storable
from wtb.core.values import Arguments

if TYPE_CHECKING:
    from pydantic import JsonValue

_TRANSPORT = ("extra_headers", "extra_query", "timeout", "idempotency_key", "stream", "stream_options")
_SECRET = ("headers", "authorization", "authorization_token", "api_key", "token", "password")
_TALK = ("messages", "input", "prompt", "system", "instructions")
_DEEPEST = 50


@frozen(slots=True)
class Reply:
    """A response of a model.

    Attributes:
        model: The model, as the server names it.
        content: Text, or a dict with text and tool calls.
        usage: The tokens; None if they are unknown.
    """

    model: str | None
    content: Any
    usage: Usage | None


class ToolCall(TypedDict):
    """A tool call that a model requests, as far as its response has it."""

    name: JsonValue
    arguments: JsonValue


def plain(content: Any, depth: int = 0) -> Any:
    """Return arguments or results of a client as plain JSON. Never raises: anything else is shown as text."""
    if content is None or isinstance(content, bool | float):
        return content
    if isinstance(content, int):
        return content if abs(content) < 2**63 else str(content)
    if isinstance(content, str):
        return storable(content)
    if isinstance(content, bytes | bytearray):
        return f"<{len(content):,} bytes>"
    if depth > _DEEPEST:
        return "<nested too deep>"
    dump = getattr(content, "model_dump", None)
    if callable(dump) and not isinstance(content, type):
        content = dump(mode="json", exclude_none=True, warnings=False)
    if isinstance(content, Mapping):
        return {storable(str(key)): plain(part, depth + 1) for key, part in content.items()}
    if isinstance(content, list | tuple | set | frozenset):
        return [plain(part, depth + 1) for part in content]
    if isinstance(content, type):
        return content.__qualname__
    return storable(str(content), 1000)


def request_of(options: Arguments) -> Any:
    """Return the request of a call for its record: messages, or a dict of all options without headers and keys."""
    request: dict[str, JsonValue] = {}
    body = options.get("extra_body")  # which the clients send beside the options that they know
    for name, option in {**options, "extra_body": None, **(body if isinstance(body, Mapping) else {})}.items():
        if name == "model" or name in _TRANSPORT or is_left_out(option):
            continue
        request[name] = plain(option) if name in _TALK else _without_secrets(plain(option))
    if len(request) == 1 and (name := next(iter(request))) in _TALK:
        return request[name]
    return request


def is_left_out(option: Any) -> bool:
    """Return whether an option of a call stands for none."""
    return option is None or type(option).__name__ in ("NotGiven", "Omit")


def _without_secrets(content: Any) -> Any:
    if isinstance(content, list):
        return [_without_secrets(part) for part in content]
    if isinstance(content, dict):
        return {
            # A number under such a key is a count or a switch.
            key: "(not recorded)" if key.lower() in _SECRET and not isinstance(part, int) else _without_secrets(part)
            for key, part in content.items()
        }
    return content


def reply(answer: Any) -> Reply:
    """Read a complete response; of one of no known shape, what can be read of it. Never raises."""
    try:
        return _reply(answer)
    except Exception:  # noqa: BLE001 - whatever a server sent and a client made of it
        return Reply(None, None, None)


def _reply(answer: Any) -> Reply:
    vectors = getattr(answer, "data", None)
    if isinstance(vectors, list):  # of embeddings: figures that nobody reads
        model, used = getattr(answer, "model", None), usage(getattr(answer, "usage", None))
        return Reply(model if isinstance(model, str) else None, {"embeddings": len(vectors)}, used)
    document = plain(answer)
    if not isinstance(document, dict):
        return Reply(None, document, None)
    model = document.get("model")
    return Reply(model if isinstance(model, str) else None, _content(document), usage(document.get("usage")))


def usage(reported: Any) -> Usage | None:
    """Return the tokens that a response of OpenAI or Anthropic reports; None if it reports none."""
    return reported_usage(reported if isinstance(reported, dict) else plain(reported))


def _content(document: Mapping[str, JsonValue]) -> Any:
    if isinstance(choices := document.get("choices"), list):
        every = [_choice(choice) for choice in _objects(choices)]
        return every[0] if len(every) == 1 else every
    if isinstance(output := document.get("output"), list):
        return _pieces([part for output_part in _objects(output) for part in _parts(output_part)])
    if isinstance(content := document.get("content"), list):
        return _pieces(_objects(content))
    return {key: field for key, field in document.items() if key not in ("id", "model", "usage")}


def _objects(parts: JsonValue) -> list[dict[str, JsonValue]]:
    """Return the objects of a list; none of anything else."""
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _choice(choice: Mapping[str, JsonValue]) -> Any:
    message = choice.get("message")
    if not isinstance(message, dict):
        return choice.get("text")
    calls = _objects([call.get("function", call) for call in _objects(message.get("tool_calls"))])
    text = message.get("content") or message.get("refusal")
    return join_parts(text, [{"name": call.get("name"), "arguments": call.get("arguments")} for call in calls])


def _parts(output_part: Mapping[str, JsonValue]) -> Sequence[Mapping[str, JsonValue]]:
    """Return the parts of an item of OpenAI's responses, in Anthropic's terms."""
    if output_part.get("type") == "function_call":
        return [{"type": "tool_use", "name": output_part.get("name"), "input": output_part.get("arguments")}]
    return _objects(output_part.get("content"))


def _pieces(parts: Sequence[Mapping[str, JsonValue]]) -> Any:
    text = "".join(text for part in parts if isinstance(text := part.get("text"), str))
    used: list[ToolCall] = [
        {"name": part.get("name"), "arguments": part.get("input")} for part in parts if part.get("type") == "tool_use"
    ]
    return join_parts(text, used)


def join_parts(text: JsonValue, tool_calls: Sequence[ToolCall]) -> Any:
    """Return text alone, or with the tool calls that the model requests."""
    return {"text": text or "", "tool_calls": tool_calls} if tool_calls else text
