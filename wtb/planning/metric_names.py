"""Figures of a matrix by the names that conditions use: `ndcg.mean`, `latency_s.p95`, `cost_usd.total`.

A name refers to a row (a combination) or to the sweep as a whole (`SWEEP_WIDE`). A figure that the matrix lacks is
never a number: it raises UnknownValue, with the reason. One of the metrics decides: see `primary_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from wtb.core.errors import did_you_mean
from wtb.core.expressions import Name, UnknownValue
from wtb.core.scoring.measure import MEASURED_NAMES
from wtb.core.scoring.unknown_costs import is_concerned, sentences
from wtb.core.tree.combinations import in_words
from wtb.core.tree.stored_spec import StoredSpec

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, MetricEstimate, RowDocument

COST = "cost"  # the metric that is what a cell costs
_COSTS = frozenset({COST, "cost_usd", "cost_per_success_usd", "cost_failed_usd"})
_ROW: Mapping[str, Callable[[RowDocument], float | None]] = {
    "cost_usd": lambda row: row["cost_usd"],
    "cost_per_success_usd": lambda row: row["cost_per_success_usd"],
    "cost_failed_usd": lambda row: row["cost_failed_usd"],
    "latency_s.p50": lambda row: row["latency_s"]["p50"],
    "latency_s.p95": lambda row: row["latency_s"]["p95"],
    "n": lambda row: row["n"],
    "failed": lambda row: row["failed"],
    "provider_failures": lambda row: row.get("lost_to_provider", 0) / row["n"] if row["n"] else None,
}
_OF_THE_COMPARABLE = frozenset({"mean", "low", "high", "delta", "delta_low", "delta_high", "p"})
_ENDS = frozenset({"low", "high", "delta_low", "delta_high"})  # of intervals
_STATISTICS: Mapping[str, Callable[[MetricEstimate], float | None]] = {
    "mean": lambda found: found["mean"],
    "low": lambda found: None if found["ci"] is None else found["ci"][0],
    "high": lambda found: None if found["ci"] is None else found["ci"][1],
    "delta": lambda found: found["delta"],
    "delta_low": lambda found: None if found["delta_ci"] is None else found["delta_ci"][0],
    "delta_high": lambda found: None if found["delta_ci"] is None else found["delta_ci"][1],
    "n": lambda found: found["n"],
    "p": lambda found: found["p_adjusted"],
}


def _lost(matrix: MatrixDocument) -> int:
    """Return the number of cells that were lost to a provider."""
    return matrix["provider"]["lost"] if "provider" in matrix else 0


_SWEEP: Mapping[str, Callable[[MatrixDocument], float | None]] = {
    "total": lambda matrix: matrix["cells"]["total"],
    "succeeded": lambda matrix: matrix["cells"]["succeeded"],
    "failed": lambda matrix: matrix["cells"]["failed"] + matrix["cells"]["set_aside"] - _lost(matrix),
    "provider_failures": lambda matrix: _lost(matrix) / matrix["cells"]["total"] if matrix["cells"]["total"] else None,
    "scores_failed": lambda matrix: matrix.get("scores_failed", 0),
    "cost_usd.total": lambda matrix: matrix["cost"]["usd"],
    "tokens_in.total": lambda matrix: matrix["cost"]["tokens_in"],
    "tokens_out.total": lambda matrix: matrix["cost"]["tokens_out"],
    "node_runs.executed": lambda matrix: matrix["node_runs"]["executed"],
    "node_runs.unshared": lambda matrix: matrix["node_runs"]["unshared"],
    "node_runs.attempts": lambda matrix: matrix["node_runs"]["attempts"],
}
SWEEP_WIDE = frozenset(_SWEEP)  # "failed" is both; where both are meant, it is that of the sweep


def _is_metric(text: str, evaluators: Mapping[str, bool]) -> bool:
    """Return whether a metric may have this name.

    `evaluators` maps their names to whether each gives one metric only, of its own name; others may give any NAME.KEY.
    """
    return any(text == name or (not only and text.startswith(f"{name}.")) for name, only in evaluators.items())


def unknown_figure(name: Name, evaluators: Mapping[str, bool], *, of_sweep: bool = False) -> str | None:
    """Return the problem of a name that no matrix of these evaluators can have, or None."""
    path = ".".join(name.parts)
    metric, _, statistic = path.rpartition(".")
    if path in _ROW or _is_metric(path, evaluators) or (statistic in _STATISTICS and _is_metric(metric, evaluators)):
        return None
    if of_sweep and not name.extreme and path in SWEEP_WIDE:
        return None
    if name.parts[0] == "baseline" and len(name.parts) > 1:
        return unknown_figure(Name(name.parts[1:], name.extreme), evaluators)
    if metric and statistic in _STATISTICS:
        return unknown_metric(metric, evaluators)
    figures = [*evaluators, *(f"{metric}.{key}" for metric in evaluators for key in _STATISTICS), *_ROW, *_SWEEP]
    return f"no evaluator gives {path!r}{did_you_mean(path, figures) or _scored_hint(evaluators)}"


def unknown_metric(metric: str, evaluators: Mapping[str, bool]) -> str | None:
    """Return the problem of a metric's name that none of these evaluators can give, or None."""
    if _is_metric(metric, evaluators):
        return None
    return f"no evaluator gives {metric!r}{did_you_mean(metric, evaluators) or _scored_hint(evaluators)}"


