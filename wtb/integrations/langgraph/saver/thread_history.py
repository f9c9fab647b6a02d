"""A thread of LangGraph, kept by any saver, as WTB's history: its checkpoints, who wrote them, where to go back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.constants import START
from langgraph.types import PregelTask, StateSnapshot

from wtb.authoring.workflow import DEFAULT
from wtb.core.tree.checkpoints import Checkpoint, CheckpointId, Position, Totals, Writer
from wtb.core.tree.history import ExecutionHistory, RecordedRun
from wtb.core.values import Value
from wtb.integrations.langgraph.authoring.nodes import ROOT, Graph

WRITERS = "wtb_writers"  # the metadata of a checkpoint that name them, as JSON


def history(graph: Graph, config: RunnableConfig) -> ExecutionHistory:
    """Read the checkpoints of a LangGraph thread, kept by any saver.

    The checkpoint after a node is a target for `graph.update_state` or `graph.invoke(None, ...)` with its
    `checkpoint_id`.

    Args:
        graph: The compiled graph, with its checkpointer.
        config: Names the thread, and perhaps a `checkpoint_id` to end at.

    Returns:
        The line of checkpoints, from the first to the one that `config` names, or to the last. LangGraph records no
        times and costs of nodes: a visit lasts from one checkpoint to the next, and costs are 0.

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
        ...     history(graph, thread).path
        ('add',)
    """
    by_id = {_id(one.config): one for one in graph.get_state_history(_of_thread(config))}
    line: list[StateSnapshot] = []
    at: StateSnapshot | None = by_id.get(_id(config) or next(iter(by_id), ""))
    while at is not None:
        line.append(at)
        at = by_id.get(_id(at.parent_config)) if at.parent_config else None
    checkpoints: list[Checkpoint] = []
    runs: dict[str, RecordedRun] = {}
    visits: dict[str, int] = {}
    before: StateSnapshot | None = None
    for snapshot in reversed(line):
        updated = (snapshot.metadata or {}).get("source") == "update"
        tasks = () if before is None or updated else _tasks(before)
        done = [task for task in tasks if not task.error]
        writers = tuple(Writer(task.name, DEFAULT, task.id) for task in done) or _saved_writers(snapshot)
        if before is not None:
            runs.update((task.id, _run(task, visits, _time(before), _time(snapshot))) for task in done)
        for node in dict.fromkeys(writer.node for writer in writers):
            visits[node] = visits.get(node, 0) + 1
        checkpoints.append(_checkpoint(snapshot, checkpoints[-1].id if checkpoints else None, writers, dict(visits)))
        before = snapshot
    unfinished: list[RecordedRun] = []
    if before is not None:
        stopped = [task for task in _tasks(before) if task.error or task.interrupts]
        unfinished = [_run(task, visits, _time(before), None) for task in stopped]
    return ExecutionHistory(checkpoints, runs=runs, unfinished=unfinished)


def _saved_writers(snapshot: StateSnapshot) -> tuple[Writer, ...]:
    """The writers of a checkpoint that a `ThreadCheckpoints` saved; LangGraph knows none for it."""
    described: Mapping[str, Any] = snapshot.metadata or {}
    return tuple(Writer(*writer) for writer in json.loads(described.get(WRITERS, "[]")))


def _tasks(snapshot: StateSnapshot) -> list[PregelTask]:
    """The tasks of nodes that a snapshot has next."""
    return [task for task in snapshot.tasks if task.name != START]


def _run(task: PregelTask, visits: Mapping[str, int], started: float, ended: float | None) -> RecordedRun:
    """A task as a node run: it has ended if `ended` is a time, else it failed or waits for an answer."""
    status = "succeeded" if ended is not None else "failed" if task.error else "waiting"
    wrote = task.result if isinstance(task.result, dict) else {}
    return RecordedRun(
        task.id,
        task.name,
        task.name,
        DEFAULT,
        visits.get(task.name, 0),
        status,
        started,
        0.0 if ended is None else ended - started,
        ended,
        writes={str(key): Value.of(value).digest for key, value in wrote.items()},
        error=str(task.error) if task.error else None,
    )


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
        created_at=_time(snapshot),
    )


def _time(snapshot: StateSnapshot) -> float:
    """When a snapshot was taken, in seconds since the epoch."""
    return datetime.fromisoformat(snapshot.created_at).timestamp() if snapshot.created_at else 0.0


def _id(config: RunnableConfig) -> Any:
    return config.get("configurable", {}).get("checkpoint_id")


def _of_thread(config: RunnableConfig) -> RunnableConfig:
    configurable = {key: value for key, value in config.get("configurable", {}).items() if key != "checkpoint_id"}
    return {"configurable": configurable}
