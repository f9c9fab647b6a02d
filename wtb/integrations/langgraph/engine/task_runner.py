"""One task of a graph under way: what LangGraph's runner asks of the loop around it."""

from __future__ import annotations

import asyncio
import binascii
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast
from weakref import WeakMethod

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

from wtb.integrations.langgraph.engine.callbacks import Listener
from wtb.integrations.langgraph.engine.frames import Frame, Write


def is_async(runnable: Any) -> bool:
    """Whether something can only be awaited: an async function or tool, or a graph or sequence with one in it."""
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
        return any(is_async(one) for node in runnable.nodes.values() for one in (node.bound, *node.writers))
    return False


def _is_async_tool(tool: BaseTool) -> bool:
    if isinstance(tool, Tool | StructuredTool):
        return tool.func is None
    return type(tool)._arun is not BaseTool._arun  # often there is no other


def may_be_awaited(runnable: Any) -> bool:
    """Whether a node has an async form of its own beside its sync one."""
    if isinstance(runnable, RunnableSeq | RunnableSequence):
        return any(may_be_awaited(step) for step in runnable.steps)
    if type(runnable) is RunnableCallable and isinstance(runnable.afunc, partial):
        return runnable.afunc.func is not run_in_executor  # LangGraph's own, for a function that is only sync
    return isinstance(runnable, Runnable)


def invoke(runnable: Runnable[Any, Any], given: Any, config: RunnableConfig) -> Any:
    """Call what follows a node: its writers and the functions of its conditional edges."""
    if is_async(runnable):
        return asyncio.run(runnable.ainvoke(given, config))
    return runnable.invoke(given, config)


@dataclass(kw_only=True, slots=True, frozen=True)
class Attempted(Runtime[Any]):  # type: ignore[misc]  # Runtime is frozen, too
    """What nodes are given as `runtime`, where other attempts of theirs failed before this one."""

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
    """A task of a frame that LangGraph can run; None where nothing triggers it. path: of LangGraph."""
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
    """One task under way, with what it calls and its error handler. nodes: of the graph, under the variant that runs.

    listener: records the tasks that the node calls. `run` or `arun` returns what it wrote, and raises what it raises.
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
        """LangGraph's threads: for what the node calls and for its error handler, so that most nodes start none."""
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
        """A call of a `@task` from within the node: it runs in this attempt."""
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
