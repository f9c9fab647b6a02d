"""Asking a model for text, whatever its client is, and nodes of two passes: a prompt, then its answer."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NotRequired, TypedDict

from wtb.authoring.context.node_context import Context, current_context
from wtb.core.errors import InputError
from wtb.core.serialization.codec import encode
from wtb.core.serialization.plain_json import readable
from wtb.core.values import Arguments, Json, Params, State
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
        accepted = _known_to(client.chat.completions.create, options)
        return _text(client, create(model=_required_model(client, model), messages=_messages(prompt), **accepted))
    if callable(getattr(getattr(client, "messages", None), "create", None)):
        create = record_calls(client).messages.create
        accepted = _known_to(client.messages.create, {"max_tokens": MAX_TOKENS, **options})
        talk = _split_system(_messages(prompt))
        return _text(client, create(model=_required_model(client, model), **talk, **accepted))
    if callable(client):
        return _call_function(client, prompt, model, options)
    raise InputError(
        f"a {type(client).__name__} cannot generate text; expected a client of the shape of openai.OpenAI or "
        f"anthropic.Anthropic, or a function of the prompt"
    )


def _known_to(create: Callable[..., Any], options: Arguments) -> Arguments:
    """Return options as a client takes them: sampling parameters come and go with versions of the clients."""
    parameters = inspect.signature(create).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if takes_any or "extra_body" not in parameters:
        return dict(options)
    accepted = {name: option for name, option in options.items() if name in parameters}
    unknown = {name: option for name, option in options.items() if name not in parameters}
    return {**accepted, "extra_body": {**(accepted.get("extra_body") or {}), **unknown}} if unknown else accepted


def _required_model(client: Any, model: str | None) -> str:
    if not model:
        raise InputError(f"a {type(client).__name__} needs the name of a model: give model=")
    return model


def _messages(prompt: Prompt) -> list[Mapping[str, Json]]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(message) for message in prompt]


class _Talk(TypedDict):
    """The parts of a prompt that Anthropic takes separately. `system` is absent if there is none."""

    messages: Prompt
    system: NotRequired[str]


def _split_system(messages: Sequence[Mapping[str, Json]]) -> _Talk:
    """Split system messages from the others, because Anthropic takes them separately."""
    system = [str(message.get("content")) for message in messages if message.get("role") == "system"]
    talk: _Talk = {"messages": [message for message in messages if message.get("role") != "system"]}
    return {**talk, "system": "\n\n".join(system)} if system else talk


def _text(client: Any, answer: Any) -> str:
    if inspect.iscoroutine(answer):
        # Python warns of a coroutine that is never awaited.
        answer.close()
        raise InputError(f"a {type(client).__name__} is asynchronous; give the client that is not")
    content = reply(answer).content
    if isinstance(content, list):
        content = content[0] if content else None
    text = content.get("text") if isinstance(content, dict) else content
    return text if isinstance(text, str) else ""


def _call_function(client: Any, prompt: Prompt, model: str | None, options: Arguments) -> str:
    reply = client(prompt, **({"model": model} if model else {}), **options)
    if isinstance(reply, str):
        return reply
    if not (isinstance(reply, tuple) and len(reply) == 2 and isinstance(reply[0], str)):
        kind = type(reply).__name__
        raise InputError(f"the model's function returned {kind}; expected text, or a tuple of text and usage")
    text: str = reply[0]
    used = reply[1]
    if not isinstance(used, Mapping):
        raise InputError(f"the model's function gave a usage of type {type(used).__name__}; expected a dict")
    known_usage = {key: used[key] for key in ("tokens_in", "tokens_out", "usd") if used.get(key) is not None}
    context = current_context()
    if context is not None:
        context.call(model=used.get("model", model), prompt=prompt, response=text, **known_usage)
    return text


Mode = Literal["autonomous", "interactive"]
MODES: Final = ("autonomous", "interactive")
_OF_LANGGRAPH: Final = ("config", "runtime", "store", "writer", "previous")  # what it passes by these names

_BY_POSITION: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _keep_response(state: Any, response: str, ctx: Context | None) -> State:
    return {"response": response}


class ActionNode:
    """A node of two passes: the first makes a prompt, the second takes what a model or a person responded.

    It is a node of a workflow and of a LangGraph graph alike: `wf.node(action)`, `builder.add_node("review", action)`.
    In autonomous mode it asks `client`, or else `ctx.resources`, or what that has under `model`, as a key or an
    attribute; see `complete`. In interactive mode the execution waits as with `ctx.ask`, so `instructions` runs again
    once there is a response, and must give the same prompt then; the response is the answer's feedback.

    A graph that runs without WTB works, too: the node then asks `client`, or calls `interrupt` if it is interactive or
    has no client, and `ctx` is None.

    Args:
        instructions: `(state)` or `(state, ctx)`, and parameters of the variant by keyword; returns the prompt: text, a
            list of messages with `role` and `content`, or anything that can be stored. In a graph it can take
            LangGraph's `config` or `runtime` instead of `ctx`. May be async.
        confirm: `(state, response)` or `(state, response, ctx)`; returns what the node writes, in a graph also a
            `Command`. Without it, the response (text) is written to the key `response`. May be async.
        name: The node's name, if it is not that of `instructions`.
        mode: `autonomous` or `interactive`, in place of what sweeps and single executions do.
        model: The model to ask for, if the client needs one.
        client: The client to ask, in place of `ctx.resources`, which graphs do not have.

    Raises:
        InputError: For another mode, and for functions that do not take these arguments.

    Example:
        >>> from wtb import Workflow
        >>> from wtb.integrations.models import ActionNode
        >>> from wtb.testing import run_node
        >>> wf = Workflow("summary", resources=lambda: lambda prompt: prompt.upper())
        >>> node = wf.node(ActionNode(lambda state, ctx: f"Sum up: {state['text']}", name="summarize"))
        >>> run_node(wf, "summarize", {"text": "rain"})
        {'response': 'SUM UP: RAIN'}
    """

    def __init__(
        self,
        instructions: Callable[..., Any],
        confirm: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        mode: Mode | None = None,
        model: str | None = None,
        client: Any = None,
    ) -> None:
        if mode not in (None, *MODES):
            raise InputError(f"ActionNode(mode={mode!r}): expected one of {', '.join(MODES)}, or None")
        self.__name__ = name or getattr(instructions, "__name__", type(instructions).__name__)
        self.__doc__ = inspect.getdoc(instructions) or ""
        signature = _signature("instructions", instructions, "(state) or (state, ctx)", 1)
        self._second = _extra(signature, 1)
        # Parameters of variants are those of the instructions, so that wrong ones are refused before anything runs.
        self.__signature__ = _public(signature)
        self.instructions = instructions
        self.confirm: Callable[..., Any] = confirm or _keep_response
        confirm_signature = _signature("confirm", self.confirm, "(state, response) or (state, response, ctx)", 2)
        self._confirms_with_context = _extra(confirm_signature, 2) is not None
        self.mode = mode
        self.model = model
        self.client = client
        if any(map(inspect.iscoroutinefunction, (instructions, confirm))):
            self.__class__ = _AsyncActionNode

    def __call__(self, state: Any, around: Any = None, **params: Any) -> Any:
        """Run both passes. around: the context of WTB, or LangGraph's config or runtime."""
        ctx = _context(around)
        prompt = self._prompt(state, around, ctx, params)
        if inspect.isawaitable(prompt):
            return self._later(state, ctx, prompt)
        return self._confirm(state, ctx, prompt)

    def _prompt(self, state: Any, around: Any, ctx: Context | None, params: Params) -> Any:
        """Run the first pass."""
        if self._second is None or self._second in params:  # LangGraph passes what is its own by name
            return self.instructions(state, **params)
        return self.instructions(state, around if self._second in _OF_LANGGRAPH else ctx, **params)

    def _confirm(self, state: Any, ctx: Context | None, prompt: Any) -> Any:
        """Get the response, and run the second pass."""
        response = self._response(ctx, prompt)
        return self.confirm(state, response, ctx) if self._confirms_with_context else self.confirm(state, response)

    async def _later(self, state: Any, ctx: Context | None, prompt: Any) -> Any:
        prompt = await prompt if inspect.isawaitable(prompt) else prompt
        update = self._confirm(state, ctx, prompt)
        return await update if inspect.isawaitable(update) else update

    def _response(self, ctx: Context | None, prompt: Any) -> str:
        if ctx is None:
            return self._response_outside(prompt)
        mode = ctx.mode or self.mode
        interactive = ctx.interactive if mode is None else mode == "interactive"
        return _of_person(ctx, prompt) if interactive else self._of_model(self._client(ctx), prompt)

    def _response_outside(self, prompt: Any) -> str:
        """Return a response without WTB: in a graph that LangGraph itself runs."""
        if self.client is not None and self.mode != "interactive":
            return self._of_model(self.client, prompt)
        # Not imported: a graph that runs this node has loaded it, and without one nothing could handle an interrupt.
        types = sys.modules.get("langgraph.types")
        if types is None:
            raise InputError(f"action node {self.__name__!r} was called outside of a run, and has no client to ask")
        response = types.interrupt(prompt)
        return response if isinstance(response, str) else _prompt_text(response)

    def _client(self, ctx: Context) -> Any:
        if self.client is not None:
            return self.client
        client = ctx.resources
        if isinstance(client, Mapping):
            client = client.get("model")
        client = getattr(client, "model", client)
        if client is None:
            raise InputError(
                f"node {ctx.node!r} is autonomous, and there is no model to answer: pass ActionNode(client=...), or "
                f"have Workflow(resources=...) return a client, or a mapping that has one under 'model'"
            )
        return client

    def _of_model(self, client: Any, prompt: Any) -> str:
        return complete(client, prompt if _is_talk(prompt) else _prompt_text(prompt), model=self.model)


