"""A running task of a graph, with the callbacks that LangGraph needs and those that record it."""

from __future__ import annotations

import asyncio
import binascii
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NotRequired, TypedDict, cast
from uuid import UUID
from weakref import WeakMethod

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.base import RunnableBindingBase, RunnableLambda, RunnableParallel, RunnableSequence
from langchain_core.runnables.config import run_in_executor
from langchain_core.tools import BaseTool, StructuredTool, Tool
from langgraph._internal._constants import ERROR, PUSH, RETURN
from langgraph._internal._runnable import RunnableCallable, RunnableSeq
from langgraph.graph._branch import BranchSpec
from langgraph.pregel import Pregel
from langgraph.pregel._algo import checkpoint_null_version, prepare_node_error_handler_task, prepare_single_task
from langgraph.pregel._executor import AsyncBackgroundExecutor, BackgroundExecutor
from langgraph.pregel._read import PregelNode
from langgraph.pregel._runner import PregelRunner
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from langgraph.types import PregelExecutableTask

from wtb.authoring.boundary import MALFORMED
from wtb.authoring.context.node_context import Context
from wtb.authoring.context.usage import Usage, normalized_usage, price, reported_usage
from wtb.core.errors import InputError, StateError
from wtb.core.serialization.codec import encode
from wtb.core.serialization.plain_json import readable, storable
from wtb.integrations.langgraph.frames import Frame, Write
from wtb.integrations.models.recording import cost_of


@dataclass
class _Started:
    name: str | None = None
    prompt: Any = None
    at: float = field(default_factory=time.perf_counter)

    @property
    def lasted_s(self) -> float:
        return time.perf_counter() - self.at


class ShownMessage(TypedDict):
    """A message as plain JSON. `tool_calls` is absent if there are none."""

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
        prompt = [_message(message) for batch in messages for message in batch]
        self._started[run_id] = _Started(_model_of(serialized, kwargs), prompt)

    def on_llm_start(
        self, serialized: Mapping[str, Any] | None, prompts: list[str], *, run_id: UUID, **kwargs: Any
    ) -> None:
        self._context.check_allowance()
        self._started[run_id] = _Started(_model_of(serialized, kwargs), list(prompts))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        started = self._started.pop(run_id, _Started())
        lasted_s = started.lasted_s
        used, answered = _usage(response)
        model, content = answered or started.name or "unknown", _generations(response)
        cost = cost_of(self._context, model, used, partial(_usd, model, started.name, used))
        self._context.call(model=model, prompt=started.prompt, response=content, duration_s=lasted_s, **cost)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        started = self._started.pop(run_id, _Started())
        response, model = {"error": storable(f"{type(error).__name__}: {error}", 2000)}, started.name or "unknown"
        lasted_s = started.lasted_s
        self._context.call(model=model, prompt=started.prompt, response=response, usd=0.0, duration_s=lasted_s)

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
        self._started[run_id] = _Started(name, to_readable(inputs if inputs is not None else input_str))

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self._tool_ended(run_id, _message(output) if isinstance(output, BaseMessage) else to_readable(output))

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._tool_ended(run_id, f"{type(error).__name__}: {error}")

    def task_began(self, id: str, name: str, arguments: tuple[tuple[Any, ...], Mapping[str, Any]]) -> None:
        """Record the start of a function with `@task`, with its arguments."""
        positional, named = arguments
        self._started[id] = _Started(name, to_readable([*positional, named] if named else list(positional)))

    def task_ended(self, id: str, outcome: Any) -> None:
        """Report what a task returned or raised. Other ids, of which nothing was reported, are ignored."""
        if id in self._started:
            failed = isinstance(outcome, BaseException)
            self._tool_ended(id, f"{type(outcome).__name__}: {outcome}" if failed else to_readable(outcome))

    def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
        self._context.tell(name, to_readable(data))

    def streamed(self, chunk: Any) -> None:
        """Report what a node wrote to LangGraph's stream."""
        self._context.tell("stream", to_readable(chunk))

    def _tool_ended(self, run_id: UUID | str, response: Any) -> None:
        started = self._started.pop(run_id, _Started())
        name, lasted_s = started.name or "tool", started.lasted_s
        self._context.call(tool=name, prompt=started.prompt, response=response, duration_s=lasted_s)


