"""Asking a model for text, whatever its client is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from wtb.authoring.context.node_context import current_context
from wtb.core.errors import InputError
from wtb.core.mappings import Arguments
from wtb.core.values import Json
from wtb.integrations.models.recording import record_calls
from wtb.integrations.models.responses import reply

Prompt = str | Sequence[Mapping[str, Json]]
MAX_TOKENS = 4096  # Anthropic requires a limit


def complete(client: Any, prompt: Prompt, *, model: str | None = None, **options: Any) -> str:
    """Ask a model for text, whatever its client is. The call is recorded with the node that makes it.

    Args:
        client: One of the shape of `openai.OpenAI` or `anthropic.Anthropic`, or a function of the prompt that returns
            the text, or `(text, usage)`: a dict with what is known of `tokens_in`, `tokens_out`, `usd` and `model`.
        prompt: Text, or messages with `role` and `content`.
        model: The model's name, if the client needs one.
        **options: Passed on to the client. Those that its method has no parameter for are sent in the body of the
            request, for the provider to accept or reject.

    Returns:
        The text that the model answers.

    Raises:
        InputError: For another client, for an asynchronous one, and for a client that needs a model and has none.

    Example:
        >>> from wtb.integrations.models import complete
        >>> complete(lambda prompt: (prompt.upper(), {"tokens_in": 2, "tokens_out": 2}), "say it")
        'SAY IT'
    """
    if callable(getattr(getattr(getattr(client, "chat", None), "completions", None), "create", None)):
        create: Any = record_calls(client).chat.completions.create
        known = _known_to(client.chat.completions.create, options)
        return _text(client, create(model=_required_model(client, model), messages=_messages(prompt), **known))
    if callable(getattr(getattr(client, "messages", None), "create", None)):
        create = record_calls(client).messages.create
        known = _known_to(client.messages.create, {"max_tokens": MAX_TOKENS, **options})
        talk = _split_system(_messages(prompt))
        return _text(client, create(model=_required_model(client, model), **talk, **known))
    if callable(client):
        return _call_function(client, prompt, model, options)
    raise InputError(
        f"a {type(client).__name__} cannot be asked for text; expected a client of the shape of openai.OpenAI or "
        f"anthropic.Anthropic, or a function of the prompt"
    )


def _known_to(create: Callable[..., Any], options: Arguments) -> Arguments:
    """Return options as a client takes them: sampling parameters come and go with versions of the clients."""
    parameters = inspect.signature(create).parameters
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    if takes_any or "extra_body" not in parameters:
        return dict(options)
    known = {name: value for name, value in options.items() if name in parameters}
    unknown = {name: value for name, value in options.items() if name not in parameters}
    return {**known, "extra_body": {**(known.get("extra_body") or {}), **unknown}} if unknown else known


def _required_model(client: Any, model: str | None) -> str:
    if not model:
        raise InputError(f"a {type(client).__name__} needs to know which model to ask: give model=")
    return model


def _messages(prompt: Prompt) -> list[Mapping[str, Json]]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(one) for one in prompt]


class _Talk(TypedDict):
    """What Anthropic takes apart from each other. system: where there is any."""

    messages: Prompt
    system: NotRequired[str]


def _split_system(messages: Sequence[Mapping[str, Json]]) -> _Talk:
    """Anthropic takes what the system says apart from the talk."""
    system = [str(one.get("content")) for one in messages if one.get("role") == "system"]
    talk: _Talk = {"messages": [one for one in messages if one.get("role") != "system"]}
    return {**talk, "system": "\n\n".join(system)} if system else talk


def _text(client: Any, answer: Any) -> str:
    if inspect.iscoroutine(answer):
        answer.close()
        raise InputError(f"a {type(client).__name__} is asynchronous; give the client that is not")
    content = reply(answer).content
    if isinstance(content, list):
        content = content[0] if content else None
    text = content.get("text") if isinstance(content, dict) else content
    return text if isinstance(text, str) else ""


def _call_function(client: Any, prompt: Prompt, model: str | None, options: Arguments) -> str:
    found = client(prompt, **({"model": model} if model else {}), **options)
    if isinstance(found, str):
        return found
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], str)):
        kind = type(found).__name__
        raise InputError(f"the model's function returned {kind}; expected text, or a tuple of text and usage")
    text: str = found[0]
    used = found[1]
    if not isinstance(used, Mapping):
        raise InputError(f"the model's function gave a usage of type {type(used).__name__}; expected a dict")
    known = {key: used[key] for key in ("tokens_in", "tokens_out", "usd") if used.get(key) is not None}
    context = current_context()
    if context is not None:
        context.call(model=used.get("model", model), prompt=prompt, response=text, **known)
    return text
