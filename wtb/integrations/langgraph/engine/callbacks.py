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

from wtb.authoring.boundary import MALFORMED
from wtb.authoring.context.node_context import Context
from wtb.authoring.context.prices import price
from wtb.authoring.context.usage import Usage, normalized_usage, reported_usage
from wtb.core.errors import InputError, StateError
from wtb.core.serialization.codec import encode
from wtb.core.serialization.plain_json import readable, storable


@dataclass
class _Started:
    at: float
    name: str | None
    prompt: Any


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

    def __init__(self, context: Context) -> None:
        self._context = context
        self._started: dict[UUID | str, _Started] = {}

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
        duration = time.perf_counter() - started.at
        used, answered = _usage(response)
        model = answered or started.name or "unknown"
        if not used.whole:
            self._context.unknown_cost("usage", model)
        if used.problems:
            self._context.warn_once(f"model {model!r}: {'; '.join(used.problems)}")
        self._context.call(
            model=model,
            prompt=started.prompt,
            response=_generations(response),
            tokens_in=used.tokens_in,
            tokens_out=used.tokens_out,
            usd=self._usd(model, started.name, used),
            duration_s=duration,
            cached=used.cached,
        )

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        started = self._started.pop(run_id, _Started(time.perf_counter(), None, None))
        text = storable(f"{type(error).__name__}: {error}", 2000)
        duration = time.perf_counter() - started.at
        self._context.call(
            model=started.name or "unknown",
            prompt=started.prompt,
            response={"error": text},
            usd=0.0,
            duration_s=duration,
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

    def _usd(self, model: str, requested: str | None, used: Usage) -> float:
        """The price of a call by the model that answered, else by the name in the request."""
        if not used.tokens_in and not used.tokens_out:
            return 0.0
        self._context.load_prices()
        for name in (model, requested):
            try:
                return price(name, used.tokens_in, used.tokens_out, cached=used.cached, written=used.written)
            except InputError:
                continue
        self._context.unknown_cost("price", model)
        return 0.0

    def _tool_ended(self, run_id: UUID | str, response: Any) -> None:
        started = self._started.pop(run_id, _Started(time.perf_counter(), None, None))
        duration = time.perf_counter() - started.at
        self._context.call(tool=started.name or "tool", prompt=started.prompt, response=response, duration_s=duration)


def _model_of(serialized: Mapping[str, Any] | None, options: Mapping[str, Any]) -> str | None:
    """The name of a model, as far as it is known before it answers."""
    metadata, params = _mapping(options.get("metadata")), _mapping(options.get("invocation_params"))
    for name in (metadata.get("ls_model_name"), params.get("model"), params.get("model_name")):
        if isinstance(name, str) and name:
            return name
    name = _mapping(serialized).get("name")
    return name if isinstance(name, str) else None


def _usage(response: LLMResult) -> tuple[Usage, str | None]:
    """Return the tokens of a response and the model that answered. Never raises: servers report what they like."""
    try:
        return _reported(response)
    except MALFORMED as error:
        return Usage(whole=False, problems=(f"its usage cannot be read: {type(error).__name__}",)), None


def _reported(response: LLMResult) -> tuple[Usage, str | None]:
    model: Any = None
    used: Usage | None = None
    for generation in (generation for batch in response.generations for generation in batch):
        message = generation.message if isinstance(generation, ChatGeneration) else None
        metadata = _mapping(getattr(message, "response_metadata", None))
        model = model or metadata.get("model_name") or metadata.get("model")
        if usage := _mapping(getattr(message, "usage_metadata", None)):
            details = _mapping(usage.get("input_token_details"))
            counts = usage.get("input_tokens"), usage.get("output_tokens")
            more = normalized_usage(*counts, details.get("cache_read"), details.get("cache_creation"))
            used = more if used is None else used.plus(more)
    output = _mapping(response.llm_output)
    if used is None and (usage := _mapping(output.get("token_usage") or output.get("usage"))):
        used = reported_usage(usage)
    if used is None or not (used.tokens_in or used.tokens_out):
        used = Usage(whole=False, problems=() if used is None else used.problems)
    return used, str(model or output.get("model_name") or "") or None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _generations(response: LLMResult) -> Any:
    try:
        return [_generation(generation) for batch in response.generations for generation in batch]
    except MALFORMED as error:
        return f"(cannot be shown: {type(error).__name__})"


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
