"""The context that a node is given besides the state."""

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

from wtb.authoring.boundary import ANSWERED_AFTER_FAILURE, MOST_TOKENS, MOST_USD, check_key
from wtb.authoring.context.ask import Questioner
from wtb.authoring.context.attempt_record import Allowance, CaseView, Previous, Record
from wtb.authoring.context.surroundings import CheckpointTaker
from wtb.authoring.context.usage import load_prices, normalized_usage, price
from wtb.authoring.tools import Gate, ServerTools, Tool, ToolReport, Tools
from wtb.core.errors import BudgetReached, InputError, StateError
from wtb.core.provider_faults import ProviderFault, describe
from wtb.core.questions import Answer
from wtb.core.scoring.unknown_costs import Cause
from wtb.core.serialization.codec import decode, encode
from wtb.core.serialization.plain_json import storable
from wtb.core.values import Arguments, Json, Params


class FailedCalls:
    """The failed calls of one attempt, by request."""

    def __init__(self) -> None:
        self._faults: dict[str, ProviderFault] = {}

    def add(self, request: str, fault: ProviderFault) -> None:
        """Note that a provider failed a request."""
        self._faults[request] = fault

    def remove(self, request: str) -> None:
        """Note that a request was answered, which makes up for its failures."""
        self._faults.pop(request, None)

    def report(self, record: Record) -> None:
        """Report them, if there are any, for a node that has answered without their replies."""
        if self._faults:
            message = describe(next(iter(self._faults.values())))
            fields = {"level": "warning", "calls": len(self._faults), "message": message}
            record.report("event", (ANSWERED_AFTER_FAILURE, time.time(), fields))


