"""Events of models, tools and streams while a node runs, for the records of its attempt."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from wtb.authoring.context.node_context import Context
from wtb.authoring.context.prices import price
from wtb.core.errors import InputError, StateError
from wtb.core.serialization.codec import encode
from wtb.core.serialization.plain_json import readable, storable


@dataclass
class _Started:
    at: float
    name: str | None
    prompt: Any


@dataclass
class _Used:
    """Tokens of a call. cached, written: those of `tokens_in` with prices of their own. model: that answered."""

    tokens_in: int = 0
    tokens_out: int = 0
    cached: int = 0
    written: int = 0
    model: str | None = None


class ShownMessage(TypedDict):
    """A message as plain JSON. tool_calls: where there are some."""

    role: str
    content: Any
    tool_calls: NotRequired[Any]


class Listener(BaseCallbackHandler):
    """Counts the tokens of models and keeps their calls and those of tools, under the attempt that makes them."""

    raise_error = True  # so that a call beyond what the attempt may spend ends it
    run_inline = True
    ignore_chain = True
    ignore_retriever = True

    def __init__(self, context: Context, warnings: set[str]) -> None:
        """warnings: those that were written in this process."""
        self._context = context
        self._started: dict[UUID | str, _Started] = {}
        self._warnings = warnings

    def on_chat_model_start(
        self, serialized: Mapping[str, Any] | None, messages: list[list[BaseMessage]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        self._context.check_allowance()
        prompt = [_message(one) for batch in messages for one in batch]
        self._started[run_id] = _Started(time.perf_counter(), _model_of(serialized, kwargs), prompt)

    def on_llm_start(
        self, serialized: Mapping[str, Any] | None, prompts: list[str], *, run_id: UUID, **kwargs: Any
    ) -> None:
        self._context.check_allowance()
        self._started[run_id] = _Started(time.perf_counter(), _model_of(serialized, kwargs), list(prompts))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        started = self._started.pop(run_id, _Started(time.perf_counter(), None, None))
        used = _usage(response)
        model = used.model or started.name or "unknown"
        if not used.tokens_in and not used.tokens_out:
            self._warn_once(f"model {model!r} did not say how many tokens a call took; they count as 0")
        self._context.call(
            model=model,
            prompt=started.prompt,
            response=[_generation(one) for batch in response.generations for one in batch],
            tokens_in=used.tokens_in,
            tokens_out=used.tokens_out,
            usd=self._usd(model, started.name, used),
            duration_s=time.perf_counter() - started.at,
        )

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        started = self._started.pop(run_id, _Started(time.perf_counter(), None, None))
        text = storable(f"{type(error).__name__}: {error}", 2000)
        duration = time.perf_counter() - started.at
        self._context.call(
            model=started.name or "unknown", prompt=started.prompt, response={"error": text}, duration_s=duration
        )

    def on_tool_start(
        self,
        serialized: Mapping[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        inputs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        name = kwargs.get("name") or (serialized or {}).get("name")
        self._started[run_id] = _Started(time.perf_counter(), name, shown(inputs if inputs is not None else input_str))

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self._tool_ended(run_id, _message(output) if isinstance(output, BaseMessage) else shown(output))

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._tool_ended(run_id, f"{type(error).__name__}: {error}")

    def task_began(self, id: str, name: str, given: tuple[tuple[Any, ...], Mapping[str, Any]]) -> None:
        """A function with `@task` was called, with these arguments."""
        positional, named = given
        self._started[id] = _Started(
            time.perf_counter(), name, shown([*positional, named] if named else list(positional))
        )

    def task_ended(self, id: str, result: Any) -> None:
        """What a task returned or raised; of other ids nothing is kept."""
        if id in self._started:
            failed = isinstance(result, BaseException)
            self._tool_ended(id, f"{type(result).__name__}: {result}" if failed else shown(result))

    def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
        self._context.tell(name, shown(data))

    def streamed(self, chunk: Any) -> None:
        """What a node wrote to LangGraph's stream."""
        self._context.tell("stream", shown(chunk))

    def _usd(self, model: str, requested: str | None, used: _Used) -> float:
        """The price of a call by the model that answered, else by the name in the request."""
        self._context.load_prices()
        for name in (model, requested):
            try:
                return price(name, used.tokens_in, used.tokens_out, cached=used.cached, written=used.written)
            except InputError:
                continue
        self._warn_once(f"no price is known for model {model!r}: its calls count as 0 US dollars")
        return 0.0

    def _warn_once(self, text: str) -> None:
        """Write a warning to the event log, once in each process of a sweep."""
        if text not in self._warnings:
            self._warnings.add(text)
            self._context.log(text, level="warning")

    def _tool_ended(self, run_id: UUID | str, response: Any) -> None:
        started = self._started.pop(run_id, _Started(time.perf_counter(), None, None))
        duration = time.perf_counter() - started.at
        self._context.call(tool=started.name or "tool", prompt=started.prompt, response=response, duration_s=duration)


def _model_of(serialized: Mapping[str, Any] | None, options: Mapping[str, Any]) -> str | None:
    """The name of a model, as far as it is known before it answers."""
    metadata, params = options.get("metadata") or {}, options.get("invocation_params") or {}
    for name in (metadata.get("ls_model_name"), params.get("model"), params.get("model_name")):
        if isinstance(name, str) and name:
            return name
    name = (serialized or {}).get("name")
    return name if isinstance(name, str) else None


def _usage(response: LLMResult) -> _Used:
    used = _Used()
    for generation in (one for batch in response.generations for one in batch):
        message = generation.message if isinstance(generation, ChatGeneration) else None
        metadata = getattr(message, "response_metadata", None) or {}
        used.model = used.model or metadata.get("model_name") or metadata.get("model")
        if usage := getattr(message, "usage_metadata", None):
            details = usage.get("input_token_details") or {}
            used.tokens_in += usage["input_tokens"]
            used.tokens_out += usage["output_tokens"]
            used.cached += details.get("cache_read") or 0
            used.written += details.get("cache_creation") or 0
    output = response.llm_output or {}
    usage = output.get("token_usage") or output.get("usage")
    if not used.tokens_in and not used.tokens_out and isinstance(usage, Mapping):
        used.tokens_in = int(usage.get("prompt_tokens") or usage.get("input_tokens") or 0)
        used.tokens_out = int(usage.get("completion_tokens") or usage.get("output_tokens") or 0)
    used.model = used.model or output.get("model_name")
    return used


def _message(message: BaseMessage) -> ShownMessage:
    fields: ShownMessage = {"role": message.type, "content": shown(message.content)}
    calls = getattr(message, "tool_calls", None)
    return {**fields, "tool_calls": shown(calls)} if calls else fields


def _generation(one: Any) -> Any:
    return _message(one.message) if isinstance(one, ChatGeneration) else one.text


def shown(value: Any) -> Any:
    """A value as plain JSON, for people; its `repr` where it cannot be stored."""
    try:
        return readable(encode(value))
    except StateError:
        return storable(repr(value), 10_000)
