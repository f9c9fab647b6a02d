"""Recorded clients: what a node calls on them is kept with its node run, and passed on unchanged."""

from __future__ import annotations

import hashlib
import inspect
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any, TypedDict, TypeVar, cast

from wtb.authoring.context.node_context import Context, current_context
from wtb.authoring.context.usage import Usage, price
from wtb.core.errors import InputError
from wtb.core.failures import Failure
from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import storable
from wtb.core.values import Arguments
from wtb.integrations.models.responses import Reply, is_left_out, reply, request_of
from wtb.integrations.models.streams import Watched, WatchedManager, WatchedResponse

Client = TypeVar("Client")
Path = tuple[str, ...]
Prices = Mapping[str, tuple[float, float]]

# Resources whose methods call a model, and those methods.
_PATHS = ("chat.completions", "beta.chat.completions", "completions", "embeddings", "responses", "messages")
_RESOURCES: frozenset[Path] = frozenset(tuple(path.split(".")) for path in (*_PATHS, "beta.messages"))
_METHODS = ("create", "parse", "stream")
_RAW = ("with_raw_response", "with_streaming_response")
_ANOTHER_CLIENT = ("with_options", "copy")
_WITHOUT_USAGE: set[tuple[str | None, str]] = set()  # servers and models that reject `stream_options`


def record_calls(client: Client, *, prices: Prices | None = None) -> Client:
    """Wrap a client so that its model calls are recorded with the node that makes them: prompt, answer, tokens, cost.

    Args:
        client: One of the shape of `openai.OpenAI` (chat completions, completions, responses, embeddings) or
            `anthropic.Anthropic` (messages), sync or async.
        prices: By model, US dollars for a million tokens in and out, if the price list does not know the model.

    Returns:
        A client like `client`. Everything but these calls passes through, and so do calls outside of nodes.

    Raises:
        InputError: For a client that has none of these calls, and for prices that are no two amounts each.

    Example:
        >>> from types import SimpleNamespace
        >>> from wtb.integrations.models import record_calls
        >>> answer = SimpleNamespace(model="tiny", content=[SimpleNamespace(type="text", text="42")], usage=None)
        >>> client = SimpleNamespace(messages=SimpleNamespace(create=lambda **options: answer))
        >>> recorded = record_calls(client, prices={"tiny": (0.1, 0.4)})
        >>> recorded.messages.create(model="tiny", messages=[]).content[0].text
        '42'
    """
    if type(client) is _Recorded:
        return client
    if not any(hasattr(client, path[0]) for path in _RESOURCES):
        raise InputError(
            f"a {type(client).__name__} has no calls of a model that are known; expected a client of the shape of "
            f"openai.OpenAI or anthropic.Anthropic, or call ctx.call(...) yourself"
        )
    for model, amounts in (prices or {}).items():
        if len(amounts) != 2 or not all(isinstance(usd, int | float) and 0 <= usd < math.inf for usd in amounts):
            raise InputError(
                f"the price of {model!r} is {amounts!r:.50}; expected (usd_in, usd_out), for a million tokens each"
            )
    return cast(Client, _Recorded(client, (), False, _Tariff(dict(prices or {}), _url(client))))


@frozen
class _Tariff:
    """The prices for calls of a client. Its own prices come before those of the price list."""

    prices: Prices
    url: str | None

    def usd(self, model: str, requested: str, used: Usage) -> float:
        """Return the price in US dollars. Raises InputError for a model without one."""
        own = self.prices.get(model) or self.prices.get(requested)
        if own is not None:
            return (used.tokens_in * own[0] + used.tokens_out * own[1]) / 1e6
        return price(model, used.tokens_in, used.tokens_out, cached=used.cached, written=used.written, url=self.url)


def _url(client: Any) -> str | None:
    url = getattr(client, "base_url", None)
    return None if url is None else str(url)