@dataclass
class Context:
    """The surroundings of a node during one attempt, and all that it can do besides returning writes.

    A node whose function has a second parameter gets it. Everything that a node reports is kept with its node run.

    Attributes:
        case: The case: `id`, `tags` and `input`, a dict by key; not what is expected.
        node: The node's name.
        variant: The variant's name.
        repeat: The number of the repeat, from 0.
        visit: How often the node ran before on this path, from 0.
        attempt: The number of the attempt, from 1.
        seed: The sweep's seed.
        task: The key of its task, such as `work|2`, if the node has several in one step; else the node's name.
        params: Params of the workflow, overridden by the sweep.
        previous: What the failed attempt before this one left: `attempt`, `limit`, `error`, `output`, `suggestions`
            and `feedback`; None for the first.
        mode: `interactive` or `autonomous`, if the run says so.
        interactive: Whether people answer instead of models.

    Example:
        >>> from wtb import Context, Workflow
        >>> from wtb.testing import run_node
        >>> wf = Workflow("summary")
        >>> @wf.node
        ... def summarize(state, ctx: Context):
        ...     ctx.log("summarizing", words=len(state["text"].split()))
        ...     ctx.cost(usd=0.01)
        ...     return {"summary": state["text"][:9], "by": f"{ctx.variant}, attempt {ctx.attempt}"}
        >>> run_node(wf, "summarize", {"text": "A machine is enough."})
        {'summary': 'A machine', 'by': 'default, attempt 1'}
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
    params: Params = field(default_factory=lambda: MappingProxyType({}))
    previous: Previous | None = None
    record: Record = field(default_factory=Record, repr=False)
    resources_of: Callable[[], Any] = field(default=lambda: None, repr=False)
    workspace_of: Callable[[], Path] | None = field(default=None, repr=False)
    known_tools: Mapping[str, Tool] = field(default_factory=dict, repr=False)
    done: Sequence[ToolReport] = field(default=(), repr=False)
    tool_gate: Gate | None = field(default=None, repr=False)
    checkpoint_taker: CheckpointTaker | None = field(default=None, repr=False)
    fine: bool = field(default=False, repr=False)
    questioner: Questioner | None = field(default=None, repr=False)
    mode: str | None = None
    interactive: bool = False
    allowance: Allowance | None = field(default=None, repr=False)
    trace: str = field(default="", repr=False)
    unclocked_s: float = field(default=0.0, repr=False)  # that WTB took to load what is its own
    awaited_s: float | None = field(default=None, repr=False)  # of an async node: from its first step to its end
    lag_s: float | None = field(default=None, repr=False)  # how late its event loop was meanwhile, on average
    failed_calls: FailedCalls = field(default_factory=FailedCalls, init=False, repr=False)
    warned: set[str] = field(default_factory=set, repr=False)

    @cached_property
    def workspace(self) -> Path:
        """This attempt's own directory, made when first used. It starts with the files that came before.

        Raises:
            RuntimeError: If the context was made without one.
        """
        if self.workspace_of is None:
            raise RuntimeError("this context was made without a workspace")
        return self.workspace_of()

    @property
    def traceparent(self) -> str | None:
        """The span of this attempt as W3C Trace Context names it, for spans that the node makes itself.

        They join those of WTB where the same collector gets both. None if the context was made without a run.
        """
        from wtb.core.ids import traceparent_of  # which few nodes need

        return traceparent_of(self.trace) if self.trace else None

    @property
    def resources(self) -> Any:
        """Return what the workflow's `resources` factory made; the factory is called once in each process."""
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
        """Ask a person, and return the answer.

        If there is no answer yet, the attempt ends here, the execution waits without occupying a worker, and the node
        **starts again from its beginning** once somebody has answered. It must ask the same question again, or that
        counts as another one; so put what is expensive or random after the question, into an earlier node, into
        `ctx.tools` or into `ctx.checkpoint`.

        Args:
            question: The text that people read.
            options: What they can choose from: any texts but `approve`, `reject` and `modify`.
            context: What they should look at: anything that can be stored.
            timeout: Seconds after which `default` is the choice.
            default: One of the options.

        Returns:
            The answer: `action` (`approve` or `modify`), `choice` (one of the options), `feedback` (text), `by` and
            `given` (a value of any type).

        Raises:
            Rejected: If the person rejected it. If the node does not handle that, its cells are cancelled.
            Unanswered: If time is up and there is no default. The node is not tried again.

        Example:
            >>> from wtb import Workflow
            >>> from wtb.testing import run_node
            >>> wf = Workflow("letters")
            >>> @wf.node
            ... def review(state, ctx):
            ...     return {"sent": ctx.ask("Send it?", options=["send", "hold back"]).choice == "send"}
            >>> run_node(wf, "review", {}, answers=["send"])
            {'sent': True}
        """
        return self._questioner.ask(question, options=options, context=context, timeout=timeout, default=default)

    def respond(self, prompt: str, *, context: Any = None) -> Answer:
        """Have a person respond to a prompt with a text of their own; otherwise as `ask`.

        Args:
            prompt: What to respond to.
            context: What they should look at: anything that can be stored.

        Returns:
            The answer; the response is its `feedback`.
        """
        return self._questioner.ask(prompt, context=context, kind="action")

    @cached_property
    def _questioner(self) -> Questioner:
        return Questioner(self.task or self.node, nobody=True) if self.questioner is None else self.questioner

    @cached_property
    def tools(self) -> Tools:
        """The workflow's tools: `ctx.tools.search(q="x")` calls one, and its call is recorded."""
        return Tools(self.known_tools, self._called, self.done, self.tool_gate)

    def mcp(self, server: str) -> ServerTools:
        """Return the tools of an MCP server that the workflow uses: `ctx.mcp("files").read(path="a.txt")`.

        They are tools like others: each call is recorded, and replayed where those are.

        Args:
            server: Its name, as `wtb.integrations.mcp.use_server` or `mcp:` of the sweep file has it.

        Returns:
            ServerTools: its tools, to be called with arguments by name; in async nodes calls are awaited.

        Raises:
            InputError: If the workflow declares no such server.
        """
        return self.tools.of(server)

    def _called(self, call: ToolReport) -> None:
        self.record.report("tool", call)
        if self.fine and self.checkpoint_taker is not None:
            self.checkpoint_taker.take(None, "step")

    @cached_property
    def saved(self) -> dict[str, Any]:
        """Return what `checkpoint` saved last in this visit of the node, in an earlier attempt; {} at first."""
        return (
            {}
            if self.checkpoint_taker is None
            else {name: decode(encoded) for name, encoded in self.checkpoint_taker.saved.items()}
        )

    def checkpoint(self, name: str, /, *, every: float | None = None, **saved: Any) -> bool:
        """Save values, and the files of the workspace as they are now, so that the node need not begin anew.

        If the node starts again in this visit, it finds them in `ctx.saved` and in its workspace.

        Args:
            name: What to call the checkpoint.
            every: Seconds since the last one before another is taken; without it, each call takes one.
            **saved: Values that can be stored, by name.

        Returns:
            True if a checkpoint was taken.

        Raises:
            StateError: For a value that cannot be stored.
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
        # Without the variant, so that variants are compared on the same draws.
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
        """Add what was spent.

        Accounting never fails a node. If the model has no known price, or an amount is impossible, that amount counts
        as 0 and the cost of the node is unknown, with a warning.

        Args:
            usd: US dollars; without it, the price is that of the model's tokens in the price list.
            model: The model's name.
            tokens_in: Tokens of the prompt.
            tokens_out: Tokens of the response.

        Returns:
            The US dollars that were added.

        Raises:
            BudgetReached: If the attempt has now spent more than it may.
        """
        spent = self._count(usd, model, tokens_in, tokens_out)
        self._check_allowance(used_up=False)
        return spent

    def _count(self, usd: float | None, model: str | None, tokens_in: int, tokens_out: int) -> float:
        named = "ctx.cost" if model is None else storable(str(model), 200)
        used = normalized_usage(tokens_in, tokens_out, limit=MOST_TOKENS)
        spent, problems, is_known = 0.0, list(used.problems), used.whole
        if usd is not None:
            amount = _amount(usd)
            spent, is_known = amount or 0.0, amount is not None
            if amount is None:
                problems.append(f"{usd!r:.50} is no cost in US dollars")
        elif model is not None and used.whole:
            self.load_prices()
            try:
                spent = price(str(model), used.tokens_in, used.tokens_out)
            except InputError:
                self.unknown_cost("price", named)
        if not is_known:
            self.unknown_cost("usage", named)
        if problems:
            self.warn_once(f"{named}: {'; '.join(problems)}: it counts as 0")
        self.record.report("spent", [spent, used.tokens_in, used.tokens_out])
        return spent

    def unknown_cost(self, cause: Cause, what: str) -> None:
        """Record that the cost of this attempt is not known.

        The matrix then shows no cost for combinations with this variant, and does not rank them by cost.

        Args:
            cause: `price` (a model without a price), `usage` (a call without token counts) or `connection` (a
                connection that no recorded call explains).
            what: The model, or host and port.
        """
        self.record.report("unknown_cost", {"cause": cause, "what": storable(str(what), 200)})

    def warn_once(self, text: str) -> None:
        """Write a warning to the event log, once in each attempt.

        Args:
            text: The text.
        """
        if text not in self.warned:
            self.warned.add(text)
            self.log(text, level="warning")

    def load_prices(self) -> None:
        """Load the price list now. The time that this takes does not count as the node's."""
        self.unclocked_s += load_prices()

    def check_allowance(self) -> None:
        """Check before a costly call that the attempt may spend anything more.

        Raises:
            BudgetReached: If nothing is left.
        """
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
        cached: int | None = None,
    ) -> None:
        """Record a call of a model or a tool; its tokens and price are added as by `cost`.

        Args:
            model: The model's name.
            tool: The tool's name.
            prompt: What was sent: anything that can be stored.
            response: What came back: anything that can be stored.
            tokens_in: Tokens of the prompt.
            tokens_out: Tokens of the response.
            usd: US dollars; without it, the price is that of the tokens. As with `cost`, amounts that cannot be
                right count as 0 and make the cost unknown.
            duration_s: Seconds that it took.
            cached: How many of `tokens_in` the provider read from its cache; None if that is not known.

        Raises:
            StateError: If prompt or response cannot be stored.
            BudgetReached: If the attempt has now spent more than it may.
        """
        spent, used = 0.0, normalized_usage(tokens_in, tokens_out, cached, limit=MOST_TOKENS)
        # Counted before anything can raise: the money is spent, whether or not the rest can be stored.
        if usd is not None or tokens_in or tokens_out:
            spent = self._count(usd, model, tokens_in, tokens_out)
        call = {
            "model": None if model is None else str(model),
            "tool": None if tool is None else str(tool),
            "prompt": None if prompt is None else encode(prompt).decode(),
            "response": None if response is None else encode(response).decode(),
            "tokens_in": used.tokens_in,
            "tokens_out": used.tokens_out,
            "usd": spent,
            "duration_s": _duration(duration_s),
            "at": time.time(),
            "cached": None if cached is None else used.cached,
        }
        self.record.report("call", call)
        # Checked at the end, so that the call which went over it is kept, too.
        self._check_allowance(used_up=False)

    def log(self, message: str, *, level: str = "info", **fields: Any) -> None:
        """Write a line to the event log.

        Args:
            message: The text.
            level: `debug`, `info`, `warning` or `error`.
            **fields: Further values by name.
        """
        self._event("node.log", {"message": storable(str(message)), "level": level, **_words(fields)})

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report how far a long node is.

        Args:
            done: How much is done, in any unit.
            total: How much there is, in the same unit.
            note: A word on what it is doing.
        """
        whole = None if total is None else float(total)
        self._event("node.progress", {"done": float(done), "total": whole, "note": storable(str(note))})

    def metric(self, name: str, value: float) -> None:
        """Record a figure over time, such as memory or a loss.

        Args:
            name: The name of the series.
            value: Its value now.
        """
        self._event("node.metric", {"name": storable(name), "value": float(value)})

    def tell(self, name: str, data: Any) -> None:
        """Write an item of a stream to the event log.

        Args:
            name: The name of the stream.
            data: The item, as plain JSON.
        """
        self._event("node.stream", {"name": storable(str(name), 200), "data": data})

    def leave(self, *, output: Any = None, suggestion: str | None = None) -> None:
        """Leave something for the next attempt, which finds it in `ctx.previous`.

        Args:
            output: Any value that can be stored, such as a draft that was refused.
            suggestion: A text on what to do differently; several calls add up.
        """
        if output is not None:
            self.record.report("output", encode(output).decode())
        if suggestion is not None:
            self.record.report("suggestion", storable(str(suggestion)))

    def _event(self, kind: str, fields: dict[str, Json]) -> None:
        self.record.report("event", [kind, time.time(), fields])


_present: ContextVar[Context | None] = ContextVar("wtb_context", default=None)
_running: dict[int, Context] = {}


@contextmanager
def surrounding(context: Context) -> Iterator[None]:
    """Make a context the present one, which `current_context` finds in everything that the node calls."""
    token = _present.set(context)
    _running[id(context)] = context
    try:
        yield
    finally:
        del _running[id(context)]
        _present.reset(token)


def current_context() -> Context | None:
    """Find the context of the node that calls this, directly or in a function that it calls.

    A thread that a node started without a copy of its context variables has the context of the only attempt that runs
    in this process, and none if several do.

    Returns:
        The context; None outside of nodes.

    Example:
        >>> from wtb import Workflow, current_context
        >>> from wtb.testing import run_node
        >>> def where():
        ...     context = current_context()
        ...     return "outside" if context is None else context.node
        >>> wf = Workflow("places")
        >>> node = wf.node(lambda state: {"where": where()}, name="inside")
        >>> where(), run_node(wf, "inside", {})["where"]
        ('outside', 'inside')
    """
    context = _present.get()
    if context is None:
        # Of several attempts it is unknown which one a thread belongs to, and a wrong one would be charged.
        running = list(_running.values())
        return running[0] if len(running) == 1 else None
    return context


def _amount(usd: object) -> float | None:
    """Return US dollars; None for what cannot be an amount."""
    try:
        amount = float(usd)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return amount if 0 <= amount <= MOST_USD and not isinstance(usd, bool) else None


def _duration(seconds: object) -> float | None:
    """Return seconds; None for what cannot be a duration."""
    try:
        duration = float(seconds)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return duration if math.isfinite(duration) and duration >= 0 else None


def _words(fields: Arguments) -> dict[str, str | float | bool | None]:
    plain = (int, float, bool, type(None))
    return {
        name: argument
        if isinstance(argument, plain)
        else storable(argument if isinstance(argument, str) else repr(argument))
        for name, argument in fields.items()
    }
