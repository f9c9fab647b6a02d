"""The engine of LangGraph graphs: it begins, runs a task or joins a step, each time from the stored state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph._internal._config import DEFAULT_RECURSION_LIMIT
from langgraph._internal._constants import (
    CONF,
    CONFIG_KEY_CHECKPOINT_NS,
    CONFIG_KEY_RUNTIME,
    CONFIG_KEY_THREAD_ID,
    TASKS,
)
from langgraph.errors import GraphInterrupt, GraphRecursionError, ParentCommand
from langgraph.pregel._read import PregelNode
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from langgraph.types import Interrupt, Send

from wtb.authoring.context.node_context import Context
from wtb.authoring.context.surroundings import Surroundings
from wtb.authoring.graph import Decision, Tried
from wtb.authoring.workflow_facts import END
from wtb.core.errors import InputError, RoutingError
from wtb.core.serialization.codec import decode
from wtb.core.tree.checkpoints import HIDDEN, Position
from wtb.core.values import Value, Values, differing
from wtb.execution.engine.attempt import attempted
from wtb.execution.engine.protocol import Joined, Result, Root, Task, Writes
from wtb.integrations.langgraph import frames, state_mapping
from wtb.integrations.langgraph.frames import Branch, Frame
from wtb.integrations.langgraph.messages import with_message_ids
from wtb.integrations.langgraph.nodes import ROOT, Graph, GraphNode
from wtb.integrations.langgraph.pregel import Interrupts, Stepper
from wtb.integrations.langgraph.state_mapping import COMMAND, DecodedValues, leaves_by_key
from wtb.integrations.langgraph.task_runner import Attempted, Listener, Running, is_async, may_be_awaited
from wtb.integrations.langgraph.workflow import CHOICE, GraphWorkflow, context_of

CHOICE_CHANNEL = HIDDEN + CHOICE  # what the node that chooses a graph writes


class GraphEngine:
    """Runs LangGraph graphs, task by task."""

    begins_here = False

    def __init__(self, workflow: GraphWorkflow) -> None:
        self.workflow = workflow.facts()
        self._own = workflow
        self._nodes: dict[tuple[str, str], Mapping[str, PregelNode]] = {}

    def is_async(self, node: str, variant: str) -> bool:
        graph_node = self.workflow.nodes[node]
        return isinstance(graph_node, GraphNode) and is_async(self._under(graph_node, variant)[graph_node.place].bound)

    def begin(self, state: Values, root: Root) -> Joined:
        """Return the state after the conditional entry edges, which run here. Raises what they raise."""
        if len(self._own.roots) > 1:
            return Joined({}, Position(0, (CHOICE,)))
        return self._enter("", state, Position(0, ()), root)

    def run(self, task: Task, surroundings: Surroundings) -> Result:
        node = self.workflow.nodes[task.node]

        def perform(context: Context) -> Values:
            if not isinstance(node, GraphNode):
                return {CHOICE_CHANNEL: Value.of(task.variant)}
            return self._perform(task, node, context, surroundings)

        def is_final(error: BaseException) -> bool:
            return isinstance(node, GraphNode) and node.is_final(error, task.failed)

        return attempted(self, task, surroundings, {}, perform, is_final)

    def awaited(self, task: Task, surroundings: Surroundings) -> None:
        """Return None: LangGraph's runner occupies a thread."""

    def join(self, state: Values, position: Position, writes: Writes, root: Root) -> Joined:
        """Join a step. Raises StateError if a value cannot be stored, and RoutingError if it continues for too long."""
        ran = [task.node for task in position.tasks]
        visits = {**position.visits, **{node: position.visits.get(node, 0) + 1 for node in ran}}
        after = Position(position.step + 1, (), {}, visits)
        decoded_values = DecodedValues()
        wrote = dict(writes)
        if choice := wrote.get(CHOICE, {}).get(CHOICE_CHANNEL):
            return self._enter(decode(choice.data), state, after, root)
        top = self._thaw_frame(position, state, decoded_values, root)
        stepper = self._stepper(top.graph, state, root)
        leaves = leaves_by_key(top, position)
        decisions = []
        for key, (frame, branch) in leaves.items():
            values = frames.without_store(wrote.get(key, {}))
            if COMMAND not in values:
                branch.writes = state_mapping.writes_of(values, decoded_values)
                decisions += _decisions(frame, branch)
        with _routing():
            for key, (frame, _) in leaves.items():
                if (command := wrote.get(key, {}).get(COMMAND)) is not None:
                    stepper.command(top, frame, state_mapping.command_of(command))
            stepper.finish_step(top, stepper.config)
        store_values = frames.collect_store_values(state, [values for _, values in writes])
        return replace(_join(top, state, decoded_values, after, store_values), decisions=tuple(decisions))

    def _perform(self, task: Task, node: GraphNode, context: Context, surroundings: Surroundings) -> Values:
        listener = Listener(context)
        nodes = self._under(node, task.variant)
        who = f"node {task.node!r}"
        assert context.questioner is not None, "an attempt can ask"
        interrupts = Interrupts(context.questioner, task.asked)
        awaited = False
        while True:  # again with each further answer, on a fresh copy of the state
            interrupts.restart()
            decoded_values = DecodedValues()
            top, frame, branch = self._to_run(task, decoded_values)
            stepper = self._stepper(top.graph, task.state, task.root, listener, task.failed)
            prepared = stepper.prepare(top, frame, branch, nodes, interrupts)
            running = Running(frame, prepared, nodes, stepper.runtime.store, listener)
            awaited = awaited or is_async(prepared.proc)
            call = running.arun if awaited else running.run
            cached = frames.Cached.of(node, frame.graph, task, prepared.input)
            try:
                cached_output = cached.load() if cached is not None else None
                writes, changes = cached_output or (surroundings.call(call, timeout=task.timeout), {})
            except GraphInterrupt as interrupted:
                interrupts.ask(_only_interrupt(who, interrupted).value)
                continue
            except NotImplementedError:  # such as a tool says that is only async, in a node that is both
                if awaited or not may_be_awaited(nodes[branch.node].bound):
                    raise
                awaited = True
                continue
            except ParentCommand as raised:
                return {
                    COMMAND: state_mapping.command_value(who, raised.args[0]),
                    **frames.changes_of(stepper.runtime.store),
                }
            if cached_output is None:
                writes = [(channel, with_message_ids(frame.channels.get(channel), value)) for channel, value in writes]
                changes = frames.changes_of(stepper.runtime.store)
                # The output of an error handler stands for a failure, which must not be repeated from the cache.
                if cached is not None and running.handler is None:
                    cached.keep(writes, changes)
            writes = [*writes, *state_mapping.changed_in_place(frame, decoded_values)]
            return {**state_mapping.write_values(frame.graph, who, writes), **changes}

    def _to_run(self, task: Task, decoded_values: DecodedValues) -> tuple[Frame, Frame, Branch]:
        """Return the outermost frame, and the one that a task is in, with the task."""
        kept_frame = task.position.engine
        way = None if kept_frame is None else state_mapping.way_to(kept_frame, task.node, task.number)
        top = self._thaw_frame(task.position, task.state, decoded_values, task.root, way)
        return top, *(next(top.leaves()) if way else leaves_by_key(top, task.position)[task.key])

    def _under(self, node: GraphNode, variant: str) -> Mapping[str, PregelNode]:
        """Return the nodes of a node's graph, with the node itself under a variant."""
        nodes = self._nodes.get((node.name, variant))
        if nodes is None:
            compiled = node.compile(node.variants[variant])
            nodes = self._nodes[node.name, variant] = {**node.graph.nodes, node.place: compiled}
        return nodes

    def _stepper(
        self, graph: Graph, state: Values, root: Root, listener: Listener | None = None, failed: int = 0
    ) -> Stepper:
        store = frames.for_attempt(graph.store if isinstance(graph.store, BaseStore) else None, state)
        runtime: Runtime[Any] = Attempted(context=context_of(graph, root.params), store=store, failed=failed)
        if listener is not None:
            runtime = runtime.override(stream_writer=listener.streamed)
        config: RunnableConfig = {
            "tags": [],
            "metadata": {},
            "callbacks": None if listener is None else [listener],
            "recursion_limit": (graph.config or {}).get("recursion_limit", DEFAULT_RECURSION_LIMIT),
            CONF: {
                **root.params,
                # Nodes that tell threads apart, such as those with a memory of their own, must not mix cells.
                CONFIG_KEY_THREAD_ID: f"{root.case.id}/{root.repeat}",
                CONFIG_KEY_CHECKPOINT_NS: "",
                CONFIG_KEY_RUNTIME: runtime,
            },
        }
        return Stepper(self._own.inner, config, runtime)

    def _enter(self, name: str, state: Values, after: Position, root: Root) -> Joined:
        """Take the first step of an outermost graph. `name` is that of its variant if there are several."""
        decoded_values = DecodedValues()
        graph = self._own.graphs[name]
        stepper = self._stepper(graph, state, root)
        values = {key: decoded_values.decode(value) for key, value in frames.without_store(state).items()}
        only = values[ROOT] if set(values) == {ROOT} else values
        with _routing():
            top = stepper.begin(graph, name, "", only, stepper.config)
        return _join(top, {}, decoded_values, after, frames.collect_store_values(state, ()), before=state)

    def _thaw_frame(
        self,
        position: Position,
        state: Values,
        decoded_values: DecodedValues,
        root: Root,
        way: Sequence[int] | None = None,
    ) -> Frame:
        if position.engine is not None:
            top = state_mapping.thaw(self._own.graphs, position.engine, state, decoded_values, way)
            if top.is_stale():
                stepper = self._stepper(top.graph, state, root)
                stepper.refresh(top, stepper.config)
            return top
        graph = self._own.graphs[""]  # a person named the nodes to start from
        nodes = [node.place for node in map(self._own.__getitem__, position.next) if isinstance(node, GraphNode)]
        values = state_mapping.plain_state(graph, state, decoded_values)
        return self._stepper(graph, state, root).at_nodes(graph, "", values, nodes)


