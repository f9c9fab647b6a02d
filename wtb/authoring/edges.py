"""Edges and branches between nodes, and what reads them sees of a workflow. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from wtb.authoring.nodes import Node
from wtb.core.classes.frozen import frozen

END: Final = "__end__"


@frozen
class Edge:
    """From all of `sources` (a join waits for each) to `target`; taken when `when(state)` is true.

    Unconditional edges are all followed. Of the conditional ones of a node the true one of highest priority
    is followed; when none is true, the one with `default`.
    """

    sources: tuple[str, ...]
    target: str
    when: Callable[[Any], Any] | None = None
    priority: int = 0
    default: bool = False


@frozen
class Branch:
    """From `source` to `targets[by(state)]`, or to `default` when that key is not there."""

    source: str
    targets: Mapping[str, str]
    by: Callable[[Any], Any]
    default: str | None = None


class Structure(Protocol):
    """A workflow as the functions over its graph see it."""

    name: str
    version: str
    nodes: dict[str, Node]
    edges: list[Edge]
    branches: list[Branch]
    is_open: bool

    @property
    def entries(self) -> Sequence[str]: ...
