"""Threads of a LangGraph graph as executions: a store of their checkpoints, and their histories."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.channels import BinaryOperatorAggregate
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.constants import START
from langgraph.types import Overwrite, PregelTask, StateSnapshot, StateUpdate

from wtb.authoring.workflow import DEFAULT
from wtb.core.errors import InputError, NotFound, StateError
from wtb.core.serialization.codec import decode
from wtb.core.tree.checkpoint_store import check_parent, no_checkpoint, unreached_line
from wtb.core.tree.checkpoints import Checkpoint, CheckpointId, Position, Totals, Writer, visible_state
from wtb.core.tree.history import ExecutionHistory
from wtb.core.tree.recorded_runs import RecordedRun
from wtb.core.values import Value
from wtb.integrations.langgraph.nodes import ROOT, Graph
from wtb.integrations.langgraph.saver.checkpoint_saver import Saver

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
    by_id = {_id_of_config(snapshot.config): snapshot for snapshot in graph.get_state_history(_of_thread(config))}
    line: list[StateSnapshot] = []
    at: StateSnapshot | None = by_id.get(_id_of_config(config) or next(iter(by_id), ""))
    while at is not None:
        line.append(at)
        at = by_id.get(_id_of_config(at.parent_config)) if at.parent_config else None
    checkpoints: list[Checkpoint] = []
    runs: dict[str, RecordedRun] = {}
    visits: Counter[str] = Counter()
    before: StateSnapshot | None = None
    for snapshot in reversed(line):
        # An update writes as if its nodes had run. The tasks that were next wrote nothing of it.
        updated = (snapshot.metadata or {}).get("source") == "update"
        tasks = () if before is None or updated else _tasks(before)
        done = [task for task in tasks if not task.error]
        writers = tuple(Writer(task.name, DEFAULT, task.id) for task in done) or _saved_writers(snapshot)
        if before is not None:
            runs.update((task.id, _run(task, visits, _time(before), _time(snapshot))) for task in done)
        visits.update(dict.fromkeys([writer.node for writer in writers], 1))
        checkpoints.append(_checkpoint(snapshot, checkpoints[-1].id if checkpoints else None, writers, dict(visits)))
        before = snapshot
    unfinished: list[RecordedRun] = []
    if before is not None:
        stopped = [task for task in _tasks(before) if task.error or task.interrupts]
        unfinished = [_run(task, visits, _time(before), None) for task in stopped]
    return ExecutionHistory(checkpoints, runs=runs, unfinished=unfinished)


def _saved_writers(snapshot: StateSnapshot) -> tuple[Writer, ...]:
    """Return the writers of a checkpoint that a `ThreadCheckpoints` saved, for which LangGraph has none."""
    described: Mapping[str, Any] = snapshot.metadata or {}
    return tuple(Writer(*writer) for writer in json.loads(described.get(WRITERS, "[]")))


def _tasks(snapshot: StateSnapshot) -> list[PregelTask]:
    """Return the next tasks of a snapshot that run nodes."""
    return [task for task in snapshot.tasks if task.name != START]


def _run(task: PregelTask, visits: Mapping[str, int], started: float, ended: float | None) -> RecordedRun:
    """Return a task as a node run. It has ended if `ended` is a time, else it failed or waits for an answer."""
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
    count = Counter(node for node in snapshot.next if node != START)
    step = (snapshot.metadata or {}).get("step", -1)
    fan_out = {node: number for node, number in count.items() if number > 1}
    return Checkpoint(
        CheckpointId(_id_of_config(snapshot.config)),
        parent,
        Position(step, tuple(count), {}, visits, fan_out),
        {name: Value.of(value).digest for name, value in values.items()},
        writers,
        totals=Totals(node_runs=sum(visits.values())),
        created_at=_time(snapshot),
    )


def _time(snapshot: StateSnapshot) -> float:
    """Return the time of a snapshot, in seconds since the epoch."""
    return datetime.fromisoformat(snapshot.created_at).timestamp() if snapshot.created_at else 0.0


def _id_of_config(config: RunnableConfig) -> Any:
    return config.get("configurable", {}).get("checkpoint_id")


def _of_thread(config: RunnableConfig) -> RunnableConfig:
    configurable = {key: setting for key, setting in config.get("configurable", {}).items() if key != "checkpoint_id"}
    return {"configurable": configurable}


class ThreadCheckpoints:
    """The threads of a LangGraph graph as a `wtb.history.CheckpointStore`, kept by the graph's own checkpointer.

    An execution is a thread. LangGraph gives checkpoints their ids and follows the graph's own edges after the nodes
    that wrote one, so that `graph.invoke(None, ...)` continues from it. It has no fencing: tokens are not read.

    Args:
        graph: The compiled graph, with its checkpointer.

    Raises:
        InputError: If the graph was compiled without a checkpointer.

    Example:
        >>> from typing import TypedDict
        >>> from langgraph.graph import START, StateGraph
        >>> from wtb.integrations.langgraph import Saver, ThreadCheckpoints
        >>> class State(TypedDict, total=False):
        ...     count: int
        >>> builder = StateGraph(State)
        >>> _ = builder.add_node("add", lambda state: {"count": state.get("count", 0) + 1})
        >>> _ = builder.add_edge(START, "add")
        >>> with Saver("sqlite:///:memory:") as saver:
        ...     graph = builder.compile(checkpointer=saver)
        ...     _ = graph.invoke({"count": 1}, {"configurable": {"thread_id": "ana"}})
        ...     ThreadCheckpoints(graph).history("ana").path
        ('add',)
    """

    def __init__(self, graph: Graph) -> None:
        if not isinstance(graph.checkpointer, BaseCheckpointSaver):
            raise InputError("the graph has no checkpointer; compile it with one: builder.compile(checkpointer=...)")
        self._graph = graph
        self._saver = graph.checkpointer

    def save(
        self, execution: str, checkpoint: Checkpoint, values: Iterable[Value] = (), *, token: int = 0
    ) -> CheckpointId:
        """Write a checkpoint to a thread, as `CheckpointStore.save` describes it.

        Args:
            execution: The id of the thread; it begins with its first checkpoint.
            checkpoint: The checkpoint: its state, its parent and its writers.
            values: All values that the state names.
            token: Not read.

        Returns:
            The id that LangGraph gave it.

        Raises:
            ConflictError: If the parent is not in the thread.
            InputError: If a value of the state is missing.
        """
        known_ids = {str(_id(snapshot.config)) for snapshot in self._graph.get_state_history(_thread(execution))}
        check_parent(execution, checkpoint, known_ids)
        state = self._decoded(checkpoint, values)
        nodes = [START] if checkpoint.parent is None else [writer.node for writer in checkpoint.writers]
        writers = [[writer.node, writer.variant, writer.node_run] for writer in checkpoint.writers]
        config = _thread(execution, checkpoint.parent)
        config["configurable"][WRITERS] = json.dumps(writers)
        # All nodes update in one step, so that LangGraph follows the edges of each. The state is written once.
        updates = [StateUpdate(state, nodes[0] if nodes else None), *(StateUpdate({}, node) for node in nodes[1:])]
        return CheckpointId(_id(self._graph.bulk_update_state(config, [updates])))

    def load(self, id: str) -> Checkpoint:
        """Return a checkpoint by its id.

        Args:
            id: The id of a checkpoint of any thread.

        Returns:
            The checkpoint.

        Raises:
            NotFound: If there is none.
        """
        loaded = history(self._graph, _thread(self._thread_of(id), id)).latest
        assert loaded is not None, "the thread has this checkpoint"
        return loaded

    def history(self, execution: str) -> ExecutionHistory:
        """Return the line that leads to the latest checkpoint of a thread.

        Args:
            execution: The id of the thread.

        Returns:
            The history of the thread.

        Raises:
            NotFound: If there is no such thread.
        """
        line = history(self._graph, _thread(execution))
        if not line:
            raise NotFound(f"there is no thread {execution!r}")
        return line

    def delete(self, id: str) -> tuple[CheckpointId, ...]:
        """Delete a line that ends at a checkpoint, as far as nothing else reaches it.

        Args:
            id: The last checkpoint of the line.

        Returns:
            The deleted checkpoints, the last of the line first.

        Raises:
            ConflictError: If it is the head of an execution, or if a checkpoint follows it.
            NotFound: If there is none.
            StateError: If the checkpointer is not WTB's `Saver`: others delete whole threads only.
        """
        thread = self._thread_of(id)
        if not isinstance(self._saver, Saver):
            raise StateError(
                f"{type(self._saver).__name__} deletes whole threads only (`delete_thread`); expected WTB's Saver"
            )
        snapshots = list(self._graph.get_state_history(_thread(thread)))
        parents = {_id(snapshot.config): _id_of_config(snapshot.parent_config or {}) for snapshot in snapshots}
        # LangGraph lists the newest checkpoint first, which is the head.
        deleted = unreached_line(id, parents, {next(iter(parents)): thread})
        self._saver.delete_checkpoints(thread, deleted)
        return deleted

    def _decoded(self, checkpoint: Checkpoint, values: Iterable[Value]) -> Any:
        """Return the state of a checkpoint as the graph takes it: whole values, which no reducer merges."""
        contents = {value.digest: value.data for value in values}
        state = visible_state(checkpoint.state)
        if missing := [key for key, digest in state.items() if digest not in contents]:
            raise InputError(f"checkpoint {checkpoint.id}: the value of {missing[0]!r} is missing; expected all values")
        decoded = {key: decode(contents[digest]) for key, digest in state.items()}
        if ROOT in decoded:
            return decoded[ROOT]
        # A reducer would join a whole value with the value that the channel has. `Overwrite` keeps it from that.
        merged = {key for key, kind in self._graph.channels.items() if isinstance(kind, BinaryOperatorAggregate)}
        return {key: Overwrite(value) if key in merged else value for key, value in decoded.items()}

    def _thread_of(self, id: str) -> str:
        # Savers find a checkpoint only within its thread, so all threads are searched.
        for checkpoint in self._saver.list(None):
            place = checkpoint.config["configurable"]
            if place["checkpoint_id"] == id and not place["checkpoint_ns"]:
                return str(place["thread_id"])
        raise no_checkpoint(id)


def _thread(thread: str, checkpoint: str | None = None) -> RunnableConfig:
    config: dict[str, Any] = {"thread_id": thread, "checkpoint_ns": ""}
    if checkpoint is not None:
        config["checkpoint_id"] = checkpoint
    return cast("RunnableConfig", {"configurable": config})


def _id(config: RunnableConfig) -> str:
    return str(config["configurable"]["checkpoint_id"])
