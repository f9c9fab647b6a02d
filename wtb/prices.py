"""Prices of model calls, from the data that ships with genai-prices. Never asks the network."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from wtb.errors import InputError


def price(model: str | None, tokens_in: int, tokens_out: int) -> float:
    """US dollars for a call. `model` may name its provider as `provider/model`. No model: 0.

    Raises InputError for a model that the price list does not know; pass `usd=` then.
    """
    if model is None or (tokens_in == 0 and tokens_out == 0):
        return 0.0
    import genai_prices

    provider, _, name = model.rpartition("/")
    usage = genai_prices.Usage(input_tokens=tokens_in, output_tokens=tokens_out)
    try:
        return float(_calculate(usage, name, provider or None).total_price)
    except LookupError as error:
        raise InputError(
            f"no price is known for model {model!r}: pass usd= with the price, or name a model of the list"
        ) from error


def _calculate(usage: Any, model: str, provider: str | None) -> Any:
    import genai_prices

    return genai_prices.calc_price(usage, model, provider_id=provider, genai_request_timestamp=_today())


@lru_cache(maxsize=1)
def _today() -> Any:
    from datetime import UTC, datetime

    return datetime.now(UTC)
