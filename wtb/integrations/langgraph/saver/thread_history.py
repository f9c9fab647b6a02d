"""A thread of LangGraph, kept by any saver, as WTB's history: its checkpoints, who wrote them, where to go back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.constants import START
from langgraph.types import StateSnapshot

from wtb.authoring.workflow import DEFAULT
from wtb.core.tree.checkpoints import Checkpoint, CheckpointId, ExecutionHistory, Position, Totals, Writer
from wtb.core.values import Value
from wtb.integrations.langgraph.authoring.nodes import ROOT, Graph


def history(graph: Graph, config: RunnableConfig) -> ExecutionHistory:
    """Read the checkpoints of a LangGraph thread, kept by any saver.

    The checkpoint after a node is a target for `graph.update_state` or `graph.invoke(None, ...)` with its
    `checkpoint_id`.

    Args:
        graph: The compiled graph, with its checkpointer.
        config: Names the thread, and perhaps a `checkpoint_id` to end at.

    Returns:
        The line of checkpoints, from the first to the one that `config` names, or to the last.

    Raises:
        StateError: For a value of the state that WTB cannot store.

    Example:
        >>> from typing import TypedDict
        >>> from langgraph.graph import END, START, StateGraph
        >>> from wtb.integrations.langgraph import Saver, history
        >>> class State(TypedDict, total=False):
        ...     count: int
        >>> builder = StateGraph(State)
        >>> _ = builder.add_node("add", lambda state: {"count": state.get("count", 0) + 1})
        >>> _ = builder.add_edge(START, "add")
        >>> thread = {"configurable": {"thread_id": "ana"}}
        >>> with Saver("sqlite:///:memory:") as saver:
        ...     graph = builder.compile(checkpointer=saver)
        ...     _ = graph.invoke({"count": 1}, thread)
        ...     [writer.node for checkpoint in history(graph, thread).checkpoints for writer in checkpoint.writers]
        ['add']
    """
    by_id = {_id(one.config): one for one in graph.get_state_history(_of_thread(config))}
    line: list[StateSnapshot] = []
    at: StateSnapshot | None = by_id.get(_id(config) or next(iter(by_id), ""))
    while at is not None:
        line.append(at)
        at = by_id.get(_id(at.parent_config)) if at.parent_config else None
    made: list[Checkpoint] = []
    visits: dict[str, int] = {}
    before: StateSnapshot | None = None
    for snapshot in reversed(line):
        updated = (snapshot.metadata or {}).get("source") == "update"
        tasks = () if before is None or updated else before.tasks
        writers = tuple(Writer(task.name, DEFAULT, task.id) for task in tasks if task.name != START and not task.error)
        for node in dict.fromkeys(writer.node for writer in writers):
            visits[node] = visits.get(node, 0) + 1
        made.append(_checkpoint(snapshot, made[-1].id if made else None, writers, dict(visits)))
        before = snapshot
    return ExecutionHistory(made)


def _checkpoint(
    snapshot: StateSnapshot, parent: CheckpointId | None, writers: tuple[Writer, ...], visits: Mapping[str, int]
) -> Checkpoint:
    values = snapshot.values if isinstance(snapshot.values, dict) else {ROOT: snapshot.values}
    count: dict[str, int] = {}
    for node in snapshot.next:
        if node != START:
            count[node] = count.get(node, 0) + 1
    step = (snapshot.metadata or {}).get("step", -1)
    fan_out = {node: number for node, number in count.items() if number > 1}
    return Checkpoint(
        CheckpointId(_id(snapshot.config)),
        parent,
        Position(step, tuple(count), {}, visits, fan_out),
        {name: Value.of(value).digest for name, value in values.items()},
        writers,
        totals=Totals(node_runs=sum(visits.values())),
        created_at=datetime.fromisoformat(snapshot.created_at).timestamp() if snapshot.created_at else 0.0,
    )


def _id(config: RunnableConfig) -> Any:
    return config.get("configurable", {}).get("checkpoint_id")


def _of_thread(config: RunnableConfig) -> RunnableConfig:
    configurable = {key: value for key, value in config.get("configurable", {}).items() if key != "checkpoint_id"}
    return {"configurable": configurable}