def _usd(model: str, requested: str | None, used: Usage) -> float:
    """Return the price of a call by the model that responded, else by the name in the request. Raises InputError."""
    try:
        return price(model, used.tokens_in, used.tokens_out, cached=used.cached, written=used.written)
    except InputError:
        return price(requested, used.tokens_in, used.tokens_out, cached=used.cached, written=used.written)


def _model_of(serialized: Mapping[str, Any] | None, options: Mapping[str, Any]) -> str | None:
    """Return the name of a model, if it is known before the model responds."""
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


def _mapping(content: Any) -> Mapping[str, Any]:
    return content if isinstance(content, Mapping) else {}


def _generations(response: LLMResult) -> Any:
    try:
        return [_generation(generation) for batch in response.generations for generation in batch]
    except MALFORMED as error:
        return f"(cannot be shown: {type(error).__name__})"


def _message(message: BaseMessage) -> ShownMessage:
    fields: ShownMessage = {"role": message.type, "content": to_readable(message.content)}
    calls = getattr(message, "tool_calls", None)
    return {**fields, "tool_calls": to_readable(calls)} if calls else fields


def _generation(generation: Any) -> Any:
    return _message(generation.message) if isinstance(generation, ChatGeneration) else generation.text


def to_readable(content: Any) -> Any:
    """Return a value as plain JSON, for people, or its `repr` if it cannot be stored."""
    try:
        return readable(encode(content))
    except StateError:
        return storable(repr(content), 10_000)


def is_async(runnable: Any) -> bool:
    """Return whether something can only be awaited, as an async function or tool, or a graph with one in it."""
    if isinstance(runnable, RunnableCallable):
        if tools := getattr(runnable, "tools_by_name", None):  # a ToolNode, whose module is not imported for nothing
            return any(map(_is_async_tool, tools.values()))
        branch = getattr(runnable.func, "__self__", None)
        return is_async(branch.path) if isinstance(branch, BranchSpec) else runnable.func is None
    if isinstance(runnable, RunnableLambda):
        return not hasattr(runnable, "func")
    if isinstance(runnable, RunnableSeq | RunnableSequence):
        return any(is_async(step) for step in runnable.steps)
    if isinstance(runnable, RunnableParallel):
        return any(is_async(step) for step in runnable.steps__.values())
    if isinstance(runnable, RunnableBindingBase):
        return is_async(runnable.bound)
    if isinstance(runnable, Pregel):
        return any(is_async(part) for node in runnable.nodes.values() for part in (node.bound, *node.writers))
    return False


def _is_async_tool(tool: BaseTool) -> bool:
    if isinstance(tool, Tool | StructuredTool):
        return tool.func is None
    return type(tool)._arun is not BaseTool._arun  # often there is no other


def may_be_awaited(runnable: Any) -> bool:
    """Return whether a node has an async form of its own beside its sync one."""
    if isinstance(runnable, RunnableSeq | RunnableSequence):
        return any(may_be_awaited(step) for step in runnable.steps)
    if type(runnable) is RunnableCallable and isinstance(runnable.afunc, partial):
        return runnable.afunc.func is not run_in_executor  # LangGraph's own, for a function that is only sync
    return isinstance(runnable, Runnable)


def invoke(runnable: Runnable[Any, Any], step_input: Any, config: RunnableConfig) -> Any:
    """Call what follows a node: its writers and the functions of its conditional edges."""
    if is_async(runnable):
        return asyncio.run(runnable.ainvoke(step_input, config))
    return runnable.invoke(step_input, config)


@dataclass(kw_only=True, slots=True, frozen=True)
class Attempted(Runtime[Any]):  # type: ignore[misc]  # Runtime is frozen, too
    """The `runtime` of nodes whose earlier attempts failed. It counts those attempts, too."""

    failed: int = 0

    def patch_execution_info(self, **overrides: Any) -> Runtime[Any]:
        if "node_attempt" in overrides:
            overrides["node_attempt"] += self.failed
        return Runtime.patch_execution_info(self, **overrides)


