"""Threads of a LangGraph graph as a store of checkpoints: an execution is a thread."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.channels import BinaryOperatorAggregate
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.constants import START
from langgraph.types import Overwrite, StateUpdate

from wtb.core.errors import InputError, NotFound, StateError
from wtb.core.serialization.codec import decode
from wtb.core.tree.checkpoint_store import check_parent, no_checkpoint, unreached_line
from wtb.core.tree.checkpoints import Checkpoint, CheckpointId, visible_state
from wtb.core.tree.history import ExecutionHistory
from wtb.core.values import Value
from wtb.integrations.langgraph.authoring.nodes import ROOT, Graph
from wtb.integrations.langgraph.saver.checkpoint_saver import Saver
from wtb.integrations.langgraph.saver.thread_history import WRITERS, history


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
        known = {str(_id(one.config)) for one in self._graph.get_state_history(_thread(execution))}
        check_parent(execution, checkpoint, known)
        state = self._decoded(checkpoint, values)
        nodes = [START] if checkpoint.parent is None else [writer.node for writer in checkpoint.writers]
        writers = [[writer.node, writer.variant, writer.node_run] for writer in checkpoint.writers]
        config = _thread(execution, checkpoint.parent)
        config["configurable"][WRITERS] = json.dumps(writers)
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
        parents = {_id(one.config): _id(one.parent_config) if one.parent_config else None for one in snapshots}
        deleted = unreached_line(id, parents, {next(iter(parents)): thread})
        self._saver.delete_checkpoints(thread, deleted)
        return deleted

    def _decoded(self, checkpoint: Checkpoint, values: Iterable[Value]) -> Any:
        """Return the state of a checkpoint as the graph takes it: whole values, which no reducer merges."""
        data = {value.digest: value.data for value in values}
        state = visible_state(checkpoint.state)
        if missing := [key for key, digest in state.items() if digest not in data]:
            raise InputError(f"checkpoint {checkpoint.id}: the value of {missing[0]!r} is missing; expected all values")
        decoded = {key: decode(data[digest]) for key, digest in state.items()}
        if ROOT in decoded:
            return decoded[ROOT]
        merged = {key for key, kind in self._graph.channels.items() if isinstance(kind, BinaryOperatorAggregate)}
        return {key: Overwrite(value) if key in merged else value for key, value in decoded.items()}

    def _thread_of(self, id: str) -> str:
        for one in self._saver.list(None):
            if one.config["configurable"]["checkpoint_id"] == id and not one.config["configurable"]["checkpoint_ns"]:
                return str(one.config["configurable"]["thread_id"])
        raise no_checkpoint(id)


def _thread(thread: str, checkpoint: str | None = None) -> RunnableConfig:
    config: dict[str, Any] = {"thread_id": thread, "checkpoint_ns": ""}
    if checkpoint is not None:
        config["checkpoint_id"] = checkpoint
    return cast("RunnableConfig", {"configurable": config})


def _id(config: RunnableConfig) -> str:
    return str(config["configurable"]["checkpoint_id"])
