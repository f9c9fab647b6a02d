"""What a model answered, by the shape of the answer: its text and tool calls, and the tokens that it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from wtb.authoring.context.usage import Usage, reported_usage
from wtb.core.classes.frozen import frozen
from wtb.core.mappings import Arguments
from wtb.core.serialization.plain_json import storable

if TYPE_CHECKING:
    from pydantic import JsonValue

_TRANSPORT = ("extra_headers", "extra_query", "timeout", "idempotency_key", "stream", "stream_options")
_SECRET = ("headers", "authorization", "authorization_token", "api_key", "token", "password")
_TALK = ("messages", "input", "prompt", "system", "instructions")
_DEEPEST = 50


@frozen(slots=True)
class Reply:
    """model: as the server names it. content: text, or a dict with text and tool calls. usage: None where unknown."""

    model: str | None
    content: Any
    usage: Usage | None


class ToolCall(TypedDict):
    """A tool that a model wants called, as far as its answer says."""

    name: JsonValue
    arguments: JsonValue


def plain(thing: Any, depth: int = 0) -> Any:
    """What a client takes or gives, as plain JSON. Never raises: what is no JSON is shown as text."""
    if thing is None or isinstance(thing, bool | float):
        return thing
    if isinstance(thing, int):
        return thing if abs(thing) < 2**63 else str(thing)
    if isinstance(thing, str):
        return storable(thing)
    if isinstance(thing, bytes | bytearray):
        return f"<{len(thing):,} bytes>"
    if depth > _DEEPEST:
        return "<nested too deep>"
    dump = getattr(thing, "model_dump", None)
    if callable(dump) and not isinstance(thing, type):
        thing = dump(mode="json", exclude_none=True, warnings=False)
    if isinstance(thing, Mapping):
        return {storable(str(key)): plain(value, depth + 1) for key, value in thing.items()}
    if isinstance(thing, list | tuple | set | frozenset):
        return [plain(item, depth + 1) for item in thing]
    if isinstance(thing, type):
        return thing.__qualname__
    return storable(str(thing), 1000)


def request_of(options: Arguments) -> Any:
    """The request of a call, for the record: its messages, or a dict of all options, without headers and keys."""
    request: dict[str, JsonValue] = {}
    body = options.get("extra_body")  # which the clients send beside the options that they know
    for name, value in {**options, "extra_body": None, **(body if isinstance(body, Mapping) else {})}.items():
        if name == "model" or name in _TRANSPORT or is_left_out(value):
            continue
        request[name] = plain(value) if name in _TALK else _without_secrets(plain(value))
    if len(request) == 1 and (name := next(iter(request))) in _TALK:
        return request[name]
    return request


def is_left_out(value: Any) -> bool:
    """Return whether an option of a call stands for none."""
    return value is None or type(value).__name__ in ("NotGiven", "Omit")


def _without_secrets(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    if isinstance(value, dict):
        return {
            key: "(not recorded)" if key.lower() in _SECRET and not isinstance(item, int) else _without_secrets(item)
            for key, item in value.items()
        }
    return value


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
    found = plain(answer)
    if not isinstance(found, dict):
        return Reply(None, found, None)
    model = found.get("model")
    return Reply(model if isinstance(model, str) else None, _content(found), usage(found.get("usage")))


def usage(reported: Any) -> Usage | None:
    """Return the tokens that a response of OpenAI or Anthropic reports; None if it reports none."""
    return reported_usage(reported if isinstance(reported, dict) else plain(reported))


def _content(found: Mapping[str, JsonValue]) -> Any:
    if isinstance(choices := found.get("choices"), list):
        every = [_choice(one) for one in _objects(choices)]
        return every[0] if len(every) == 1 else every
    if isinstance(output := found.get("output"), list):
        return _pieces([part for item in _objects(output) for part in _parts(item)])
    if isinstance(content := found.get("content"), list):
        return _pieces(_objects(content))
    return {key: value for key, value in found.items() if key not in ("id", "model", "usage")}


def _objects(found: JsonValue) -> list[dict[str, JsonValue]]:
    """The objects of a list; none of anything else."""
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _choice(choice: Mapping[str, JsonValue]) -> Any:
    message = choice.get("message")
    if not isinstance(message, dict):
        return choice.get("text")
    calls = _objects([call.get("function", call) for call in _objects(message.get("tool_calls"))])
    text = message.get("content") or message.get("refusal")
    return join_parts(text, [{"name": call.get("name"), "arguments": call.get("arguments")} for call in calls])


def _parts(item: Mapping[str, JsonValue]) -> Sequence[Mapping[str, JsonValue]]:
    """The parts of an item of OpenAI's responses, in Anthropic's terms."""
    if item.get("type") == "function_call":
        return [{"type": "tool_use", "name": item.get("name"), "input": item.get("arguments")}]
    return _objects(item.get("content"))


def _pieces(parts: Sequence[Mapping[str, JsonValue]]) -> Any:
    text = "".join(text for part in parts if isinstance(text := part.get("text"), str))
    used: list[ToolCall] = [
        {"name": part.get("name"), "arguments": part.get("input")} for part in parts if part.get("type") == "tool_use"
    ]
    return join_parts(text, used)


def join_parts(text: JsonValue, tool_calls: Sequence[ToolCall]) -> Any:
    """Text alone, or with the tools that the model wants called."""
    return {"text": text or "", "tool_calls": tool_calls} if tool_calls else text
