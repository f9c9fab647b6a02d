"""A model that is asked which of two answers is better."""

from __future__ import annotations

import time
from collections.abc import Callable

from wtb.core.scoring.judgement import Judgement
from wtb.integrations.judges.asking import Endpoint, Question, ask
from wtb.integrations.judges.judge import check_endpoint
from wtb.integrations.judges.rubric import Preference


def prefer(
    model: str,
    criteria: str,
    endpoint: Endpoint,
    *,
    temperature: float | None = None,
    per_minute: float | None = None,
    timeout: float = 60.0,
) -> Callable[[str], Judgement]:
    """Make what asks a model for comparisons.

    Args:
        model: Its name.
        criteria: What a good answer is.
        endpoint: Where it is asked.
        temperature: By which it samples; without it, the provider's own.
        per_minute: Requests a minute, of this process.
        timeout: Seconds for each comparison.

    Returns:
        A function of JSON with `input`, `first` and `second`, whose judgement is 1, -1 or 0.

    Raises:
        InputError: The model cannot be asked.
    """
    check_endpoint(endpoint)
    rubric = Preference(criteria)

    def compare(data: str) -> Judgement:
        deadline = time.monotonic() + timeout
        return ask(Question(endpoint, model, rubric, data, temperature, 0, deadline, per_minute=per_minute))

    return compare
