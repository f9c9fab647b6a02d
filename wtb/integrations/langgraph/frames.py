"""Graphs under way: what LangGraph keeps of each, the tasks of its present step, and its store for memories.

A node that is a graph itself is stepped through in a frame of its own, inside the task of the outer frame, so that its
nodes are nodes like all others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from langgraph._internal._typing import MISSING
from langgraph.cache.base import BaseCache
from langgraph.channels.base import BaseChannel
from langgraph.channels.delta import DeltaChannel
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.managed.base import ManagedValueMapping
from langgraph.pregel._checkpoint import LATEST_VERSION
from langgraph.store.base import BaseStore, Op, PutOp, Result
from langgraph.store.memory import InMemoryStore

from wtb.core.frozen import frozen
from wtb.core.serialization.codec import decode, digest, encode
from wtb.core.tree.checkpoints import HIDDEN
from wtb.core.values import State, Value, Values, stored
from wtb.execution.engine.protocol import Task
from wtb.integrations.langgraph.nodes import Graph, GraphNode, full_name

Write = tuple[str, Any]
Channels = dict[str, BaseChannel[Any, Any, Any]]
IN_PLACE = "in place:"  # before a channel whose value a node changed: LangGraph has no channel with a colon like that


@dataclass
class Branch:
    """A task of a frame.

    Attributes:
        path: LangGraph's path of the task.
        node: The node that it runs.
        writes: Its writes once it is done, else None.
        inner: The graph that it steps through, if it does.
        stale: That graph has not run yet, and the state around it was changed since it was entered.
    """

    path: tuple[Any, ...]
    node: str
    writes: list[Write] | None = None
    inner: Frame | None = None
    stale: bool = False


@dataclass
class Frame:
    """A graph that is under way: everything LangGraph keeps of it, and the tasks of its present step.

    Attributes:
        graph: The graph.
        name: The nodes from the outermost graph to this one, as `sub.inner`.
        label: The same with the numbers of tasks, so that two frames of one graph differ.
        channels: Its channels.
        managed: Its managed values.
        versions: The version of each channel.
        seen: The versions of channels that each node has seen.
        step: The number of the present step.
        stop: The step at which LangGraph's limit of steps is reached.
        branches: The tasks of the present step.
        changed: Channels whose values are not those that the frame was made with.
        updated: Channels that the last step updated.
        edited: Channels that a person has edited since the graph was entered, if it has not run yet.
        stored: The frame was made from what is stored, and not just now on entering the graph.
    """

    graph: Graph
    name: str
    label: str
    channels: Channels
    managed: ManagedValueMapping
    versions: dict[str, int]
    seen: dict[str, dict[str, int]]
    step: int
    stop: int
    branches: list[Branch] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)
    updated: set[str] = field(default_factory=set)
    edited: set[str] = field(default_factory=set)
    stored: bool = False

    def node_name(self, node: str) -> str:
        return full_name(self.name, node)

    def leaves(self) -> Iterator[tuple[Frame, Branch]]:
        """Yield the tasks that are to be run, of this frame and of those in it."""
        for branch in self.branches:
            if branch.inner is not None:
                yield from branch.inner.leaves()
            elif branch.writes is None:
                yield self, branch

    def apply_in_place_changes(self) -> None:
        """Give channels the values that tasks of the present step changed in place, before their writes are applied."""
        for branch in self.branches:
            for channel, value in branch.writes or ():
                if channel.startswith(IN_PLACE):
                    name = channel.removeprefix(IN_PLACE)
                    self.channels[name] = _open_channel(self.graph.channels[name], value)
                    self.changed.add(name)

    def is_fresh(self) -> bool:
        """Return whether nothing of it has run yet."""
        began = self.step > 1 or any(branch.writes is not None for branch in self.branches)
        return not began and all(branch.inner is None or branch.inner.is_fresh() for branch in self.branches)

    def is_stale(self) -> bool:
        """Return whether a graph within it has to take in changes of the state around it."""
        return any(branch.inner is not None and (branch.stale or branch.inner.is_stale()) for branch in self.branches)

    def checkpoint(self) -> Any:
        """Return a checkpoint for LangGraph's functions. Its id only has to differ from step to step."""
        return {
            "v": LATEST_VERSION,
            "ts": "",
            "id": f"{self.step + 2:032x}",
            "channel_values": {},
            "channel_versions": self.versions,
            "versions_seen": self.seen,
            "updated_channels": None,
        }


def open_channels(graph: Graph, values: State) -> tuple[Channels, ManagedValueMapping]:
    """Open the channels of a graph with these values, and return them with its managed values."""
    managed: ManagedValueMapping = graph.builder.managed  # type: ignore[attr-defined]
    opened = {
        name: _open_channel(spec, values.get(name, MISSING))
        for name, spec in graph.channels.items()
        if name not in managed
    }
    return opened, dict(managed)


def _open_channel(spec: Any, content: Any) -> BaseChannel[Any, Any, Any]:
    channel: BaseChannel[Any, Any, Any] = spec.from_checkpoint(content)
    if isinstance(channel, UntrackedValue) and not is_missing(content):
        channel.update([content])  # it comes out of a checkpoint empty
    return channel


