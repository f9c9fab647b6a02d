"""What a node is given besides the state."""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from wtb.codec import decode, encode
from wtb.plain import storable
from wtb.prices import price


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

    `told` takes down one thing at a time, as plain JSON, so that it can be told from another process, and hands it on
    to `hear`. output: typed JSON.
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
        if what == "spent":
            usd, tokens_in, tokens_out = said
            self.usd += usd
            self.tokens_in += tokens_in
            self.tokens_out += tokens_out
        elif what == "call":
            self.calls.append(said)
        elif what == "event":
            kind, at, data = said
            self.events.append((kind, at, data))
        elif what == "suggestion":
            self.suggestions.append(said)
        elif what == "output":
            self.output = said
        if self.hear is not None:
            self.hear(what, said)


@dataclass
class Context:
    """The surroundings of one attempt of a node run.

    case, repeat, node, variant: which one this is. visit: how often the node ran before on this path, from 0.
    attempt: from 1. params: of the workflow, overridden by the sweep. previous: the failed attempt before this one.
    """

    case: CaseView
    node: str
    variant: str
    repeat: int = 0
    visit: int = 0
    attempt: int = 1
    seed: int = 0
    params: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    previous: Previous | None = None
    record: Record = field(default_factory=Record, repr=False)
    resources_of: Callable[[], Any] = field(default=lambda: None, repr=False)
    workspace_of: Callable[[], Path] | None = field(default=None, repr=False)

    @cached_property
    def workspace(self) -> Path:
        """This attempt's own directory, made when first asked for. It starts with the files that came before."""
        if self.workspace_of is None:
            raise RuntimeError("this context was made without a workspace")
        return self.workspace_of()

    @property
    def resources(self) -> Any:
        """What the workflow's `resources` factory returned; it is called once in each process."""
        return self.resources_of()

    @cached_property
    def rng(self) -> random.Random:
        """Random numbers that depend on the sweep's seed, case, repeat, node, visit and attempt, not on the variant."""
        words = (self.seed, self.case.id, self.repeat, self.node, self.visit, self.attempt)
        return random.Random(hashlib.sha256(repr(words).encode()).digest())

    def cost(
        self,
        *,
        usd: float | None = None,
        model: str | None = None,
        tokens_in: int = 0,
        tokens_out: int = 0,
    ) -> float:
        """Add what was spent; returns the US dollars counted. Without `usd` it is priced offline from the model.

        Raises ValueError where it is no finite number.
        """
        spent = price(model, tokens_in, tokens_out) if usd is None else float(usd)
        if not math.isfinite(spent):
            raise ValueError(f"a cost of {spent} US dollars; expected a finite number")
        self.record.told("spent", [spent, int(tokens_in), int(tokens_out)])
        return spent

    def call(
        self,
        *,
        model: str | None = None,
        tool: str | None = None,
        prompt: Any = None,
        response: Any = None,
        tokens_in: int = 0,
        tokens_out: int = 0,
        usd: float | None = None,
        duration_s: float | None = None,
    ) -> None:
        """Keep a model or tool call with its node run; its tokens and price are added as by `cost`.

        Raises StateError where prompt or response cannot be stored.
        """
        spent = 0.0
        if usd is not None or tokens_in or tokens_out:  # first: it was spent, whether or not the rest can be stored
            spent = self.cost(usd=usd, model=model, tokens_in=tokens_in, tokens_out=tokens_out)
        said = {
            "model": None if model is None else storable(model),
            "tool": None if tool is None else storable(tool),
            "prompt": None if prompt is None else encode(prompt).decode(),
            "response": None if response is None else encode(response).decode(),
            "tokens_in": int(tokens_in),
            "tokens_out": int(tokens_out),
            "usd": spent,
            "duration_s": None if duration_s is None else float(duration_s),
            "at": time.time(),
        }
        self.record.told("call", said)

    def log(self, message: str, *, level: str = "info", **fields: Any) -> None:
        """Write a line to the event log. level: debug, info, warning or error."""
        self._event("node.log", {"message": storable(str(message)), "level": level, **_words(fields)})

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far a long node is."""
        whole = None if total is None else float(total)
        self._event("node.progress", {"done": float(done), "total": whole, "note": storable(str(note))})

    def metric(self, name: str, value: float) -> None:
        """Record a figure over time, such as memory or a loss."""
        self._event("node.metric", {"name": storable(name), "value": float(value)})

    def leave(self, *, output: Any = None, suggestion: str | None = None) -> None:
        """Leave something for the next attempt, which finds it in `ctx.previous`."""
        if output is not None:
            self.record.told("output", encode(output).decode())
        if suggestion is not None:
            self.record.told("suggestion", storable(str(suggestion)))

    def _event(self, kind: str, data: dict[str, Any]) -> None:
        self.record.told("event", [kind, time.time(), data])


def _words(fields: Mapping[str, Any]) -> dict[str, Any]:
    plain = (int, float, bool, type(None))
    return {
        name: value if isinstance(value, plain) else storable(value if isinstance(value, str) else repr(value))
        for name, value in fields.items()
    }
