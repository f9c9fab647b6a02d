"""Selection of a combination: the rows that nothing dominates, missing cells at their worst, the choice, the next step.

Rows are compared by their means over the cases that all ranked rows have, and by their cost per success, failures
included. A row that lacks many cases is not selected, with a reason.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from wtb.analysis.statistics.best import front
from wtb.analysis.statistics.comparing import ELIGIBLE
from wtb.core.expressions import Answer, Condition, Name, UnknownValue, parse_condition
from wtb.core.tree.combinations import in_words
from wtb.planning.metric_names import common_mean, row_figure

if TYPE_CHECKING:
    from wtb.core.documents.matrix import (
        Basis,
        BestDocument,
        ChoiceDocument,
        DecisionDocument,
        MatrixDocument,
        MetricEstimate,
        RowDocument,
    )
    from wtb.core.documents.shared_types import Combination, Interval
    from wtb.core.tree.stored_spec import Best

End = Literal[0, 1]  # the lower figures, or the higher ones
_MAX_NAMES = 10  # names of a condition whose ends are combined
_STATISTICS_OF_PAIRS = ("delta", "delta_low", "delta_high")


def moved(matrix: MatrixDocument, end: End) -> MatrixDocument:
    """Return a matrix in which missing cells make each figure as low (0), or as high (1), as possible."""
    rows: list[RowDocument] = [
        {**row, "metrics": {name: _moved(estimate, end) for name, estimate in row["metrics"].items()}}
        for row in matrix["rows"]
    ]
    best = dict(matrix["best"])
    for metric, leader in matrix["best"].items():
        winner, row = leader["winner"], _row_of(matrix, leader["combination"])
        if winner is not None and row is not None:
            estimate = row["metrics"][metric]
            best[metric] = {**leader, "winner": {**winner, "ci": _shifted(winner["ci"], _by(estimate, "mean", end))}}
    return {**matrix, "rows": rows, "best": best}


def _row_of(matrix: MatrixDocument, combination: Combination | None) -> RowDocument | None:
    """Return the row of a combination; None if there is none."""
    return next((row for row in matrix["rows"] if row["combination"] == combination), None)


def _lacks_cells(matrix: MatrixDocument) -> bool:
    """Return whether any row lacks cells that could change its figures."""
    return any("missing" in estimate for row in matrix["rows"] for estimate in row["metrics"].values())


def _moved(estimate: MetricEstimate, end: End) -> MetricEstimate:
    if not (estimate.get("mean_at_worst") or estimate.get("delta_at_worst")):
        return estimate
    mean, delta = _by(estimate, "mean", end), _by(estimate, "delta", end)
    common, whole = estimate["common_mean"], estimate.get("mean_at_worst")
    if common is not None and whole:
        common = max(common, whole[1]) if end else min(common, whole[0])
    return {
        **estimate,
        "mean": None if estimate["mean"] is None else estimate["mean"] + mean,
        "ci": _shifted(estimate["ci"], mean),
        "common_mean": common,
        "delta": None if estimate["delta"] is None else estimate["delta"] + delta,
        "delta_ci": _shifted(estimate["delta_ci"], delta),
    }


def _by(estimate: MetricEstimate, figure: Literal["mean", "delta"], end: End) -> float:
    """Return by how much missing cells move a figure; 0 if none are missing."""
    ends = estimate.get("mean_at_worst") if figure == "mean" else estimate.get("delta_at_worst")
    number = estimate[figure]
    return 0.0 if not ends or number is None else ends[end] - number


def _shifted(interval: Interval | None, by: float) -> Interval | None:
    return interval and [interval[0] + by, interval[1] + by]


def fails_at_worst(condition: Condition, figures: Sequence[Callable[[Name], float]]) -> bool:
    """Return whether a condition that holds would fail for some figures that missing cells could lead to.

    Args:
        condition: A condition that holds for the measured figures.
        figures: The figures of the matrix at its lowest, and at its highest.
    """
    # Names move independently: a condition may need one figure low and another high to fail.
    apart = [
        name for name in condition.names if _figure_if_known(figures[0], name) != _figure_if_known(figures[1], name)
    ]
    # 2^10 combinations are fast; beyond that only the two extremes are tried.
    are_few = len(apart) <= _MAX_NAMES
    ends = itertools.product((0, 1), repeat=len(apart)) if are_few else ((end,) * len(apart) for end in (0, 1))
    return any(not _answer(condition, figures, dict(zip(apart, sides, strict=True))).holds for sides in ends)


def _answer(condition: Condition, figures: Sequence[Callable[[Name], float]], ends: Mapping[Name, int]) -> Answer:
    return condition.answer(lambda name: figures[ends.get(name, 0)](name))


def _figure_if_known(figures: Callable[[Name], float], name: Name) -> float | None:
    try:
        return figures(name)
    except UnknownValue:
        return None


def count_missing(matrix: MatrixDocument, names: Collection[Name], row: RowDocument | None) -> int:
    """Return how many missing cells figures depend on.

    Args:
        matrix: The matrix.
        names: The names of the figures.
        row: The row that they are of, unless they are of all rows or of the baseline.
    """
    numbers: set[tuple[int, str]] = set()
    for name in names:
        parts = name.parts[1:] if name.parts[0] == "baseline" else name.parts
        metric = next(
            (candidate for candidate in matrix["metrics"] if candidate in (".".join(parts), ".".join(parts[:-1]))), None
        )
        for number, other in enumerate(matrix["rows"]) if metric is not None else ():
            is_base = other["combination"] == matrix["baseline"]
            concerned = bool(name.extreme) or (is_base if name.parts[0] == "baseline" else other is row)
            # A difference depends on the cells of the baseline as well.
            if metric is not None and (concerned or (is_base and parts[-1] in _STATISTICS_OF_PAIRS)):
                numbers.add((number, metric))
    return sum(matrix["rows"][number]["metrics"][metric].get("missing", 0) for number, metric in numbers)


_REASONS = 3  # as many are told
_NEVER = 1e300  # seconds of a cell that failed, for a median


def fronts(matrix: MatrixDocument) -> dict[str, list[int]]:
    """Return for each metric the row numbers on the Pareto front of mean, cost per success, and median latency.

    Latency counts to the millisecond; that of a row with mostly failed cells is worse than any other.
    """
    by_metric = {}
    for metric, facts in matrix["metrics"].items():
        sign = 1.0 if facts["better"] == "lower" else -1.0
        costs = [
            (
                sign * _number(row["metrics"][metric]["common_mean"]),
                _number(row["cost_per_success_usd"]),
                # The median is over succeeded cells, so a row that mostly fails could be fast by failing.
                round(_number(row["latency_s"]["p50"]), 3) if 2 * row["failed"] <= row["n"] else _NEVER,
            )
            for row in matrix["rows"]
        ]
        by_metric[metric] = front(np.array(costs, dtype=float).reshape(-1, 3))
    return by_metric


def choose(matrix: MatrixDocument, best: Best, margin: float | None = None) -> ChoiceDocument:
    """Return the row that `best` of the sweep file asks for, as `choice` of the JSON contract.

    It is the row with the best figure; with a margin, the cheapest per success of the rows shown to be within it of the
    best. Ties go to the lower cost, then to the better figure, then to the first row.
    """
    choice = _choose(matrix, best, margin)
    if _lacks_cells(matrix) and (count := _count_hanging(matrix, best, choice, margin)):
        choice["hangs_on"] = count
    return choice


def allowed_rows(matrix: MatrixDocument, best: Best) -> tuple[list[int], list[str]]:
    """Return the rows for which `subject_to` holds, and the reasons why it does not for the others."""
    subject_to = best.get("subject_to")
    condition = parse_condition(subject_to) if subject_to else None
    allowed, reasons = [], dict[str, None]()
    for number, row in enumerate(matrix["rows"]):
        try:
            if row.get("exploratory"):
                raise UnknownValue(f"{in_words(row['combination'])} was added after results were seen; run it again")
            if row.get("stopped"):
                raise UnknownValue(f"{in_words(row['combination'])} was stopped; restart it with `wtb extend`")
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
    """Return how many missing cells could change the choice; 0 if they cannot.

    The chosen row has its missing cells at their worst, every other row at their best.
    """
    number = next((n for n, row in enumerate(matrix["rows"]) if row["combination"] == choice["combination"]), None)
    if number is None or choice["combination"] is None:
        return 0
    direction, name = wanted_figure(matrix, best)
    ends = moved(matrix, 0), moved(matrix, 1)
    # If smaller is better, the higher end is the worst one.
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
    """Return whether to maximize or to minimize, and the figure: the deciding metric if `best` names none."""
    if maximize := best.get("maximize"):
        return "maximize", maximize
    if minimize := best.get("minimize"):
        return "minimize", minimize
    primary = matrix["primary"]
    lower = primary is not None and matrix["metrics"][primary]["better"] == "lower"
    return "minimize" if lower else "maximize", primary or "what decides"


def _objective(matrix: MatrixDocument, row: RowDocument, name: str) -> float:
    """Return the figure that the sweep file asks for.

    Raises:
        UnknownValue: The row must not be compared by it.
    """
    if name in matrix["metrics"]:
        return common_mean(matrix, row, name)
    figure = row_figure(matrix, row, Name((name,)))
    # Other figures are over succeeded cells only, and cheap or fast failures would make a bad row the best.
    if name != "cost_per_success_usd" and row["succeeded"] < ELIGIBLE * row["n"]:
        called = in_words(row["combination"])
        cells = f"{row['succeeded']:,} of {row['n']:,} cells of {called or 'the workflow as it is'} succeeded"
        raise UnknownValue(f"only {cells}, too few to go by {name}: cost_per_success_usd counts failures")
    return figure


def _because(reasons: list[str]) -> str:
    more = len(reasons) - _REASONS
    text = "; ".join(reasons[:_REASONS]) + (f"; and {more:,} more reasons" if more > 0 else "")
    return text or "there are no combinations"


def _number(number: float | None, missing: float = math.nan) -> float:
    return missing if number is None else number


def decide(matrix: MatrixDocument, best: Best, margin: float | None) -> DecisionDocument:
    """Return the decision of a sweep.

    Args:
        matrix: Its matrix.
        best: The `best` of the sweep file; empty without one.
        margin: The margin of the metric that `best` is about.
    """
    # Without `best` in the sweep file the decision is the same one that `best` would make by default.
    choice = matrix["choice"] or choose(matrix, best, margin)
    _, name = wanted_figure(matrix, best)
    metric = name if name in matrix["metrics"] else None
    row = _row_of(matrix, choice["combination"])
    leader = None if metric is None else matrix["best"].get(metric)
    estimate = None if row is None or metric is None else row["metrics"].get(metric)
    within = None if estimate is None else estimate.get("within")
    basis = None if row is None else _basis(matrix, choice, leader)
    ties = [] if row is None or metric is None else _ties(matrix, choice, leader, metric, basis)
    needed = None if leader is None else leader["cases_needed"]
    return {
        "objective": choice["objective"],
        "metric": metric,
        "margin": margin,
        "combination": choice["combination"],
        "because": choice["because"] if matrix["metrics"] else None,
        "basis": basis,
        "ties": ties,
        "is_cheapest": None if row is None else _is_cheapest(row, matrix["rows"], ties),
        "mean": None if estimate is None else estimate["mean"],
        "ci": None if estimate is None else estimate["ci"],
        "behind": None if within is None else within["behind"],
        "cost_usd": None if row is None else row["cost_usd"],
        "latency_s": None if row is None else row["latency_s"]["p50"],
        "cases": 0 if leader is None else leader["cases"],
        "cases_needed": None if needed is None else needed[0],
        "is_final": matrix["figures"] == "final",
        "warnings": 0,
    }


def _basis(matrix: MatrixDocument, choice: ChoiceDocument, leader: BestDocument | None) -> Basis:
    """Return the basis of a recommendation."""
    if leader is None:
        return "figure"
    if choice.get("within"):
        return "within"
    if len(matrix["rows"]) == 1 or leader["rival"] is None:
        return "only"
    if leader["clear"] and leader["combination"] == choice["combination"]:
        return "best"
    return "not shown" if "margin" in choice else "leads"


def _ties(
    matrix: MatrixDocument, choice: ChoiceDocument, leader: BestDocument | None, metric: str, basis: Basis | None
) -> list[Combination]:
    """Return the other combinations that the figures do not separate from the chosen one."""
    if basis == "within":
        names = [row["combination"] for row in matrix["rows"] if is_within(row, metric)]
    elif basis in ("leads", "not shown") and leader is not None:
        names = leader["candidates"]
    else:
        return []
    return [name for name in names if name != choice["combination"]]


def _is_cheapest(row: RowDocument, rows: list[RowDocument], ties: list[Combination]) -> bool | None:
    costs = [other["cost_per_success_usd"] for other in rows if other["combination"] in ties]
    own = row["cost_per_success_usd"]
    known_costs = [cost for cost in costs if cost is not None]
    # One unknown cost, or no cost at all, makes "cheapest" meaningless.
    if own is None or not ties or len(known_costs) < len(costs) or not any([own, *known_costs]):
        return None
    return all(own <= cost for cost in known_costs)
