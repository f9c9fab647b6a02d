"""The view of an attempt: its case, the attempt before it and its budget; and the record of its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from wtb.authoring.boundary import CallReport, CostReport, report
from wtb.core.errors import StateError
from wtb.core.frozen import frozen
from wtb.core.serialization.codec import decode
from wtb.core.values import Json, State


@frozen
class CaseView:
    """The case as a node may see it: without what is expected of it."""

    id: str
    tags: tuple[str, ...] = ()
    encoded: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @cached_property
    def input(self) -> State:
        """Return the input by key; every attempt has its own copy."""
        return {name: decode(encoded) for name, encoded in self.encoded.items()}


@frozen
class Undecoded:
    """A value as it is stored, in typed JSON. Its class may be user code, which runners do not import."""

    data: bytes


@frozen
class Previous:
    """The attempt before this one, as the next attempt sees it.

    Attributes:
        attempt: Its number, from 1.
        limit: How many attempts there may be.
        error: The type and message of its failure.
        output: The update that was refused, or the value that it left with `ctx.leave(output=...)`.
        suggestions: The texts that it left with `ctx.leave(suggestion=...)`.
        feedback: The feedback of a person, if there was any.
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
    """Everything that an attempt left besides its writes. Times are seconds since the epoch.

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

    def report(self, kind: str, content: Any) -> None:
        """Record what the attempt reports. Raises Malformed if it cannot be recorded as it is."""
        content = report(kind, content)
        if kind in _ONCE:
            reported: list[Any] = getattr(self, _ONCE[kind])
            if content in reported or len(reported) >= (_MOST_WRITTEN if kind == "written" else _MOST_REASONS):
                return
            reported.append(content)
        elif kind == "spent":
            self.counts_calls = True
            usd, tokens_in, tokens_out = content
            self.usd += usd
            self.tokens_in += tokens_in
            self.tokens_out += tokens_out
        elif kind == "suggestion":
            self.suggestions.append(content)
        elif kind == "output":
            self.output = content
        elif self.on_event is None and kind == "call":
            self.calls.append(content)
        elif self.on_event is None and kind == "event":
            name, at, fields = content
            self.events.append((name, at, fields))
        if self.on_event is not None:
            self.on_event(kind, content)


Kind = Literal["usd", "tokens"]
_ROUNDING = 1e-9  # of sums of money


@frozen(slots=True)
class Allowance:
    """The most that an attempt may spend; None is no limit.

    Attributes:
        usd: US dollars.
        tokens: Tokens.
        declared: The kinds whose limit the node itself declares. The other limits come from a budget.
    """

    usd: float | None = None
    tokens: float | None = None
    declared: tuple[Kind, ...] = ()

    def exceeded(self, usd: float, tokens: float, *, used_up: bool = False) -> Kind | None:
        """Return the kind whose limit was exceeded, or, with `used_up`, reached; None if none was."""
        for kind, limit, spent in (("usd", self.usd, usd), ("tokens", self.tokens, tokens)):
            if limit is not None:
                # Prices are summed as floats, so that a sum of exact prices may exceed its limit by a rounding error.
                rounding = _ROUNDING * max(1.0, limit)
                if spent > limit + rounding or (used_up and spent >= limit - rounding):
                    return kind  # type: ignore[return-value]  # both are one
        return None

    def words(self, kind: Kind) -> str:
        """Return the allowed amount of a kind and the origin of the limit, in words."""
        limit = self.usd if kind == "usd" else self.tokens
        amount = f"{limit:g} US dollars" if kind == "usd" else f"{limit:.0f} tokens"
        if kind in self.declared:
            return f"{amount} (its max_{kind})"
        return f"{amount}, which is all that its budget has left"
