"""Graphs under way: what LangGraph keeps of each, and the tasks of its present step.

A node that is a graph itself is stepped through in a frame of its own, inside the task of the outer frame, so that its
nodes are nodes like all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from langgraph._internal._typing import MISSING
from langgraph.channels.base import BaseChannel
from langgraph.channels.delta import DeltaChannel
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.managed.base import ManagedValueMapping
from langgraph.pregel._checkpoint import LATEST_VERSION

from wtb.core.mappings import State
from wtb.integrations.langgraph.authoring.nodes import Graph, full_name

Write = tuple[str, Any]
Channels = dict[str, BaseChannel[Any, Any, Any]]
IN_PLACE = "in place:"  # before a channel whose value a node changed: LangGraph has no channel with a colon like that


@dataclass
class Branch:
    """A task of a frame. path: of LangGraph. writes: once it is done. inner: the graph that it steps through.

    stale: that graph has not run yet, and the state around it was changed since it was entered.
    """

    path: tuple[Any, ...]
    node: str
    writes: list[Write] | None = None
    inner: Frame | None = None
    stale: bool = False


@dataclass
class Frame:
    """A graph that is under way: what LangGraph keeps of it, and the tasks of its present step.

    name: nodes from the outermost graph to this one, as `sub.inner`; label: the same with the numbers of tasks, so that
    two frames of one graph differ. changed: channels whose values are not those that the frame was made with.
    updated: by the last step. edited: by a person since it was entered, where it has not run yet. stored: it was made
    from what is stored, and is not one that was entered just now.
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
        """The tasks that are to be run, of this frame and of those in it."""
        for branch in self.branches:
            if branch.inner is not None:
                yield from branch.inner.leaves()
            elif branch.writes is None:
                yield self, branch

    def take_over_changes(self) -> None:
        """Give channels the values that tasks of the present step changed in place, before their writes are applied."""
        for branch in self.branches:
            for channel, value in branch.writes or ():
                if channel.startswith(IN_PLACE):
                    name = channel.removeprefix(IN_PLACE)
                    self.channels[name] = _open_channel(self.graph.channels[name], value)
                    self.changed.add(name)

    def is_fresh(self) -> bool:
        """Whether nothing of it has run yet."""
        began = self.step > 1 or any(branch.writes is not None for branch in self.branches)
        return not began and all(branch.inner is None or branch.inner.is_fresh() for branch in self.branches)

    def is_stale(self) -> bool:
        """Whether a graph within it has to take in what was changed around it."""
        return any(branch.inner is not None and (branch.stale or branch.inner.is_stale()) for branch in self.branches)

    def checkpoint(self) -> Any:
        """What LangGraph's functions take for a checkpoint. Its id only has to differ from step to step."""
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
    """The channels of a graph with these values, and its managed values."""
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
    """What has to be stored of a channel so that it can be opened again; MISSING where it has nothing.

    An untracked value is stored, too, where it can be: the next step may run in another process.
    """
    if isinstance(channel, DeltaChannel | UntrackedValue):
        return channel.get() if channel.is_available() else MISSING
    return channel.checkpoint()


def is_missing(value: Any) -> bool:
    return value is MISSING


def path_to(root: Frame, frame: Frame) -> list[tuple[Frame, Branch]]:
    """The tasks that lead from the outermost frame to one within it, outermost first."""
    if root is frame:
        return []
    for branch in root.branches:
        if branch.inner is frame:
            return [(root, branch)]
        if branch.inner is not None and (line := path_to(branch.inner, frame)):
            return [(root, branch), *line]
    return []