class _Recorded:
    """A client, or a part of one on the way to its calls. For `isinstance` it is what it stands for."""

    __slots__ = ("_wtb_path", "_wtb_raw", "_wtb_real", "_wtb_tariff")

    def __init__(self, real: Any, path: Path, raw: bool, tariff: _Tariff) -> None:
        for name, attribute in (("real", real), ("path", path), ("raw", raw), ("tariff", tariff)):
            # Past `__setattr__`, which sets attributes of the client.
            object.__setattr__(self, f"_wtb_{name}", attribute)

    @property
    def __class__(self) -> Any:
        return type(self._wtb_real)

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise AttributeError("the class of a recorded client cannot be changed")

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._wtb_real, name)
        path: Path = self._wtb_path
        if name in _RAW:
            return _Recorded(real, path, True, self._wtb_tariff)
        # A copy of the client makes model calls, too, which must not go unrecorded.
        if not path and name in _ANOTHER_CLIENT:
            return _record_copies(real, self._wtb_tariff.prices)
        if path in _RESOURCES:
            return _record(real, self._wtb_raw, self._wtb_tariff, path) if name in _METHODS else real
        # Only the way to the recorded methods is wrapped; everything else is the client's own object.
        further = (*path, name)
        if any(resource[: len(further)] == further for resource in _RESOURCES):
            return _Recorded(real, further, self._wtb_raw, self._wtb_tariff)
        return real

    def __setattr__(self, name: str, attribute: Any) -> None:
        setattr(self._wtb_real, name, attribute)

    def __repr__(self) -> str:
        return f"record_calls({self._wtb_real!r})"

    def __enter__(self) -> Any:
        self._wtb_real.__enter__()
        return self

    def __exit__(self, *of: Any) -> Any:
        return self._wtb_real.__exit__(*of)

    async def __aenter__(self) -> Any:
        await self._wtb_real.__aenter__()
        return self

    async def __aexit__(self, *of: Any) -> Any:
        return await self._wtb_real.__aexit__(*of)


def _record_copies(make: Callable[..., Any], prices: Prices) -> Callable[..., Any]:
    @wraps(make)
    def record(*args: Any, **kwargs: Any) -> Any:
        return record_calls(make(*args, **kwargs), prices=prices)

    return record


def _record(method: Callable[..., Any], raw: bool, tariff: _Tariff, path: Path) -> Callable[..., Any]:
    @wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:
        context = current_context()
        if context is None:
            return method(*args, **kwargs)
        context.check_allowance()
        call = _Call(context, kwargs, tariff, _can_add_usage(method, path, kwargs, tariff.url))

        def start() -> Any:
            return method(*args, **call.request())

        try:
            answer = start()
        # Also for a call that is cancelled or interrupted, which is recorded as failed.
        except BaseException as error:
            if not call.drop_addition(error):
                call.failed(error)
                raise
            answer = start()
        if inspect.isawaitable(answer):
            return _await(answer, start, call, raw)
        return _pass_on(answer, start, call, raw)

    return called


async def _await(answer: Any, start: Callable[[], Any], call: _Call, raw: bool) -> Any:
    try:
        response = await answer
    except BaseException as error:
        if not call.drop_addition(error):
            call.failed(error)
            raise
        # At most once: the call no longer adds anything that a server could reject.
        return await _await(start(), start, call, raw)
    return _pass_on(response, start, call, raw)


def _pass_on(answer: Any, start: Callable[[], Any], call: _Call, raw: bool) -> Any:
    """Record an answer and return it as the client gave it. A stream is recorded at its end."""
    is_manager = hasattr(answer, "__enter__") or hasattr(answer, "__aenter__")
    if raw:
        if is_manager and not hasattr(answer, "parse"):
            return WatchedManager(answer, start, call, raw=True)
        if call.streamed:
            return WatchedResponse(answer, call.watch)
        call.ended(_raw_reply(answer))
        return answer
    if is_manager and not call.streamed:
        return WatchedManager(answer, start, call, raw=False)
    return call.watch(answer)


def _raw_reply(answer: Any) -> Reply:
    """Read a raw response whose body is there and can be parsed without waiting for it; else return an empty reply."""
    parse = getattr(answer, "parse", None)
    if parse is None or inspect.iscoroutinefunction(parse):
        return Reply(None, None, None)
    return reply(parse())


def _can_add_usage(method: Callable[..., Any], path: Path, options: Arguments, url: str | None) -> bool:
    """Return whether a streamed completion reports its usage only on request, and its server accepts that."""
    if path[-1] != "completions" or not (options.get("stream") is True or method.__name__ == "stream"):
        return False
    if (url, str(options.get("model"))) in _WITHOUT_USAGE or not is_left_out(options.get("stream_options")):
        return False
    try:
        return "stream_options" in inspect.signature(method).parameters
    except (TypeError, ValueError):
        return False


