"""Token counts of a model call as a provider reports them: read, bounded, and never an error."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

from wtb.core.errors import InputError
from wtb.core.frozen import frozen

# Of one call. The largest context windows have some 10**7 tokens: a larger count is a fault of the server.
MOST_OF_A_CALL: Final = 10**9


@frozen(slots=True)
class Usage:
    """Tokens of a call.

    Attributes:
        tokens_in: Tokens of the prompt, those of the provider's cache included.
        tokens_out: Tokens of the response.
        cached: Tokens of `tokens_in` that were read from the provider's cache.
        written: Tokens of `tokens_in` that were written to it.
        whole: False if a count is missing or was dropped, so that the price is not known.
        problems: Sentences about counts that were dropped or clamped.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    cached: int = 0
    written: int = 0
    whole: bool = True
    problems: tuple[str, ...] = ()

    def plus(self, other: Usage) -> Usage:
        """Add the tokens of another call."""
        return Usage(
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.cached + other.cached,
            self.written + other.written,
            self.whole and other.whole,
            (*self.problems, *other.problems),
        )


def normalized_usage(
    tokens_in: object,
    tokens_out: object,
    cached: object = None,
    written: object = None,
    *,
    apart: bool = False,
    limit: int = MOST_OF_A_CALL,
) -> Usage:
    """Return usage that can be counted and priced, whatever a server reports.

    A count that is no whole number from 0 to `limit` is dropped and counts as 0. More cached tokens than prompt tokens
    are clamped.

    Args:
        tokens_in: Tokens of the prompt; None if the server did not report them.
        tokens_out: Tokens of the response; None if the server did not report them.
        cached: Tokens that were read from the provider's cache.
        written: Tokens that were written to it.
        apart: `tokens_in` does not include `cached` and `written`, as Anthropic counts.
        limit: The largest count that is plausible.

    Example:
        >>> normalized_usage(100, 10, cached=500).cached
        100
        >>> normalized_usage(True, 10**15).problems
        ('tokens in: True is no count', 'tokens out: 1000000000000000 is no count')
    """
    problems: list[str] = []
    counts: list[int | None] = []
    for name, reported_count in (("in", tokens_in), ("out", tokens_out), ("cached", cached), ("written", written)):
        count = _count(reported_count, limit)
        if count is None and reported_count is not None:
            problems.append(f"tokens {name}: {_short_text(reported_count)} is no count")
        counts.append(count)
    whole = not problems and counts[0] is not None and counts[1] is not None
    went_in, went_out, read, wrote = (count or 0 for count in counts)
    if apart:
        went_in += read + wrote
    elif read + wrote > went_in:
        problems.append(f"{read + wrote:,} tokens of the cache are more than the {went_in:,} that went in")
        read = min(read, went_in)
        wrote = min(wrote, went_in - read)
    return Usage(went_in, went_out, read, wrote, whole, tuple(problems))


def reported_usage(reported: object) -> Usage | None:
    """Read usage in the shape of OpenAI (chat or responses) or Anthropic. Returns None for any other shape."""
    if not isinstance(reported, Mapping):
        return None
    if "prompt_tokens" in reported:
        return _of_openai(reported, "prompt_tokens", "completion_tokens")
    if "input_tokens" not in reported:
        return None
    if "input_tokens_details" in reported or "total_tokens" in reported:
        return _of_openai(reported, "input_tokens", "output_tokens")
    cached, written = reported.get("cache_read_input_tokens"), reported.get("cache_creation_input_tokens")
    return normalized_usage(reported["input_tokens"], reported.get("output_tokens"), cached, written, apart=True)


def _of_openai(reported: Mapping[Any, Any], name_in: str, name_out: str) -> Usage:
    details = reported.get(f"{name_in}_details")
    details = details if isinstance(details, Mapping) else {}
    tokens_out = reported.get(name_out, 0)  # embeddings have none
    return normalized_usage(
        reported[name_in], tokens_out, details.get("cached_tokens"), details.get("cache_write_tokens")
    )


def _count(number: object, limit: int) -> int | None:
    """Return a count as a whole number; None for anything else, bools included."""
    if type(number) is float and number.is_integer():
        number = int(number)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= limit:
        return None
    return int(number)


def _short_text(number: object) -> str:
    try:
        return f"{number!r:.40}"
    except Exception as error:  # noqa: BLE001 - the text of an object of user code, or of a very long number
        return f"a {type(number).__name__} ({type(error).__name__})"


_loading = threading.Lock()
_loaded = threading.Event()


def load_prices() -> float:
    """Load the price list once in each process. Returns the seconds that this thread spent on it, waiting included."""
    if _loaded.is_set():
        return 0.0
    clock = time.perf_counter()
    with _loading:
        if not _loaded.is_set():
            import genai_prices

            # Only its first question has it read the list.
            genai_prices.calc_price(genai_prices.Usage(input_tokens=1), "gpt-4o", genai_request_timestamp=_today())
            _loaded.set()
    return time.perf_counter() - clock


def price(
    model: str | None, tokens_in: int, tokens_out: int, *, cached: int = 0, written: int = 0, url: str | None = None
) -> float:
    """Return the price of a call in US dollars; 0 without a model.

    Args:
        model: Its name. It may include the provider, as in `provider/model`.
        tokens_in: Tokens of the prompt.
        tokens_out: Tokens of the response.
        cached: How many of `tokens_in` were read from the provider's cache; they have a price of their own.
        written: How many of `tokens_in` were written to it, for which the same holds.
        url: The URL of the provider's API, if it is known. A model that it does not have is looked for by its name.

    Raises:
        InputError: The price list does not know the model. Callers can pass `usd=` then.
    """
    if model is None or (tokens_in == 0 and tokens_out == 0):
        return 0.0
    load_prices()
    import genai_prices

    provider, _, name = model.rpartition("/")
    usage = genai_prices.Usage(
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        cache_read_tokens=cached or None,
        cache_write_tokens=written or None,
    )
    if url is not None:
        with suppress(LookupError, ValueError):
            return float(_calculate(usage, model, provider_api_url=url).total_price)
    try:
        return float(_calculate(usage, name, provider_id=provider or None).total_price)
    except (LookupError, ValueError, ArithmeticError) as error:  # of the price list, for counts that it cannot price
        raise InputError(
            f"no price is known for model {model!r}: pass usd= with the price, or name a model of the list"
        ) from error


def _calculate(usage: Any, model: str, **provider: Any) -> Any:
    import genai_prices

    return genai_prices.calc_price(usage, model, genai_request_timestamp=_today(), **provider)


@lru_cache(maxsize=1)
def _today() -> Any:
    from datetime import UTC, datetime

    return datetime.now(UTC)
