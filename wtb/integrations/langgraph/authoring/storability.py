"""What of a graph's state cannot be stored, found before anything runs."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import types
import typing
from collections.abc import Iterator
from typing import Any

from langgraph.channels.untracked_value import UntrackedValue

from wtb.authoring.state_schema import is_typed_dict, unqualified
from wtb.core.serialization.type_tags import TAG_OF
from wtb.integrations.langgraph.authoring.nodes import Graph

_PLAIN: set[Any] = {dict, list, str, int, float, bool, type(None), object, Any, types.UnionType}
_SHAPES = {  # abstract types whose usual values can be stored
    collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Mapping,
    collections.abc.MutableMapping, collections.abc.Set, collections.abc.MutableSet,
    collections.abc.Collection, collections.abc.Iterable, collections.abc.Hashable,
}  # fmt: skip


def unstorable(name: str, graph: Graph) -> Iterator[str]:
    """The keys of a graph's state whose type WTB cannot store, in words. name: of the graph, where it is in another."""
    where = f"graph {name!r}: " if name else ""
    for key, channel in graph.builder.channels.items():  # type: ignore[attr-defined]
        if any(sign in key for sign in "|~"):
            yield f"{where}state key {key!r}: expected a name without '|' and '~'"
        if isinstance(channel, UntrackedValue):  # kept where it can be
            continue
        if (kind := _unstorable_class(getattr(channel, "typ", Any), set())) is not None:
            yield (
                f"{where}state key {key!r} holds {kind.__module__}.{kind.__qualname__}, which cannot be stored: keep "
                f"plain data in the state (or a dataclass or pydantic model), and make the object in the node"
            )


def _unstorable_class(kind: Any, seen: set[int]) -> Any:
    """The class in a type that cannot be stored, where it is certain that it cannot."""
    if id(kind) in seen:
        return None
    seen.add(id(kind))
    kind, _, _ = unqualified(kind)
    origin = typing.get_origin(kind)
    if origin is collections.abc.Callable:
        return collections.abc.Callable
    if origin is typing.Literal:
        return None
    if origin is not None:
        parts = typing.get_args(kind)
        inside = next((found for part in parts if (found := _unstorable_class(part, seen)) is not None), None)
        return inside or (_unstorable_class(origin, seen) if isinstance(origin, type) else None)
    if not isinstance(kind, type) or kind in _PLAIN or kind in TAG_OF or kind in _SHAPES:
        return None
    if is_typed_dict(kind) or dataclasses.is_dataclass(kind):
        return next((found for part in _fields(kind) if (found := _unstorable_class(part, seen)) is not None), None)
    if issubclass(kind, enum.Enum):
        return None
    if hasattr(kind, "model_fields") or kind.__module__.partition(".")[0] == "numpy":
        return None
    # Others may have subclasses that can be stored: a protocol, an abstract class, the base of pydantic models.
    is_open = getattr(kind, "_is_protocol", False) or bool(getattr(kind, "__abstractmethods__", ()))
    return None if is_open or kind.__module__ in ("datetime", "zoneinfo", "pathlib") else kind


def _fields(shape: type) -> list[Any]:
    """The types of the fields of a TypedDict or dataclass; none where a name in them cannot be resolved."""
    try:
        return list(typing.get_type_hints(shape).values())
    except (NameError, TypeError):
        return []
