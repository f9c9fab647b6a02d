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

Mode = Literal["autonomous", "interactive"]
MODES: Final = ("autonomous", "interactive")


def _kept(state: Any, response: str, ctx: Context) -> dict[str, Any]:
    return {"response": response}


class ActionNode:
    """A callable for `wf.node(...)` and for variants, whatever it is that is asked for.

    instructions: (state, ctx), and parameters of the variant as keywords -> the prompt: text, a list of messages with
    `role` and `content`, or anything that can be stored. confirm: (state, response, ctx) -> what the node writes, as
    any node returns it; without it the response is written to the key `response`. Both may be async. response: text.
    name: of the node, where it is not that of `instructions`. mode: `autonomous` or `interactive`, in place of what
    sweeps and single executions do. model: asked for, where the client has to be told.

    autonomous: the client is `ctx.resources`, or what it has under `model`, as a key or attribute: one of the shape of
    openai.OpenAI or anthropic.Anthropic, or a function of the prompt; see wtb.integrations.models. interactive: the
    execution waits as with `ctx.ask`, so `instructions` runs again once there is a response and must give the same
    prompt then; the response is the answer's feedback. Raises InputError for another mode, and for functions that do
    not take these.
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
        from wtb.integrations.models import complete

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
