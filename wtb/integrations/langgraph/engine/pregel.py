"""LangGraph's own algorithm, one task at a time.

Its functions prepare tasks and apply what they wrote; what is ours is that they can stop after each task, and go on
elsewhere from what was stored.

It rests on modules of LangGraph that are not public, so `versions.py` names the versions it was tested with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph._internal._config import DEFAULT_RECURSION_LIMIT, merge_configs, patch_configurable, recast_checkpoint_ns
from langgraph._internal._constants import (
    CONF,
    CONFIG_KEY_CHECKPOINT_NS,
    CONFIG_KEY_SCRATCHPAD,
    PULL,
    PUSH,
)
from langgraph.constants import START
from langgraph.errors import GraphRecursionError
from langgraph.pregel._algo import (
    PregelTaskWrites,
    apply_writes,
    increment,
    prepare_next_tasks,
)
from langgraph.pregel._io import map_input, read_channels
from langgraph.pregel._read import PregelNode
from langgraph.runtime import Runtime
from langgraph.types import Command, PregelExecutableTask

from wtb.core.classes.frozen import frozen
from wtb.core.errors import StateError
from wtb.core.mappings import State
from wtb.integrations.langgraph.authoring.nodes import Graph
from wtb.integrations.langgraph.engine.frames import IN_PLACE, Branch, Frame, open_channels, path_to
from wtb.integrations.langgraph.engine.interrupts import Interrupts
from wtb.integrations.langgraph.engine.task_runner import executable, invoke

Nodes = Mapping[str, PregelNode]


@frozen
class Stepper:
    """Steps through graphs. inner: node name -> the graph that it is, of those that are stepped through.

    config, runtime: for every task. The config's `recursion_limit` holds for each graph, but for those that have one of
    their own where it is LangGraph's default.
    """

    inner: Mapping[str, Graph]
    config: RunnableConfig
    runtime: Runtime[Any]

    def begin(self, graph: Graph, name: str, label: str, given: Any, config: RunnableConfig) -> Frame:
        """A frame at its first step. Conditional entry edges run here, and raise what they raise.

        config: of the task that the frame is in, or the stepper's own.
        """
        frame, start = self._started(graph, name, label, given, self._limit_of(graph, config), config)
        if start is not None:
            invoke(start.proc, start.input, start.config)
            self._has_started(frame, start)
            self._next_step(frame, config)
        return frame

    def _started(
        self, graph: Graph, name: str, label: str, given: Any, stop: int, config: RunnableConfig
    ) -> tuple[Frame, PregelExecutableTask | None]:
        """A frame with its input, and the task that takes it in: None where there is nothing to take."""
        channels, managed = open_channels(graph, {})
        frame = Frame(graph, name, label, channels, managed, {}, {}, -1, stop)
        self._apply(frame, [PregelTaskWrites((), "__input__", list(map_input(graph.input_channels, given)), ())])
        frame.step = 0
        return frame, self._executable(frame, Branch((PULL, START), START), graph.nodes, config)

    def _has_started(self, frame: Frame, start: PregelExecutableTask) -> None:
        self._apply(frame, [PregelTaskWrites((PULL, START), START, list(start.writes), start.triggers)])

    def at_nodes(self, graph: Graph, name: str, values: State, nodes: Sequence[str]) -> Frame:
        """A frame with these values of channels whose next nodes are given, as if an edge had led to them."""
        to = {f"branch:to:{node}": None for node in nodes}
        channels, managed = open_channels(graph, values)
        frame = Frame(
            graph, name, "", channels, managed, dict.fromkeys(values, 1), {}, 0, self._limit_of(graph, self.config)
        )
        self._apply(frame, [PregelTaskWrites((), "__input__", list(to.items()), ())])
        for channel in to:
            frame.channels[channel].finish()  # a deferred node waits for nothing else here
        self._next_step(frame, self.config)
        return frame

    def refresh(self, frame: Frame, config: RunnableConfig, all_of_it: bool = False) -> None:
        """Give graphs that have not run yet what was changed around them since they were entered."""
        for branch in frame.branches:
            if branch.inner is not None and (all_of_it or branch.stale or branch.inner.is_stale()):
                task = self._task(frame, branch, config)
                if all_of_it or branch.stale:
                    self._take_in(branch.inner, task.input, task.config)
                self.refresh(branch.inner, task.config, all_of_it or branch.stale)

    def _take_in(self, inner: Frame, given: Any, config: RunnableConfig) -> None:
        """The values that a graph has at its beginning, without where its entry edges lead."""
        graph = inner.graph
        anew, start = self._started(graph, inner.name, inner.label, given, inner.stop, config)
        assert start is not None, "a graph that was entered once can be entered again"
        invoke(graph.nodes[START].writers[0], start.input, start.config)
        self._has_started(anew, start)
        known = graph.builder.channels  # type: ignore[attr-defined]
        given_anew = set(known) - inner.edited
        inner.channels = {n: anew.channels[n] if n in given_anew else one for n, one in inner.channels.items()}
        inner.changed |= given_anew

    def finish_step(self, frame: Frame, config: RunnableConfig) -> bool:
        """Apply what the tasks wrote where all of a step are done, and prepare the next. Whether the frame goes on."""
        for branch in frame.branches:
            if branch.inner is not None and branch.writes is None:
                self._advance_inner(frame, branch, config)
        if any(branch.writes is None for branch in frame.branches):
            return True
        frame.take_over_changes()
        self._apply(frame, [self._written(frame, branch) for branch in frame.branches])
        self._next_step(frame, config)
        return bool(frame.branches)

    def command(self, root: Frame, within: Frame, command: Command[Any]) -> None:
        """Give a command for an outer graph, raised in `within`, to the task that leads there. Raises ValueError."""
        line = list(path_to(root, within))
        if not line and within is not root:
            return  # another task of that graph has left it already
        config = self.config
        tasks = []
        for outer, branch in line:
            tasks.append((branch, self._task(outer, branch, config)))
            config = tasks[-1][1].config
        for branch, task in reversed(tasks):
            ns = task.config[CONF][CONFIG_KEY_CHECKPOINT_NS]
            if command.graph in (ns, recast_checkpoint_ns(ns), task.name):
                for writer in task.writers:
                    invoke(writer, command, task.config)
                branch.writes, branch.inner = list(task.writes), None
                return
        raise ValueError(f"a Command for the graph {command.graph!r}, and no graph around it has that name")

    def prepare(
        self, root: Frame, frame: Frame, branch: Branch, nodes: Nodes, interrupts: Interrupts
    ) -> PregelExecutableTask:
        """A task that can be run. interrupts: what `interrupt` returns, in its order.

        nodes: of the graph, with the variant that is to be run.
        """
        config = self.config
        for outer, towards in path_to(root, frame):
            config = self._task(outer, towards, config).config
        task = self._executable(frame, branch, nodes, config)
        assert task is not None, "a task that was prepared once can be prepared again"
        if not interrupts:
            return task
        pad = replace(task.config[CONF][CONFIG_KEY_SCRATCHPAD], get_null_resume=interrupts.resume)
        return replace(task, config=patch_configurable(task.config, {CONFIG_KEY_SCRATCHPAD: pad}))

    def _advance_inner(self, frame: Frame, branch: Branch, config: RunnableConfig) -> None:
        inner = branch.inner
        assert inner is not None
        task = self._task(frame, branch, config)
        if self.finish_step(inner, task.config):
            return
        value = read_channels(inner.channels, inner.graph.output_channels)
        for writer in task.writers:
            value = invoke(writer, value, task.config)
        branch.writes, branch.inner = list(task.writes), None

    def _next_step(self, frame: Frame, config: RunnableConfig) -> None:
        frame.step += 1
        prepared = prepare_next_tasks(
            frame.checkpoint(),
            [],
            frame.graph.nodes,
            frame.channels,
            frame.managed,
            self._config_of(frame, config),
            frame.step,
            frame.stop,
            for_execution=False,
            trigger_to_nodes=frame.graph.trigger_to_nodes,
            updated_channels=frame.updated,
        )
        frame.branches = [Branch(tuple(task.path[:2]), task.name) for task in prepared.values()]
        if frame.step > frame.stop:  # also where nothing is left to do, as LangGraph has it
            raise GraphRecursionError(f"Recursion limit of {frame.stop} reached without hitting a stop condition")
        for number, branch in enumerate(frame.branches):
            name = frame.node_name(branch.node)
            if (graph := self.inner.get(name)) is not None:
                if graph.checkpointer is True and branch.node in frame.seen:
                    raise StateError(
                        f"graph {name!r} was compiled with checkpointer=True, to remember its last visit, and is "
                        f"visited again: each visit is a new one here; keep what it needs in the state around it"
                    )
                task = self._task(frame, branch, config)
                label = f"{frame.label}{branch.node}{f'|{number}' if len(frame.branches) > 1 else ''}."
                branch.inner = self.begin(graph, name, label, task.input, task.config)
        if any(branch.inner is not None and not branch.inner.branches for branch in frame.branches):
            self.finish_step(frame, config)  # a graph that had nothing to do

    def _apply(self, frame: Frame, tasks: Sequence[PregelTaskWrites]) -> None:
        before = dict(frame.versions)
        to = frame.graph.trigger_to_nodes
        frame.updated = apply_writes(frame.checkpoint(), frame.channels, tasks, increment, to)
        frame.changed |= {name for name, version in frame.versions.items() if before.get(name) != version}

    def _written(self, frame: Frame, branch: Branch) -> PregelTaskWrites:
        triggers = (PUSH,) if branch.path[0] == PUSH else tuple(sorted(frame.graph.nodes[branch.node].triggers))
        writes = [write for write in branch.writes or () if not write[0].startswith(IN_PLACE)]
        return PregelTaskWrites(branch.path, branch.node, writes, triggers)

    def _task(self, frame: Frame, branch: Branch, config: RunnableConfig) -> PregelExecutableTask:
        found = self._executable(frame, branch, frame.graph.nodes, config)
        assert found is not None, "a task that was prepared once can be prepared again"
        return found

    def _executable(
        self, frame: Frame, branch: Branch, nodes: Nodes, config: RunnableConfig
    ) -> PregelExecutableTask | None:
        return executable(frame, branch.path, nodes, self._config_of(frame, config), self.runtime.store)

    def _limit_of(self, graph: Graph, config: RunnableConfig) -> int:
        limit: int = merge_configs(graph.config, config).get("recursion_limit", DEFAULT_RECURSION_LIMIT)
        return limit

    def _config_of(self, frame: Frame, config: RunnableConfig) -> RunnableConfig:
        own = frame.graph.config
        return merge_configs(own, config) if own else config