@dataclass
class _Call:
    """A call that has started.

    Attributes:
        context: The context of the node that makes it.
        options: The options that the caller gave.
        tariff: The prices of the client.
        adds_usage: WTB asks the server for the usage of a stream.
        clock: The time of its start, on the performance counter.
        is_recorded: It was recorded.
    """

    context: Context
    options: Arguments
    tariff: _Tariff
    adds_usage: bool = False
    clock: float = field(default_factory=time.perf_counter)
    is_recorded: bool = False

    @property
    def streamed(self) -> bool:
        return self.options.get("stream") is True

    def request(self) -> Arguments:
        """Return the options as they are sent."""
        return {**self.options, "stream_options": {"include_usage": True}} if self.adds_usage else dict(self.options)

    def drop_addition(self, error: BaseException) -> bool:
        """Return whether the server rejected the request for usage; further streams go without it."""
        if not self.adds_usage or getattr(error, "status_code", None) not in (400, 422):
            return False
        if "stream_options" not in str(error) and "include_usage" not in str(error):
            return False
        self.adds_usage = False
        _WITHOUT_USAGE.add((self.tariff.url, str(self.options.get("model"))))
        return True

    def watch(self, content: Any) -> Any:
        """Record a response and return it; a stream is watched."""
        if self.streamed and (hasattr(content, "__iter__") or hasattr(content, "__aiter__")):
            return self.watch_stream(content)
        self.ended(reply(content))
        return content

    def watch_stream(self, stream: Any) -> Watched:
        """Watch a stream, which is recorded at its end."""
        return Watched(stream, self.ended, hides_usage=self.adds_usage)

    def failed(self, error: BaseException) -> None:
        """Record that the call failed."""
        self.ended(Reply(None, None, Usage()), error)

    def _note_outcome(self, error: BaseException | None) -> None:
        """Note whether a provider failed the request, so that a node that goes on without a reply is reported."""
        request = hashlib.sha256(repr(self.options).encode(errors="replace")).hexdigest()
        fault = None if error is None else Failure.of(error).provider
        if fault is not None:
            self.context.failed_calls.add(request, fault)
        elif error is None:
            self.context.failed_calls.remove(request)

    def ended(self, answer: Reply, error: BaseException | None = None) -> None:
        """Keep it with the node run, with its tokens and what they cost, as far as the server reports them."""
        if self.is_recorded:
            return
        self.is_recorded = True
        took = time.perf_counter() - self.clock
        model, used = self._model(answer.model), answer.usage or Usage(whole=False)
        # A successful call always takes tokens. A server that reports none has not counted them.
        if error is None and not used.tokens_in and not used.tokens_out:
            used = replace(used, whole=False)
        response = answer.content
        self._note_outcome(error)
        if error is not None:
            response = {"error": storable(f"{type(error).__name__}: {error}", 2000)}
            response |= {"before": answer.content} if answer.content else {}
        cost = cost_of(self.context, model, used, partial(self.tariff.usd, model, str(self.options.get("model")), used))
        self.context.call(model=model, prompt=request_of(self.options), response=response, duration_s=took, **cost)

    def _model(self, answered: str | None) -> str:
        """Return the requested model, by the exact name that the server gives it."""
        requested = str(self.options.get("model") or answered or "unknown")
        # A gateway may answer with a name of its own, for which no price is known.
        return storable(answered if answered is not None and answered.startswith(requested) else requested, 200)


class Cost(TypedDict):
    """The tokens and the US dollars of a call, as `ctx.call` takes them."""

    tokens_in: int
    tokens_out: int
    cached: int
    usd: float


def cost_of(context: Context, model: str, used: Usage, price_of: Callable[[], float]) -> Cost:
    """Return the cost of a call that has ended, and report the parts that are not known.

    Args:
        context: The context of the node that made the call.
        model: The name of the model.
        used: What the call used.
        price_of: Returns the price in US dollars. Raises InputError if there is none.
    """
    if not used.whole:
        context.unknown_cost("usage", model)
    if used.problems:
        context.warn_once(f"model {model!r}: {'; '.join(used.problems)}")
    usd = 0.0
    if used.tokens_in or used.tokens_out:
        context.load_prices()
        try:
            usd = price_of()
        except InputError:
            context.unknown_cost("price", model)
    return {"tokens_in": used.tokens_in, "tokens_out": used.tokens_out, "cached": used.cached, "usd": usd}