def _join(
    top: Frame,
    state: Values,
    decoded_values: DecodedValues,
    after: Position,
    store_values: Mapping[str, Value],
    before: Values | None = None,
) -> Joined:
    """Freeze a frame as the outcome of a step. `before` is the state people see as the one before, if another one."""
    changed, dropped, engine = state_mapping.freeze(top, frames.without_store(state), decoded_values)
    if before is not None:
        dropped = tuple(key for key in before if key not in changed and key not in store_values)
    changed |= differing(store_values, state)
    to, fan_out = state_mapping.next_nodes(top)
    position = Position(after.step, to, {}, after.visits, fan_out, engine)
    return Joined(changed, position, (), dropped)


@contextmanager
def _routing() -> Iterator[None]:
    """Enclose code that runs between node runs. Raises RoutingError if it never ends, or calls `interrupt`."""
    try:
        yield
    except GraphRecursionError as error:
        raise RoutingError(f"{error}: a loop that does not end? `recursion_limit` raises the limit") from error
    except GraphInterrupt as error:
        raise RoutingError(
            "interrupt() was called in a conditional edge out of START or out of a subgraph, which runs between node "
            "runs, where nobody can be asked: call it in a node, and let the edge read what it wrote"
        ) from error


def _only_interrupt(who: str, interrupted: GraphInterrupt) -> Interrupt:
    """Return the question of a node. Raises InputError for several at a time, whose answers could be mixed up."""
    interrupts = {interrupt.id: interrupt for interrupt in interrupted.args[0]}
    if not interrupts:
        raise InputError(
            f"{who} calls a graph that was compiled with interrupt_before or interrupt_after, and cannot be stopped "
            f"within it: compile it without, and let its nodes call interrupt(); or make it a node of its own"
        )
    if len(interrupts) > 1:
        raise InputError(
            f"{who} asks {len(interrupts)} questions at the same time, by tasks or graphs that it calls: let it wait "
            f"for one answer after the other, or make each a node of its own"
        )
    return next(iter(interrupts.values()))


