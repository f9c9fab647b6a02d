"""Edges and branches between nodes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

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
