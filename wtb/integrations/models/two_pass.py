"""Nodes of two passes: the first makes a prompt, the second takes what a model or a person answered.

    draft = ActionNode(instructions, confirm)      # instructions(state, ctx) -> prompt; confirm(state, response, ctx)
    wf.node(draft, name="draft")

In sweeps the model client in `resources` answers (autonomous); in single executions the prompt waits for
`wtb answer` (interactive). The node's own `mode` says otherwise, and `run.mode` has the last word.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

from wtb.authoring.context.node_context import Context
from wtb.core.errors import InputError
from wtb.core.serialization.codec import encode
from wtb.core.serialization.plain_json import readable
from wtb.integrations.models.ask import complete

Mode = Literal["autonomous", "interactive"]
MODES: Final = ("autonomous", "interactive")


def _kept(state: Any, response: str, ctx: Context) -> dict[str, Any]:
    return {"response": response}


class ActionNode:
    """A node of two passes: the first makes a prompt, the second takes what a model or a person responded.

    In autonomous mode the client is `ctx.resources`, or what that has under `model`, as a key or an attribute; see
    `complete`. In interactive mode the execution waits as with `ctx.ask`, so `instructions` runs again once there is a
    response, and must give the same prompt then; the response is the answer's feedback.

    Args:
        instructions: `(state, ctx)`, and parameters of the variant by keyword; returns the prompt: text, a list of
            messages with `role` and `content`, or anything that can be stored. May be async.
        confirm: `(state, response, ctx)`; returns what the node writes. Without it, the response (text) is written
            to the key `response`. May be async.
        name: The node's name, if it is not that of `instructions`.
        mode: `autonomous` or `interactive`, in place of what sweeps and single executions do.
        model: The model to ask for, if the client needs one.

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
    ) -> None:
        if mode not in (None, *MODES):
            raise InputError(f"ActionNode(mode={mode!r}): expected one of {', '.join(MODES)}, or None")
        _check_arity("instructions", instructions, "(state, ctx)", 2)
        if confirm is not None:
            _check_arity("confirm", confirm, "(state, response, ctx)", 3)
        self.__name__ = name or getattr(instructions, "__name__", type(instructions).__name__)
        self.__doc__ = inspect.getdoc(instructions) or ""
        # Parameters of variants are those of the instructions, so that wrong ones are refused before anything runs.
        self.__signature__ = inspect.signature(instructions)
        self.instructions = instructions
        self.confirm = confirm or _kept
        self.mode = mode
        self.model = model

    def __call__(self, state: Any, ctx: Context, **params: Any) -> Any:
        prompt = self.instructions(state, ctx, **params)
        if inspect.isawaitable(prompt):
            return self._later(state, ctx, prompt)
        return self.confirm(state, self._response(ctx, prompt), ctx)

    async def _later(self, state: Any, ctx: Context, prompt: Awaitable[Any]) -> Any:
        update = self.confirm(state, self._response(ctx, await prompt), ctx)
        return await update if inspect.isawaitable(update) else update

    def _response(self, ctx: Context, prompt: Any) -> str:
        wanted = ctx.mode or self.mode
        interactive = ctx.interactive if wanted is None else wanted == "interactive"
        return _of_person(ctx, prompt) if interactive else self._of_model(ctx, prompt)

    def _of_model(self, ctx: Context, prompt: Any) -> str:
        client = ctx.resources
        if isinstance(client, Mapping):
            client = client.get("model")
        client = getattr(client, "model", client)
        if client is None:
            raise InputError(
                f"node {ctx.node!r} is autonomous, and there is no model to answer: have Workflow(resources=...) "
                f"return a client, or a mapping that has one under 'model'"
            )
        return complete(client, prompt if _is_talk(prompt) else _text(prompt), model=self.model)


def _check_arity(what: str, fn: Callable[..., Any], expected: str, count: int) -> None:
    try:
        inspect.signature(fn).bind_partial(*(None,) * count)
    except (TypeError, ValueError) as error:
        raise InputError(f"ActionNode: {what} cannot be called with {expected}: {error}") from None


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
