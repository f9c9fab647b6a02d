"""Which combination to take: those that nothing else beats, and the one that the sweep file asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from wtb.expressions import CannotTell, Name, parse_condition
from wtb.figures import Document, row_figure
from wtb.statistics.fronts import front

Best = Mapping[str, Any]
_REASONS = 3  # as many are told


def fronts(matrix: Document) -> dict[str, list[int]]:
    """For each metric the numbers of the rows on the front of its mean, cost and median latency, to the millisecond."""
    found = {}
    for metric, facts in matrix["metrics"].items():
        sign = 1.0 if facts["better"] == "lower" else -1.0
        costs = [
            (
                sign * _number(row["metrics"][metric]["mean"]),
                _number(row["cost_usd"]),
                round(_number(row["latency_s"]["p50"]), 3),
            )
            for row in matrix["rows"]
        ]
        found[metric] = front(np.array(costs, dtype=float).reshape(-1, 3))
    return found


def choose(matrix: Document, best: Best) -> dict[str, Any]:
    """The row that `best` of the sweep file asks for, as `choice` of the JSON contract.

    Of several with the same figure the one that costs less, then the first.
    """
    wanted = "maximize" if best.get("maximize") else "minimize"
    subject_to = best.get("subject_to")
    condition = parse_condition(subject_to) if subject_to else None
    reasons: dict[str, None] = {}
    found: list[tuple[float, float, int]] = []
    for number, row in enumerate(matrix["rows"]):
        if condition is not None:
            answer = condition.answer(partial(row_figure, matrix, row))
            if not answer.holds:
                reasons[answer.because or f"no combination is known to have {subject_to}"] = None
                continue
        try:
            figure = row_figure(matrix, row, Name((best[wanted],)))
        except CannotTell as error:
            reasons[str(error)] = None
            continue
        found.append((figure if wanted == "minimize" else -figure, _number(row["cost_usd"], missing=math.inf), number))
    chosen = min(found, default=None)
    return {
        "objective": f"{wanted} {best[wanted]}" + (f" subject to {subject_to}" if subject_to else ""),
        "combination": None if chosen is None else matrix["rows"][chosen[2]]["combination"],
        "because": _because(list(reasons)) if chosen is None else None,
        "left_out": len(matrix["rows"]) - len(found),
    }


def _because(reasons: list[str]) -> str:
    more = len(reasons) - _REASONS
    said = "; ".join(reasons[:_REASONS]) + (f"; and {more:,} more reasons" if more > 0 else "")
    return said or "there are no combinations"


def _number(value: float | None, missing: float = math.nan) -> float:
    return missing if value is None else value