def _scored_hint(evaluators: Iterable[str]) -> str:
    """Return the scored metrics, as the end of a sentence."""
    return f"; scored are {', '.join(evaluators) or 'no metrics'}"


def row_figure(matrix: MatrixDocument, row: RowDocument | None, name: Name) -> float:
    """Return a figure of one row; with min() or max() the minimum or maximum over the rows that have it.

    METRIC is its mean; .low, .high, .delta, .delta_low, .delta_high, .n and .p (corrected) are its other statistics.
    The mean is over the cases that all ranked rows have; for a row that is not ranked by the metric, because it has
    scores in too few cases, only .n is known. `baseline.` before a name refers to the row of the baseline.

    Raises:
        UnknownValue: The matrix does not have the figure.
    """
    if not name.extreme:
        return _figure_of_row(matrix, row, name.parts)
    figures: list[float] = []
    reasons: dict[str, None] = {}
    for other in matrix["rows"]:
        if other.get("exploratory"):  # nobody ships it as it is
            continue
        # An unknown cost may be the minimum or the maximum.
        _check_cost(matrix, ".".join(name.parts), other)
        try:
            figures.append(_figure_of_row(matrix, other, name.parts))
        except UnknownValue as error:
            reasons[str(error)] = None
    if not figures:
        raise UnknownValue("; ".join(reasons) or "there are no combinations")
    return min(figures) if name.extreme == "min" else max(figures)


def sweep_figure(matrix: MatrixDocument, name: Name) -> float:
    """Return a figure of the whole sweep, one of SWEEP_WIDE. Raises UnknownValue."""
    path = ".".join(name.parts)
    _check_cost(matrix, path, None)
    if path not in _SWEEP:
        raise UnknownValue(f"no figure of a sweep is called {path!r}; there are {', '.join(_SWEEP)}")
    return _require(_SWEEP[path](matrix), path)


def _figure_of_row(matrix: MatrixDocument, row: RowDocument | None, parts: tuple[str, ...]) -> float:
    """Return a figure of one row, by the parts of its name. Raises UnknownValue."""
    path = ".".join(parts)
    metric, _, statistic = path.rpartition(".")
    if row is not None:
        _check_cost(matrix, path, row)
        if path in _ROW:
            return _require(_ROW[path](row), f"{path} of {in_words(row['combination'])}, of which no cell succeeded")
        # A metric whose key is the name of a statistic is found in quotes: `"quality.mean".mean`.
        if parts[-1] in _STATISTICS and ".".join(parts[:-1]) in matrix["metrics"]:
            return _statistic_of(matrix, row, ".".join(parts[:-1]), parts[-1])
        if path in matrix["metrics"]:
            return _statistic_of(matrix, row, path, "mean")
        if metric in matrix["metrics"] and statistic in _STATISTICS:
            return _statistic_of(matrix, row, metric, statistic)
    if parts[0] == "baseline" and len(parts) > 1:
        return _figure_of_row(matrix, _baseline(matrix), parts[1:])
    missing_metric = metric if statistic in _STATISTICS and metric else path
    raise UnknownValue(f"nothing is scored by {missing_metric!r}{_scored_hint(matrix['metrics'])}")


def _check_cost(matrix: MatrixDocument, path: str, row: RowDocument | None) -> None:
    """Raise UnknownValue if a figure of costs includes calls with unknown cost.

    Args:
        matrix: The matrix.
        path: The name of the figure.
        row: The row that it is a figure of; None for the sweep as a whole.
    """
    reasons = matrix["cost"].get("unknown", [])
    mine = reasons if row is None else [reason for reason in reasons if is_concerned(row["combination"], [reason])]
    if mine and path.split(".")[0] in _COSTS:
        raise UnknownValue(f"{path} is not known: {'; '.join(sentences(mine))}")


