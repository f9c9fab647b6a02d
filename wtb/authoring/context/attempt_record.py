"""What an attempt knows of its case and of the attempt before it, and what it leaves besides its writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from wtb.authoring.boundary import CallReport, CostReport, report
from wtb.core.classes.frozen import frozen
from wtb.core.errors import StateError
from wtb.core.mappings import State
from wtb.core.serialization.codec import decode
from wtb.core.values import Json


@frozen
class CaseView:
    """The case as a node may see it: without what is expected of it."""

    id: str
    tags: tuple[str, ...] = ()
    encoded: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @cached_property
    def input(self) -> State:
        """The input by key; every attempt has its own copy."""
        return {name: decode(data) for name, data in self.encoded.items()}


@frozen
class Undecoded:
    """A value as it is stored: its class may be user code, which runners do not import. data: typed JSON."""

    data: bytes


@frozen
class Previous:
    """What the attempt before this one left behind.

    attempt: its number, from 1. limit: how many attempts there may be. error: type and message of its failure.
    output: the update that was refused, or what it left with `ctx.leave(output=...)`.
    suggestions: what it left with `ctx.leave(suggestion=...)`. feedback: of a person, where there was any.
    """

    attempt: int
    limit: int
    error: str
    output: Any = None
    suggestions: tuple[str, ...] = ()
    feedback: str | None = None


def decoded(previous: Previous | None) -> Previous | None:
    """Return what an attempt left for the code of the next one; an output whose class is gone is left out."""
    if previous is None or not isinstance(previous.output, Undecoded):
        return previous
    try:
        return replace(previous, output=decode(previous.output.data))
    except StateError:
        return replace(previous, output=None)


OnEvent = Callable[[str, Any], None]
_MOST_REASONS = 20  # of an attempt whose cost is not known
_MOST_WRITTEN = 1000
_ONCE = {"unknown_cost": "unknown_costs", "connected": "connections", "written": "written"}  # kind -> where it is kept


@dataclass
class Record:
    """What an attempt left besides its writes; kept with its node run. Times are seconds since the epoch.

    `report` takes one thing at a time as plain JSON, so that it can come from another process, and passes it on to
    `on_event`. Without `on_event`, calls and events are kept here.

    output: typed JSON.
    unknown_costs: Reasons why the cost of the attempt is not known, each once.
    counts_calls: Whether it recorded what a call costs.
    connections: Host and port of each connection that it opened or used, each once.
    written: Files among the code that it or nodes before it wrote, each with its node, once.
    """

    usd: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    calls: list[CallReport] = field(default_factory=list)
    events: list[tuple[str, float, dict[str, Json]]] = field(default_factory=list)
    suggestions: list[str] = field(default_factory=list)
    output: str | None = None
    unknown_costs: list[CostReport] = field(default_factory=list)
    counts_calls: bool = False
    connections: list[str] = field(default_factory=list)
    written: list[tuple[str, str]] = field(default_factory=list)
    on_event: OnEvent | None = field(default=None, repr=False)

    def report(self, kind: str, data: Any) -> None:
        """Record what the attempt reports. Raises Malformed if it cannot be recorded as it is."""
        data = report(kind, data)
        if kind in _ONCE:
            reported: list[Any] = getattr(self, _ONCE[kind])
            if data in reported or len(reported) >= (_MOST_WRITTEN if kind == "written" else _MOST_REASONS):
                return
            reported.append(data)
        elif kind == "spent":
            self.counts_calls = True
            usd, tokens_in, tokens_out = data
            self.usd += usd
            self.tokens_in += tokens_in
            self.tokens_out += tokens_out
        elif kind == "suggestion":
            self.suggestions.append(data)
        elif kind == "output":
            self.output = data
        elif self.on_event is None and kind == "call":
            self.calls.append(data)
        elif self.on_event is None and kind == "event":
            name, at, fields = data
            self.events.append((name, at, fields))
        if self.on_event is not None:
            self.on_event(kind, data)
