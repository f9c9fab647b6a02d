"""Whether a sweep may stop by the metric that decides."""

from __future__ import annotations

from collections.abc import Sequence

from wtb.authoring.evaluation.evaluators import Evaluator
from wtb.planning.primary import primary_of
from wtb.planning.sweep_spec import SweepSpec


def stop_problem(spec: SweepSpec, evaluators: Sequence[Evaluator]) -> str | None:
    """What is wrong with `stop` of a sweep, or None."""
    if spec.stop is None:
        return None
    metric = primary_of(spec.model_dump(mode="json"), [one.name for one in evaluators])
    if metric is None:
        return "'when_known' needs a metric, and the sweep has no evaluator; expected one in 'evaluate'"
    by = next((one for one in evaluators if one.gives(metric)), None)
    measure = None if by is None else by.measure(metric)
    if measure is None or measure.low is None or measure.compare != "mean":
        return (
            f"'when_known' needs a metric whose scale is declared, and {metric!r}, which decides, has none; expected "
            "'scale: [0, 1]' or the like among the options of its evaluator, or another metric in 'primary'"
        )
    return None