def _statistic_of(matrix: MatrixDocument, row: RowDocument, metric: str, statistic: str) -> float:
    """Return a statistic of one metric in one row. The interval of the best row allows for its selection."""
    figures = row["metrics"].get(metric)
    if figures is None or figures["mean"] is None:
        raise UnknownValue(f"{in_words(row['combination'])} has no score by {metric}")
    best = matrix["best"][metric]
    if statistic in ("low", "high") and row["combination"] == best["combination"] and best["winner"]:
        ends = best["winner"]["ci"] or figures["ci"]  # that of a row that was chosen for its mean
        end = None if ends is None else ends[statistic == "high"]
        return _require(
            end, f"{metric}.{statistic} of {in_words(row['combination'])}{_why_no_interval(matrix, metric)}"
        )
    # A cell that failed has no latency, so that of a combination is of what succeeded, whatever that is.
    if metric not in MEASURED_NAMES and statistic in _OF_THE_COMPARABLE:
        common = common_mean(matrix, row, metric)
        if statistic == "mean":
            return common
    why = _why_no_interval(matrix, metric) if statistic in _ENDS else ""
    return _require(_STATISTICS[statistic](figures), f"{metric}.{statistic} of {in_words(row['combination'])}{why}")


def _why_no_interval(matrix: MatrixDocument, metric: str) -> str:
    """Return the reason why rows have no interval if too few cases are of a class, as the end of a sentence."""
    classes = matrix["metrics"][metric].get("classes")
    return "" if classes is None or classes["enough"] else f": {classes['sentence']}"


def common_mean(matrix: MatrixDocument, row: RowDocument, metric: str) -> float:
    """Return the mean of a row over the cases that all ranked rows have. Raises UnknownValue if it is not ranked."""
    estimate = row["metrics"][metric]
    if estimate["mean"] is None:
        raise UnknownValue(f"{in_words(row['combination'])} has no score by {metric}")
    if estimate["common_mean"] is not None:
        return float(estimate["common_mean"])
    if row.get("exploratory"):
        raise UnknownValue(f"{in_words(row['combination'])} was added after results were seen: it is not ranked")
    if row["combination"] not in matrix["best"][metric]["unranked"]:
        raise UnknownValue(f"no case has a score by {metric} of all combinations that are ranked")
    cases = f"{estimate['n']:,} case{'' if estimate['n'] == 1 else 's'}, less than 95% of them"
    raise UnknownValue(f"{in_words(row['combination'])} is not ranked by {metric}: it has a score in {cases}")


def _baseline(matrix: MatrixDocument) -> RowDocument:
    """Return the row of the baseline. Raises UnknownValue."""
    if matrix["baseline"] is None:
        raise UnknownValue("the sweep has no baseline")
    for row in matrix["rows"]:
        if row["combination"] == matrix["baseline"]:
            return row
    raise UnknownValue("the baseline is not among the combinations")


def _require(figure: float | None, what: str) -> float:
    if figure is None:
        raise UnknownValue(f"there is no {what}")
    return float(figure)


def primary_of(spec: StoredSpec, metrics: Iterable[str]) -> str | None:
    """Return the name of the deciding metric.

    Args:
        spec: A stored sweep, with its `primary` and `best`, if it has them.
        metrics: The metrics, in order.

    Returns:
        `primary`, else the metric of `best`, else the first metric other than built-in measurements of a cell (cost,
        latency, tokens, node runs), else the first of all.
    """
    names = list(metrics)
    if primary := spec.get("primary"):
        return primary
    best = spec.get("best") or {}
    objective = best.get("maximize") or best.get("minimize")
    if objective in names and objective not in MEASURED_NAMES:
        return objective
    return next((name for name in names if name not in MEASURED_NAMES), names[0] if names else None)


def margins_of(spec: StoredSpec, metrics: Iterable[str]) -> dict[str, float]:
    """Return by metric the loss that does not matter.

    Args:
        spec: A stored sweep. In earlier versions `best` had its own margin, `indifferent`, for its metric.
        metrics: The metrics, in order.
    """
    margins = dict(spec.get("margin") or {})
    best: Mapping[str, Any] = spec.get("best") or {}
    earlier = best.get("indifferent")
    if earlier is not None and (metric := wanted_of(spec, metrics)[1]) is not None:
        margins.setdefault(metric, earlier)
    return margins


def wanted_of(spec: StoredSpec, metrics: Iterable[str]) -> tuple[Literal["maximize", "minimize"] | None, str | None]:
    """Return the objective of a sweep: the metric or figure of its `best`, else the deciding metric.

    Args:
        spec: A stored sweep.
        metrics: The metrics, in order.

    Returns:
        The direction, None if the metric itself defines it, and the name.
    """
    best = spec.get("best") or {}
    if maximize := best.get("maximize"):
        return "maximize", maximize
    if minimize := best.get("minimize"):
        return "minimize", minimize
    return None, primary_of(spec, metrics)
