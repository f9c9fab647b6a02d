"""Durations as people write them; sizes are tested with the quotas that use them."""

from __future__ import annotations

import math

import pytest

from tests.support.prose import sentence
from wtb.core.units import parse_duration


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [("20ms", 0.02), ("60", 60.0), ("2 m", 120.0), ("1.5h", 5400.0), (" 7d ", 604800.0), ("2w", 1209600.0), (5, 5.0)],
)
def test_a_duration_is_a_number_of_seconds_or_has_a_unit(duration: object, seconds: float) -> None:
    assert parse_duration(duration) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "duration", ["", "h", "-1s", "1y", "1e3s", "1 000s", True, None, [1], math.nan, math.inf, 10**400]
)
def test_anything_else_is_no_duration(duration: object) -> None:
    with pytest.raises(ValueError, match=sentence("is not a duration")):
        parse_duration(duration)