def channel_value(channel: BaseChannel[Any, Any, Any]) -> Any:
    """Return what must be stored so that a channel can be opened again; MISSING if it has nothing.

    An untracked value is stored, too, where it can be: the next step may run in another process.
    """
    if isinstance(channel, DeltaChannel | UntrackedValue):
        return channel.get() if channel.is_available() else MISSING
    return channel.checkpoint()


def is_missing(value: Any) -> bool:
    return value is MISSING


def path_to(root: Frame, frame: Frame) -> list[tuple[Frame, Branch]]:
    """Return the tasks that lead from the outermost frame to one within it, outermost first."""
    if root is frame:
        return []
    for branch in root.branches:
        if branch.inner is frame:
            return [(root, branch)]
        if branch.inner is not None and (line := path_to(branch.inner, frame)):
            return [(root, branch), *line]
    return []


STORE_PREFIX = HIDDEN + "store "


class KeptStore(InMemoryStore):
    """A store for one attempt, with what the state keeps of it. `changed` has the items it put or deleted."""

    def __init__(self, origin: InMemoryStore, state: Values) -> None:
        super().__init__(index=origin.index_config)
        self.changed: dict[tuple[tuple[str, ...], str], None] = {}
        for space, documents in origin._data.items():  # what the graph's author put there
            for key, document in documents.items():
                # Copied, since a node may change a value in place, and the original belongs to all cells.
                self._set(space, key, deepcopy(document.value), origin._vectors.get(space, {}).get(key))
        for name, state_value in state.items():
            if name.startswith(STORE_PREFIX):
                space, key, value, vectors = decode(state_value.data)
                self._set(tuple(space), key, value, vectors)

    def _set(self, space: tuple[str, ...], key: str, value: Any, vectors: Any) -> None:
        """Put an item as it was, without asking for its embeddings again."""
        self._apply_put_ops({(space, key): PutOp(space, key, value)})
        if vectors:
            self._vectors[space][key] = dict(vectors)

    def change(self, space: tuple[str, ...], key: str) -> Any:
        """Return the stored form of an item: its place, its value (None if it was deleted) and its embeddings."""
        document, vectors = self._data[space].get(key), self._vectors[space].get(key)
        return [space, key, None if document is None else document.value, dict(vectors) if vectors else None]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        self._note(ops)
        return super().batch(ops)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        self._note(ops)
        return await super().abatch(ops)

    def _note(self, ops: Sequence[Op]) -> None:
        self.changed |= {(op.namespace, op.key): None for op in ops if isinstance(op, PutOp)}


def for_attempt(store: BaseStore | None, state: Values) -> BaseStore | None:
    # No subclass, which may hold more than what is copied.
    return KeptStore(store, state) if type(store) is InMemoryStore else store


def changes_of(store: BaseStore | None) -> dict[str, Value]:
    """Return the changes of an attempt to the store as writes. Raises StateError for what cannot be stored."""
    changed = [store.change(*place) for place in store.changed] if isinstance(store, KeptStore) else []
    return {
        STORE_PREFIX + json.dumps([*it[0], it[1]]): stored("what was put into the store as", it[1], it)
        for it in changed
    }


def collect_store_values(state: Values, writes: Iterable[Values]) -> dict[str, Value]:
    """Collect what the state keeps of the store after these writes."""
    # Deleted items are kept as well, with the value None, so that they also hide what the graph's author put there.
    after = {key: value for key, value in state.items() if key.startswith(STORE_PREFIX)}
    for written in writes:
        after |= {key: value for key, value in written.items() if key.startswith(STORE_PREFIX)}
    return after


def without_store(values: Values) -> Values:
    return {key: value for key, value in values.items() if not key.startswith(STORE_PREFIX)}


@frozen
class Cached:
    """The place of one node's result in the cache that the graph was compiled with, and its `ttl` in seconds."""

    cache: BaseCache[Any]
    space: tuple[str, ...]
    key: str
    ttl: int | None

    @classmethod
    def of(cls, node: GraphNode, graph: Graph, task: Task, node_input: Any) -> Cached | None:
        """Return the place for a task; None if the node has no cache policy, or the graph no cache."""
        policy = node.own.cache_policy
        if policy is None or graph.cache is None:
            return None
        variant = node.variants[task.variant]
        params = digest(encode(dict(variant.params)))
        # LangGraph's own key knows no variants, params or repeats, which must not share results.
        space = ("wtb", node.name, task.variant, node.fingerprint(task.variant), params, str(task.root.repeat))
        name = policy.key_func(node_input)
        return cls(graph.cache, space, digest(name.encode() if isinstance(name, str) else bytes(name)), policy.ttl)

    def load(self) -> tuple[list[Write], dict[str, Value]] | None:
        """Load the writes of the node and its changes to the store; None if nothing is cached."""
        cached = self.cache.get([(self.space, self.key)])
        if not cached:
            return None
        writes, changes = next(iter(cached.values()))
        return [(channel, value) for channel, value in writes], {key: Value.of(decode(it)) for key, it in changes}

    def keep(self, writes: list[Write], changes: Values) -> None:
        stored = [(key, value.data) for key, value in changes.items()]
        self.cache.set({(self.space, self.key): ((writes, stored), self.ttl)})