def _decisions(frame: Frame, branch: Branch) -> list[Decision]:
    """Return where a task decided to go on, by its conditional edges or its Command."""
    builder: Any = frame.graph.builder  # type: ignore[attr-defined]
    # An unconditional edge leads on in any case, and is no decision.
    always = {end for start, end in builder.edges if start == branch.node}
    start = "branch:to:"
    to = [(channel.removeprefix(start), None) for channel, _ in branch.writes or () if channel.startswith(start)]
    sent = [
        (packet.node, "sent")
        for channel, packet in branch.writes or ()
        if channel == TASKS and isinstance(packet, Send)
    ]
    by = ", ".join(builder.branches.get(branch.node, ())) or "a Command"
    destinations = [(end, key) for end, key in [*to, *sent] if end not in always]
    if not destinations and builder.branches.get(branch.node):
        destinations = [(END, None)]
    paths = builder.branches.get(branch.node, {}).values()
    ends = {end: key for path in paths for key, end in (path.ends or {}).items()}
    chosen_ends = {end for end, _ in destinations}
    keys = {**dict.fromkeys(chosen_ends), **ends}

    def name(end: str) -> str:
        return END if end == END else frame.node_name(end)

    alternatives = tuple(
        Tried(name(end), None if key is None else str(key), end in chosen_ends) for end, key in keys.items()
    )
    return [Decision(frame.node_name(branch.node), name(end), key, by, alternatives) for end, key in destinations]
