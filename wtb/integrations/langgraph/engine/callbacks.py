"""What LangChain's models and tools and LangGraph's streams tell while a node runs, for the records of its attempt."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
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
class _Begun:
    at: float
    name: str | None
    prompt: Any


@dataclass
class _Used:
    """What a call of a model took. cached, written: of `tokens_in`, as prices tell them apart. model: that answered."""

    tokens_in: int = 0
    tokens_out: int = 0
    cached: int = 0
    written: int = 0
    model: str | None = None


class Listener(BaseCallbackHandler):
    """Counts the tokens of models and keeps their calls and those of tools, under the attempt that makes them."""

    raise_error = True  # so that a call beyond what the attempt may spend ends it
    run_inline = True
    ignore_chain = True
    ignore_retriever = True

    def __init__(self, context: Context, said: set[str]) -> None:
        """said: the warnings that were written in this process."""
        self._context = context
        self._begun: dict[UUID | str, _Begun] = {}
        self._said = said

    def on_chat_model_start(
        self, serialized: Mapping[str, Any] | None, messages: list[list[BaseMessage]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        self._context.check_allowance()
        prompt = [_message(one) for batch in messages for one in batch]
        self._begun[run_id] = _Begun(time.perf_counter(), _model_of(serialized, kwargs), prompt)

    def on_llm_start(
        self, serialized: Mapping[str, Any] | None, prompts: list[str], *, run_id: UUID, **kwargs: Any
    ) -> None:
        self._context.check_allowance()
        self._begun[run_id] = _Begun(time.perf_counter(), _model_of(serialized, kwargs), list(prompts))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        begun = self._begun.pop(run_id, _Begun(time.perf_counter(), None, None))
        used = _usage(response)
        model = used.model or begun.name or "unknown"
        if not used.tokens_in and not used.tokens_out:
            self._say_once(f"model {model!r} did not say how many tokens a call took; they count as 0")
        self._context.call(
            model=model,
            prompt=begun.prompt,
            response=[_generation(one) for batch in response.generations for one in batch],
            tokens_in=used.tokens_in,
            tokens_out=used.tokens_out,
            usd=self._usd(model, begun.name, used),
            duration_s=time.perf_counter() - begun.at,
        )

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        begun = self._begun.pop(run_id, _Begun(time.perf_counter(), None, None))
        said = storable(f"{type(error).__name__}: {error}", 2000)
        duration = time.perf_counter() - begun.at
        self._context.call(
            model=begun.name or "unknown", prompt=begun.prompt, response={"error": said}, duration_s=duration
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
        self._begun[run_id] = _Begun(time.perf_counter(), name, shown(inputs if inputs is not None else input_str))

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self._tool_ended(run_id, _message(output) if isinstance(output, BaseMessage) else shown(output))

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._tool_ended(run_id, f"{type(error).__name__}: {error}")

    def task_began(self, id: str, name: str, given: tuple[tuple[Any, ...], Mapping[str, Any]]) -> None:
        """A function with `@task` was called, with these arguments."""
        positional, named = given
        self._begun[id] = _Begun(time.perf_counter(), name, shown([*positional, named] if named else list(positional)))

    def task_ended(self, id: str, result: Any) -> None:
        """What a task returned or raised; of other ids nothing is kept."""
        if id in self._begun:
            failed = isinstance(result, BaseException)
            self._tool_ended(id, f"{type(result).__name__}: {result}" if failed else shown(result))

    def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
        self._context.tell(name, shown(data))

    def streamed(self, chunk: Any) -> None:
        """What a node wrote to LangGraph's stream."""
        self._context.tell("stream", shown(chunk))

    def _usd(self, model: str, asked: str | None, used: _Used) -> float:
        """The price of a call by the model that answered, or else by the name that it was asked under."""
        self._context.load_prices()
        for name in (model, asked):
            try:
                return price(name, used.tokens_in, used.tokens_out, cached=used.cached, written=used.written)
            except InputError:
                continue
        self._say_once(f"no price is known for model {model!r}: its calls count as 0 US dollars")
        return 0.0

    def _say_once(self, text: str) -> None:
        """Write a warning to the event log, once in each process of a sweep."""
        if text not in self._said:
            self._said.add(text)
            self._context.log(text, level="warning")

    def _tool_ended(self, run_id: UUID | str, response: Any) -> None:
        begun = self._begun.pop(run_id, _Begun(time.perf_counter(), None, None))
        duration = time.perf_counter() - begun.at
        self._context.call(tool=begun.name or "tool", prompt=begun.prompt, response=response, duration_s=duration)


def _model_of(serialized: Mapping[str, Any] | None, told: Mapping[str, Any]) -> str | None:
    """The name of a model, as far as it is known before it answers."""
    metadata, params = told.get("metadata") or {}, told.get("invocation_params") or {}
    for name in (metadata.get("ls_model_name"), params.get("model"), params.get("model_name")):
        if isinstance(name, str) and name:
            return name
    name = (serialized or {}).get("name")
    return name if isinstance(name, str) else None


def _usage(response: LLMResult) -> _Used:
    used = _Used()
    for generation in (one for batch in response.generations for one in batch):
        message = generation.message if isinstance(generation, ChatGeneration) else None
        said = getattr(message, "response_metadata", None) or {}
        used.model = used.model or said.get("model_name") or said.get("model")
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


def _message(message: BaseMessage) -> dict[str, Any]:
    said: dict[str, Any] = {"role": message.type, "content": shown(message.content)}
    calls = getattr(message, "tool_calls", None)
    return {**said, "tool_calls": shown(calls)} if calls else said


def _generation(one: Any) -> Any:
    return _message(one.message) if isinstance(one, ChatGeneration) else one.text


def shown(value: Any) -> Any:
    """A value as plain JSON, for people; its `repr` where it cannot be stored."""
    try:
        return readable(encode(value))
    except StateError:
        return storable(repr(value), 10_000)
