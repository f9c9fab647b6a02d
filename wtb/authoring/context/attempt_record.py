"""What an attempt is told of its case and of the attempt before it, and what it leaves besides its writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from wtb.authoring.boundary import report
from wtb.core.serialization.codec import decode


@dataclass(frozen=True)
class CaseView:
    """The case as a node may see it: without what is expected of it."""

    id: str
    tags: tuple[str, ...] = ()
    encoded: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @cached_property
    def input(self) -> dict[str, Any]:
        """The input by key; every attempt has its own copy."""
        return {name: decode(data) for name, data in self.encoded.items()}


@dataclass(frozen=True)
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


Hear = Callable[[str, Any], None]


@dataclass
class Record:
    """What an attempt left besides its writes; kept with its node run. Times are seconds since the epoch.

    `told` takes one thing at a time, as plain JSON, so that it can be told from another process, and hands it on to
    `hear`, which keeps calls and events; they are kept here where nobody hears. output: typed JSON.
    """

    usd: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    calls: list[dict[str, Any]] = field(default_factory=list)
    events: list[tuple[str, float, dict[str, Any]]] = field(default_factory=list)
    suggestions: list[str] = field(default_factory=list)
    output: str | None = None
    hear: Hear | None = field(default=None, repr=False)

    def told(self, what: str, said: Any) -> None:
        """Take what the attempt reports. Raises Malformed where it cannot be recorded as it is."""
        said = report(what, said)
        if what == "spent":
            usd, tokens_in, tokens_out = said
            self.usd += usd
            self.tokens_in += tokens_in
            self.tokens_out += tokens_out
        elif what == "suggestion":
            self.suggestions.append(said)
        elif what == "output":
            self.output = said
        elif self.hear is None and what == "call":
            self.calls.append(said)
        elif self.hear is None and what == "event":
            kind, at, data = said
            self.events.append((kind, at, data))
        if self.hear is not None:
            self.hear(what, said)
