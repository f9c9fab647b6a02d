"""What a node is given besides the state."""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from wtb.authoring.boundary import MOST_TOKENS, MOST_USD, check_key
from wtb.authoring.context.allowance import Allowance
from wtb.authoring.context.ask import Questioner
from wtb.authoring.context.attempt_record import CaseView, Previous, Record
from wtb.authoring.context.checkpoints import CheckpointTaker
from wtb.authoring.context.prices import load_prices, price
from wtb.authoring.tools import Tool, Tools
from wtb.core.errors import BudgetReached, StateError
from wtb.core.questions import Answer
from wtb.core.serialization.codec import decode, encode
from wtb.core.serialization.plain_json import storable


@dataclass
class Context:
    """The surroundings of one attempt of a node run.

    case, repeat, node, variant: which one this is. visit: how often the node ran before on this path, from 0.
    task: the key of its task, such as `work|2` where the node has several in one step, else the node. attempt: from 1.
    params: of the workflow, overridden by the sweep. previous: the failed attempt before this one. interactive: people
    answer in place of models. mode: what the run says of that, where it does.
    """

    case: CaseView
    node: str
    variant: str
    repeat: int = 0
    visit: int = 0
    attempt: int = 1
    draws: int | None = field(default=None, repr=False)
    seed: int = 0
    task: str | None = field(default=None, repr=False)
    params: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    previous: Previous | None = None
    record: Record = field(default_factory=Record, repr=False)
    resources_of: Callable[[], Any] = field(default=lambda: None, repr=False)
    workspace_of: Callable[[], Path] | None = field(default=None, repr=False)
    known_tools: Mapping[str, Tool] = field(default_factory=dict, repr=False)
    done: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    checkpoint_taker: CheckpointTaker | None = field(default=None, repr=False)
    fine: bool = field(default=False, repr=False)
    questioner: Questioner | None = field(default=None, repr=False)
    mode: str | None = None
    interactive: bool = False
    allowance: Allowance | None = field(default=None, repr=False)
    unclocked_s: float = field(default=0.0, repr=False)  # that WTB took to load what is its own

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

    def ask(
        self,
        question: str,
        *,
        options: Sequence[str] = (),
        context: Any = None,
        timeout: float | None = None,
        default: str | None = None,
    ) -> Answer:
        """Ask a person, and return the answer: `action` (approve or modify), `choice` of the options, `feedback`, `by`
        and `given` (a value that came along, of any type).

        Where there is no answer yet the attempt ends here, the execution waits without holding a worker, and the node
        **starts again from its beginning** once somebody has answered: the same question must be asked again, or it
        counts as another one, so keep what is expensive or random behind it, in an earlier node, in `ctx.tools` or in
        `ctx.checkpoint`. options: any texts but approve, reject and modify. context: what to look at, anything that can
        be stored. timeout: seconds after which `default` (one of the options) is the choice.

        Raises Rejected where the person said no, and Unanswered (never tried again) where time is up and there is no
        default; a Rejected that the node does not handle cancels its cells.
        """
        return self._questioner.ask(question, options=options, context=context, timeout=timeout, default=default)

    def respond(self, prompt: str, *, context: Any = None) -> Answer:
        """Have a person respond to a prompt, as `ask` does; the response is the answer's `feedback`."""
        return self._questioner.ask(prompt, context=context, kind="action")

    @cached_property
    def _questioner(self) -> Questioner:
        return Questioner(self.task or self.node, nobody=True) if self.questioner is None else self.questioner

    @cached_property
    def tools(self) -> Tools:
        """The workflow's tools: `ctx.tools.search(q="x")` calls one, and its call is recorded."""
        return Tools(self.known_tools, self._called, self.done)

    def _called(self, said: Mapping[str, Any]) -> None:
        self.record.report("tool", said)
        if self.fine and self.checkpoint_taker is not None:
            self.checkpoint_taker.take(None, "step")

    @cached_property
    def saved(self) -> dict[str, Any]:
        """What `checkpoint` saved last in this visit of the node, by an attempt before this one; {} at first."""
        return (
            {}
            if self.checkpoint_taker is None
            else {name: decode(data) for name, data in self.checkpoint_taker.saved.items()}
        )

    def checkpoint(self, name: str, /, *, every: float | None = None, **saved: Any) -> bool:
        """Keep `saved` and the files of the workspace as they are now, so that the node need not begin anew.

        Where the node starts again in this visit, it finds them in `ctx.saved` and its workspace. every: seconds
        since the last one before another is taken. Returns whether it was taken. Raises StateError for what cannot be
        stored.
        """
        if self.checkpoint_taker is None:
            raise RuntimeError("this context was made without a workspace, so it takes no checkpoints")
        self.saved  # noqa: B018 - what was found at the start stays what it was
        if every is not None and not self.checkpoint_taker.is_due(every):
            return False
        stored = {}
        for key, value in saved.items():
            check_key(key, f"checkpoint {name!r:.100}")
            try:
                stored[key] = encode(value)
            except StateError as error:
                raise StateError(f"checkpoint {name!r}, key {key!r} cannot be stored: {error}") from error
        self.checkpoint_taker.take(storable(str(name), 200), "manual" if every is None else "time", stored)
        return True

    @cached_property
    def rng(self) -> random.Random:
        """Random numbers that depend on the sweep's seed, case, repeat, node, visit and attempt, not on the variant.

        Each task of a node that has several in one step draws its own.
        An attempt that starts again with an answer has those of the one that asked.
        """
        words = (self.seed, self.case.id, self.repeat, self.task or self.node, self.visit, self.draws or self.attempt)
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

        Raises ValueError for amounts that cannot be, BudgetReached where the attempt has now spent more than it may.
        """
        spent = self._count(usd, model, tokens_in, tokens_out)
        self._check_allowance(used_up=False)
        return spent

    def _count(self, usd: float | None, model: str | None, tokens_in: int, tokens_out: int) -> float:
        if usd is None and model is not None:
            self.load_prices()
        spent = price(model, tokens_in, tokens_out) if usd is None else float(usd)
        if not math.isfinite(spent) or not 0 <= spent <= MOST_USD:
            raise ValueError(f"a cost of {spent} US dollars; expected a number from 0 to {MOST_USD:,.0f}")
        for name, tokens in (("tokens_in", int(tokens_in)), ("tokens_out", int(tokens_out))):
            if not 0 <= tokens <= MOST_TOKENS:
                raise ValueError(f"{name} is {tokens:,}; expected a number from 0 to {MOST_TOKENS:,}")
        self.record.report("spent", [spent, int(tokens_in), int(tokens_out)])
        return spent

    def load_prices(self) -> None:
        """Have the price list loaded; where that takes time, it is no time of the node's."""
        self.unclocked_s += load_prices()

    def check_allowance(self) -> None:
        """Raises BudgetReached where nothing is left of what the attempt may spend. Ask it before a costly call."""
        self._check_allowance(used_up=True)

    def _check_allowance(self, *, used_up: bool) -> None:
        if self.allowance is None:
            return
        record = self.record
        kind = self.allowance.exceeded(record.usd, record.tokens_in + record.tokens_out, used_up=used_up)
        if kind is not None:
            spent = f"{record.usd:g}" if kind == "usd" else str(record.tokens_in + record.tokens_out)
            raise BudgetReached(f"it has spent {spent} and may spend {self.allowance.words(kind)}")

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
            spent = self._count(usd, model, tokens_in, tokens_out)
        said = {
            "model": None if model is None else str(model),
            "tool": None if tool is None else str(tool),
            "prompt": None if prompt is None else encode(prompt).decode(),
            "response": None if response is None else encode(response).decode(),
            "tokens_in": int(tokens_in),
            "tokens_out": int(tokens_out),
            "usd": spent,
            "duration_s": None if duration_s is None else _duration(duration_s),
            "at": time.time(),
        }
        self.record.report("call", said)
        self._check_allowance(used_up=False)  # last: the call that went over it is kept, too

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

    def tell(self, name: str, data: Any) -> None:
        """Write what a stream gives to the event log, under a name of its own. data: plain JSON."""
        self._event("node.stream", {"name": storable(str(name), 200), "data": data})

    def leave(self, *, output: Any = None, suggestion: str | None = None) -> None:
        """Leave something for the next attempt, which finds it in `ctx.previous`."""
        if output is not None:
            self.record.report("output", encode(output).decode())
        if suggestion is not None:
            self.record.report("suggestion", storable(str(suggestion)))

    def _event(self, kind: str, data: dict[str, Any]) -> None:
        self.record.report("event", [kind, time.time(), data])


_present: ContextVar[Context | None] = ContextVar("wtb_context", default=None)
_running: dict[int, Context] = {}


@contextmanager
def surrounding(context: Context) -> Iterator[None]:
    """While a node is called: what it calls finds its context with `present_context`."""
    token = _present.set(context)
    _running[id(context)] = context
    try:
        yield
    finally:
        del _running[id(context)]
        _present.reset(token)


def present_context() -> Context | None:
    """The context of the node that is calling; None outside of nodes.

    A thread that a node started without a copy of its context variables has the context of the only attempt that
    runs in this process, and none where several do.
    """
    context = _present.get()
    if context is None:
        running = list(_running.values())
        return running[0] if len(running) == 1 else None
    return context


def _duration(seconds: float) -> float:
    duration = float(seconds)
    if not math.isfinite(duration) or duration < 0:
        raise ValueError(f"duration_s is {seconds!r:.50}; expected seconds from 0 on")
    return duration


def _words(fields: Mapping[str, Any]) -> dict[str, Any]:
    plain = (int, float, bool, type(None))
    return {
        name: value if isinstance(value, plain) else storable(value if isinstance(value, str) else repr(value))
        for name, value in fields.items()
    }