class _AsyncActionNode(ActionNode):
    """An action node with an async function, which LangGraph recognizes by its async `__call__`."""

    async def __call__(self, state: Any, around: Any = None, **params: Any) -> Any:
        ctx = _context(around)
        return await self._later(state, ctx, self._prompt(state, around, ctx, params))


def _context(around: Any) -> Context | None:
    return around if isinstance(around, Context) else current_context()


def _signature(function: str, fn: Callable[..., Any], expected: str, count: int) -> inspect.Signature:
    """Return the signature of a function. Raises InputError if it does not take so many arguments by position."""
    try:
        signature = inspect.signature(fn)
        signature.bind_partial(*(None,) * count)
    except (TypeError, ValueError) as error:
        raise InputError(f"ActionNode: {function} cannot be called with {expected}: {error}") from None
    return signature


def _extra(signature: inspect.Signature, count: int) -> str | None:
    """Return the name of the parameter by position that follows the first ones; None if there is none."""
    parameters = list(signature.parameters.values())
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return "*"
    names = [parameter.name for parameter in parameters if parameter.kind in _BY_POSITION]
    return names[count] if len(names) > count else None


def _public(signature: inspect.Signature) -> inspect.Signature:
    """Return the signature of an action node, whose context is optional because LangGraph passes none."""
    state, *further = signature.parameters.values()
    if further and further[0].kind in _BY_POSITION and further[0].name not in _OF_LANGGRAPH:
        only = inspect.Parameter.POSITIONAL_ONLY
        further[0] = further[0].replace(kind=only, default=None)
        state = state.replace(kind=only)
    return signature.replace(parameters=[state, *further])


def _of_person(ctx: Context, prompt: Any) -> str:
    if isinstance(prompt, str) and prompt.strip():
        answer = ctx.respond(prompt)
    else:
        answer = ctx.respond(f"{ctx.node}: respond to what follows", context=prompt)
    return answer.feedback or answer.choice or ""


def _is_talk(prompt: Any) -> bool:
    """Return whether a prompt is text, or messages, as clients of models take them."""
    if isinstance(prompt, str):
        return True
    return isinstance(prompt, list) and all(isinstance(message, Mapping) and "role" in message for message in prompt)


def _prompt_text(prompt: Any) -> str:
    return json.dumps(readable(encode(prompt)), ensure_ascii=False, indent=2)
