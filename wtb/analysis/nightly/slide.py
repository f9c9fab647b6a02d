"""When a figure that fell over the nights began to fall, and the sentence of the alert. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from wtb.analysis.comparison.reasons import chance, direction
from wtb.analysis.statistics.sequential.nights import NightTest
from wtb.core.classes.frozen import frozen

FEWEST = 3  # nights that make a slide


@frozen
class Trend:
    """What the means of the nights look like since the reference.

    Attributes:
        kind: Whether they slide further every night, stepped down some nights ago, or fell tonight.
        nights: How many nights it is going on, tonight included.
        end: Where the slide is tonight; of other falls the mean since the fall.
        a_night: By how much a slide changes each night.
    """

    kind: Literal["slide", "step", "tonight"]
    nights: int
    end: float
    a_night: float


def find_trend(reference: float, means: Sequence[float]) -> Trend:
    """Find the slide, or the step, that fits the means of the nights best.

    Args:
        reference: The mean of the reference.
        means: Those of the nights after it, the oldest first.
    """
    values = np.asarray(means, dtype=float) - reference
    fits: list[tuple[float, Trend]] = []
    for start in range(len(values)):
        before, since = float((values[:start] ** 2).sum()), values[start:]
        count, mean = len(since), float(since.mean())
        step = Trend("tonight" if count == 1 else "step", count, reference + mean, 0.0)
        fits.append((before + float(((since - mean) ** 2).sum()), step))
        if count >= FEWEST:
            steps = np.arange(1, count + 1)
            slope = float((steps @ since) / (steps @ steps))
            slide = Trend("slide", count, reference + slope * count, slope)
            fits.append((before + float(((since - slope * steps) ** 2).sum()), slide))
    return min(fits, key=lambda fit: fit[0])[1]


def alert(metric: str, better: str, test: NightTest, trend: Trend, since: str) -> str:
    """Return the sentence that every output shows of a night that fell.

    Args:
        metric: The metric, with its combination.
        better: Whether higher or lower is better.
        test: The test that shows the fall, with means in the unit of the metric.
        trend: What the nights look like, in that unit too.
        since: The date of the reference.
    """
    reference = f"(fixed reference), {chance(test.p)}"
    if trend.kind == "slide":
        ends = f"{test.before:.3g} -> {trend.end:.3g} since {since}"
        return f"{metric}: night {trend.nights} of a slide: {ends} {reference}, {trend.a_night:+.2g} a night"
    ends = f"{test.before:.3g} -> {trend.end:.3g}"
    if trend.kind == "step":
        fall = "fall" if better == "higher" else "rise"
        return f"{metric}: night {trend.nights} of a {fall}: {ends} against {since} {reference}"
    return f"{metric}: {direction(better, worse=True)} in this run: {ends} against {since} {reference}"