def executable(
    frame: Frame,
    path: tuple[Any, ...],
    nodes: Mapping[str, PregelNode],
    config: RunnableConfig,
    store: BaseStore | None,
) -> PregelExecutableTask | None:
    """Return a task of a frame that LangGraph can run, by LangGraph's path of it; None if nothing triggers it."""
    checkpoint = frame.checkpoint()
    task = prepare_single_task(
        path,
        None,
        checkpoint=checkpoint,
        checkpoint_id_bytes=binascii.unhexlify(checkpoint["id"]),
        checkpoint_null_version=checkpoint_null_version(checkpoint),
        pending_writes=[],
        processes=nodes,
        channels=frame.channels,
        managed=frame.managed,
        config=config,
        step=frame.step,
        stop=frame.stop,
        for_execution=True,
        store=store,
    )
    return cast("PregelExecutableTask | None", task)


@dataclass
class Running:
    """A running task, with its calls and its error handler. `run` or `arun` returns its writes, or raises its error.

    Attributes:
        nodes: The nodes of the graph, with the variant that runs.
        listener: Records the tasks that the node calls.
    """

    frame: Frame
    task: PregelExecutableTask
    nodes: Mapping[str, PregelNode]
    store: BaseStore | None
    listener: Listener
    writes: dict[str, list[Write]] = field(default_factory=dict)
    handler: str | None = None
    threads: Callable[..., Any] | None = None

    def run(self) -> list[Write]:
        with ExitStack() as self.opened:
            for _ in self._runner(WeakMethod(self.on_thread)).tick([self.task], schedule_task=self.push):
                pass
        return self._result()

    def on_thread(self, fn: Any, *args: Any, **more: Any) -> Any:
        """Run in LangGraph's threads, opened only for calls of the node and its error handler: most nodes need none."""
        if self.threads is None:
            self.threads = self.opened.enter_context(BackgroundExecutor(self.task.config))
        return self.threads(fn, *args, **more)

    async def arun(self) -> list[Write]:
        async with AsyncBackgroundExecutor(self.task.config) as submit:
            self.submit = submit
            async for _ in self._runner(WeakMethod(submit)).atick([self.task], schedule_task=self.apush):
                pass
        return self._result()

    def _result(self) -> list[Write]:
        # The writes of an error handler stand in for those of the node that failed.
        return list(self.writes.get(self.handler or self.task.id, ()))

    def _runner(self, submit: Any) -> PregelRunner:
        return PregelRunner(
            submit=submit,
            put_writes=WeakMethod(self.put_writes),
            node_error_handler_map=self.frame.graph.node_error_handler_map,
            schedule_error_handler=self.handle_error,
            aschedule_error_handler=self.ahandle_error,
        )

    def put_writes(self, task_id: str, writes: Sequence[Write]) -> None:
        self.writes[task_id] = list(writes)
        for channel, value in writes:
            if channel in (RETURN, ERROR):
                self.listener.task_ended(task_id, value)

    def push(self, task: PregelExecutableTask, index: int, call: Any = None) -> PregelExecutableTask | None:
        """Prepare a call of a `@task` from within the node. It runs in this attempt."""
        path = (PUSH, task.path, index, task.id, call)
        pushed_task = executable(self.frame, path, self.nodes, task.config, self.store)
        if pushed_task is not None and call is not None:
            self.listener.task_began(pushed_task.id, pushed_task.name, call.input)
        return pushed_task

    async def apush(self, task: PregelExecutableTask, index: int, call: Any = None) -> PregelExecutableTask | None:
        return self.push(task, index, call)

    def handle_error(self, failed: PregelExecutableTask, error: BaseException) -> PregelExecutableTask | None:
        name = self.nodes[failed.name].error_handler_node
        if not name:
            return None
        handler_task = prepare_node_error_handler_task(
            failed,
            handler_node_name=name,
            failed_error=error,
            checkpoint=self.frame.checkpoint(),
            pending_writes=[],
            processes=self.nodes,
            channels=self.frame.channels,
            managed=self.frame.managed,
            config=failed.config,
            step=self.frame.step,
            stop=self.frame.stop,
            store=self.store,
        )
        self.handler = None if handler_task is None else handler_task.id
        return handler_task

    async def ahandle_error(self, failed: PregelExecutableTask, error: BaseException) -> PregelExecutableTask | None:
        return self.handle_error(failed, error)
