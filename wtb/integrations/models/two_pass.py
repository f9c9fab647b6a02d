"""Nodes of two passes: the first makes a prompt, the second takes what a model or a person answered.

    draft = ActionNode(instructions, confirm)      # instructions(state, ctx) -> prompt; confirm(state, response, ctx)
    wf.node(draft, name="draft")                   # in a workflow of WTB
    builder.add_node("draft", draft)               # in a LangGraph graph

In sweeps the model client answers (autonomous); in single executions the prompt waits for `wtb answer` (interactive).
The node's own `mode` says otherwise, and `run.mode` has the last word.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from wtb.authoring.context.node_context import Context, current_context
from wtb.core.errors import InputError
from wtb.core.mappings import Params, State
from wtb.core.serialization.codec import encode
from wtb.core.serialization.plain_json import readable
from wtb.integrations.models.ask import complete

Mode = Literal["autonomous", "interactive"]
MODES: Final = ("autonomous", "interactive")
_OF_LANGGRAPH: Final = ("config", "runtime", "store", "writer", "previous")  # what it passes by these names

_BY_POSITION: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _kept(state: Any, response: str, ctx: Context | None) -> State:
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
        self.confirm: Callable[..., Any] = confirm or _kept
        kept = _signature("confirm", self.confirm, "(state, response) or (state, response, ctx)", 2)
        self._confirms_with_context = _extra(kept, 2) is not None
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
        types = sys.modules.get("langgraph.types")
        if types is None:
            raise InputError(f"action node {self.__name__!r} was called outside of a run, and has no client to ask")
        response = types.interrupt(prompt)
        return response if isinstance(response, str) else _text(response)

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
        return complete(client, prompt if _is_talk(prompt) else _text(prompt), model=self.model)


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
    state, *others = signature.parameters.values()
    if others and others[0].kind in _BY_POSITION and others[0].name not in _OF_LANGGRAPH:
        only = inspect.Parameter.POSITIONAL_ONLY
        others[0] = others[0].replace(kind=only, default=None)
        state = state.replace(kind=only)
    return signature.replace(parameters=[state, *others])


def _of_person(ctx: Context, prompt: Any) -> str:
    if isinstance(prompt, str) and prompt.strip():
        answer = ctx.respond(prompt)
    else:
        answer = ctx.respond(f"{ctx.node}: respond to what follows", context=prompt)
    return answer.feedback or answer.choice or ""


def _is_talk(prompt: Any) -> bool:
    """Whether a prompt is text, or messages, as clients of models take them."""
    if isinstance(prompt, str):
        return True
    return isinstance(prompt, list) and all(isinstance(one, Mapping) and "role" in one for one in prompt)


def _text(prompt: Any) -> str:
    return json.dumps(readable(encode(prompt)), ensure_ascii=False, indent=2)
