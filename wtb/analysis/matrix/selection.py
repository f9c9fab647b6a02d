"""Which combination to take: those that nothing else beats, and the one that the sweep file asks for.

Rows are compared by their means over the cases that all ranked rows have, and by what a success costs, failures
included. A row that lacks many cases is not taken, and it is said why.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from wtb.analysis.matrix.at_worst import count_missing, moved
from wtb.analysis.statistics.comparing import ELIGIBLE
from wtb.analysis.statistics.pareto import front
from wtb.core.expressions.figures import Name, parse_condition
from wtb.core.expressions.language import UnknownValue
from wtb.core.tree.combinations import in_words
from wtb.planning.metric_names import common_mean, row_figure

if TYPE_CHECKING:
    from wtb.core.documents.matrix import ChoiceDocument, MatrixDocument, RowDocument
    from wtb.core.tree.stored_spec import Best


_REASONS = 3  # as many are told
_NEVER = 1e300  # seconds of a cell that failed, for a median


def fronts(matrix: MatrixDocument) -> dict[str, list[int]]:
    """For each metric the numbers of the rows on the front of its mean, of what a success costs, and of median latency.

    Latency counts to the millisecond; that of a row of which most cells failed is beyond any.
    """
    by_metric = {}
    for metric, facts in matrix["metrics"].items():
        sign = 1.0 if facts["better"] == "lower" else -1.0
        costs = [
            (
                sign * _number(row["metrics"][metric]["common_mean"]),
                _number(row["cost_per_success_usd"]),
                round(_number(row["latency_s"]["p50"]), 3) if 2 * row["failed"] <= row["n"] else _NEVER,
            )
            for row in matrix["rows"]
        ]
        by_metric[metric] = front(np.array(costs, dtype=float).reshape(-1, 3))
    return by_metric


def choose(matrix: MatrixDocument, best: Best, margin: float | None = None) -> ChoiceDocument:
    """The row that `best` of the sweep file asks for, as `choice` of the JSON contract.

    It is the one with the best figure; with a margin, of those that are shown to be within it of the best the one whose
    successes cost least. Of several alike the one that costs less, then the better one, then the first.
    """
    choice = _choose(matrix, best, margin)
    if any("missing" in estimate for row in matrix["rows"] for estimate in row["metrics"].values()):
        count = _count_hanging(matrix, best, choice, margin)
        if count:
            choice["hangs_on"] = count
    return choice


def allowed_rows(matrix: MatrixDocument, best: Best) -> tuple[list[int], list[str]]:
    """Return the rows for which `subject_to` holds, and why it does not for the others."""
    subject_to = best.get("subject_to")
    condition = parse_condition(subject_to) if subject_to else None
    allowed, reasons = [], dict[str, None]()
    for number, row in enumerate(matrix["rows"]):
        try:
            if row.get("exploratory"):
                raise UnknownValue(f"{in_words(row['combination'])} was added after results were seen: run it anew")
            if row.get("stopped"):
                raise UnknownValue(f"{in_words(row['combination'])} was stopped: `wtb extend` lets it run again")
            if condition is not None:
                answer = condition.answer(partial(row_figure, matrix, row))
                if not answer.holds:
                    raise UnknownValue(answer.because or f"no combination is known to have {subject_to}")
        except UnknownValue as error:
            reasons[str(error)] = None
            continue
        allowed.append(number)
    return allowed, list(reasons)


def _count_hanging(matrix: MatrixDocument, best: Best, choice: ChoiceDocument, margin: float | None) -> int:
    """How many missing cells could change the choice; 0 where none could.

    The chosen row has its cells at their worst, another one has its at their best.
    """
    number = next((n for n, row in enumerate(matrix["rows"]) if row["combination"] == choice["combination"]), None)
    if number is None or choice["combination"] is None:
        return 0
    direction, name = wanted_figure(matrix, best)
    ends = moved(matrix, 0), moved(matrix, 1)
    worst, better = ends if direction == "maximize" else ends[::-1]
    rows = [worst["rows"][row] if row == number else better["rows"][row] for row in range(len(matrix["rows"]))]
    other = _choose({**matrix, "rows": rows, "best": worst["best"]}, best, margin)["combination"]
    if other == choice["combination"]:
        return 0
    concerned = [row for row in matrix["rows"] if row["combination"] in (choice["combination"], other)]
    return sum(count_missing(matrix, [Name((name,))], row) for row in concerned)


def _choose(matrix: MatrixDocument, best: Best, margin: float | None) -> ChoiceDocument:
    direction, name = wanted_figure(matrix, best)
    subject_to = best.get("subject_to")
    allowed, because = allowed_rows(matrix, best)
    reasons = dict.fromkeys(because)
    eligible: list[tuple[float, float, int]] = []
    for number in allowed:
        row = matrix["rows"][number]
        try:
            figure = _objective(matrix, row, name)
        except UnknownValue as error:
            reasons[str(error)] = None
            continue
        cost = _number(row["cost_per_success_usd"], missing=math.inf)
        eligible.append((figure if direction == "minimize" else -figure, cost, number))
    within = [candidate for candidate in eligible if is_within(matrix["rows"][candidate[2]], name)]
    cheapest = min(((cost, figure, number) for figure, cost, number in within), default=None)
    highest = min(eligible, default=None)
    best_number = cheapest[2] if cheapest else highest[2] if highest else None
    objective = f"{direction} {name}" + (f" subject to {subject_to}" if subject_to else "")
    choice: ChoiceDocument = {
        "objective": objective + ("" if margin is None else f", within {margin:g} of the best"),
        "combination": None if best_number is None else matrix["rows"][best_number]["combination"],
        "because": _because(list(reasons)) if best_number is None else None,
        "left_out": len(matrix["rows"]) - len(eligible),
    }
    if margin is not None:
        choice["margin"], choice["within"] = margin, len(within)
    return choice


def is_within(row: RowDocument, metric: str) -> bool:
    """Return whether a row is shown to be within the margin of the best."""
    estimate = row["metrics"].get(metric)
    return bool(estimate and "within" in estimate and estimate["within"]["shown"])


def wanted_figure(matrix: MatrixDocument, best: Best) -> tuple[str, str]:
    """Return whether to maximize or to minimize, and what: the metric that decides, where `best` names none."""
    if maximize := best.get("maximize"):
        return "maximize", maximize
    if minimize := best.get("minimize"):
        return "minimize", minimize
    primary = matrix["primary"]
    lower = primary is not None and matrix["metrics"][primary]["better"] == "lower"
    return "minimize" if lower else "maximize", primary or "what decides"


def _objective(matrix: MatrixDocument, row: RowDocument, name: str) -> float:
    """The figure that the sweep file asks for. Raises UnknownValue for a row that is not to be compared by it."""
    if name in matrix["metrics"]:
        return common_mean(matrix, row, name)
    figure = row_figure(matrix, row, Name((name,)))
    if name != "cost_per_success_usd" and row["succeeded"] < ELIGIBLE * row["n"]:
        called = in_words(row["combination"])
        cells = f"{row['succeeded']:,} of {row['n']:,} cells of {called or 'the workflow as it is'} succeeded"
        raise UnknownValue(f"only {cells}, too few to go by {name}: cost_per_success_usd counts failures")
    return figure


def _because(reasons: list[str]) -> str:
    more = len(reasons) - _REASONS
    text = "; ".join(reasons[:_REASONS]) + (f"; and {more:,} more reasons" if more > 0 else "")
    return text or "there are no combinations"


def _number(value: float | None, missing: float = math.nan) -> float:
    return missing if value is None else value
