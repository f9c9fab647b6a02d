"""Prices of model calls, from the data that ships with genai-prices. Never asks the network."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import lru_cache
from typing import Any

from wtb.core.errors import InputError

_loading = threading.Lock()
_loaded = threading.Event()


def load_prices() -> float:
    """Load the price list, once in each process. Returns the seconds that it took, or that another thread took."""
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
    """US dollars for a call. `model` may name its provider as `provider/model`. No model: 0.

    cached, written: how many of `tokens_in` came from the provider's cache, and went into it, which costs otherwise.
    url: of the provider's API, where that is known; a model that it does not have is looked for by its name alone.
    Raises InputError for a model that the price list does not know; pass `usd=` then.
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
