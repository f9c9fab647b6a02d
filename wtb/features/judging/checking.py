"""Checks of a judge: the scores of a metric are compared with labels that people gave."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from wtb.analysis import judge_check
from wtb.analysis.human_labels import judge_of, rubric_of, stored_labels
from wtb.analysis.judge_agreement import Scale
from wtb.analysis.judge_bias import family_of
from wtb.analysis.judge_check import JudgeCheck, Judged
from wtb.analysis.scores import Scores
from wtb.core.arguments import AnyPath, checked
from wtb.core.errors import InputError, did_you_mean
from wtb.features.judging.label_files import read_labels
from wtb.features.judging.labelling import text_of
from wtb.operations.context import Context
from wtb.operations.inspection.cells import cell_documents
from wtb.store.database import Database
from wtb.store.read import evidence, queries
from wtb.store.read.costs import models_called
from wtb.store.tables.sweeps import SweepRow


@checked
def check_judge(
    context: Context,
    ref: str,
    labels: AnyPath | None = None,
    *,
    metric: str | None = None,
    scale: Scale = "ordinal",
    margin: float | None = None,
    own: Sequence[str] = (),
) -> JudgeCheck:
    """Compare the scores of a metric with human labels.

    Args:
        context: Where.
        ref: A sweep: its id, the beginning of it, or its name.
        labels: A CSV file, or `.jsonl`: `case`, `label`, `repeat`, `rater` and the variants of varied nodes; by default
            the labels that the sweep has. They have to be of cases that were drawn at random.
        metric: The scores; by default those that decide.
        scale: What labels are: `nominal`, `ordinal` or `interval`.
        margin: Half the width of the interval that is wanted of each row; how many labels that takes is estimated.
        own: Variants whose answers are of models of the judge's own family, as `node=variant`; by default those of
            varied nodes that called such a model, as far as calls were recorded.

    Returns:
        How far they agree, what the scores are off by, and what people would say of each row.

    Raises:
        InputError: If there is no such sweep or metric, or the labels cannot be used.
    """
    labels = None if labels is None else Path(labels)
    if margin is not None and not 0 < margin < math.inf:
        raise InputError(f"margin is {margin:g}; expected a number above 0, in the unit of labels")
    database = context.database
    sweep = queries.find_sweep(database, ref)
    scores = Scores(database, sweep)
    metric_name = scores.chosen_metric(metric)
    ends = scores.measures[metric_name].scale
    if labels is not None:
        ratings = read_labels(labels, scores.choices, evidence.case_numbers(database, sweep.id), ends)
    else:
        ratings = stored_labels(database, sweep.id, metric_name)
    if not ratings:
        raise InputError(f"nobody has labelled anything for {metric_name!r}; `wtb label answer` asks for labels")
    # The models come from the sweep's own settings of the judge, so that its family is that of the model that scored.
    _, judge = judge_of(sweep, metric_name)
    models = judge.get("model") or ()
    families = sorted({family_of(str(model)) for model in ([models] if isinstance(models, str) else models)})
    judged_by = Judged(
        _lengths(database, sweep, metric_name, scores.choices, {label.case for label in ratings}),
        sorted(float(level) for level in rubric_of(judge)),
        () if own else families,
        # Without `own`, recorded calls say which answers are of the judge's family: judges are known to prefer those.
        _named(own, scores.choices) if own else _of_families(database, sweep, scores.choices, families),
    )
    return judge_check.check(database, sweep, scores, metric_name, ratings, scale, margin=margin, judged_by=judged_by)


def _named(own: Sequence[str], choices: Sequence[Mapping[str, str]]) -> set[int]:
    """Return the combinations with any of these variants. Raises InputError for a variant that no row has."""
    numbers: set[int] = set()
    for text in own:
        node, _, variant = text.partition("=")
        rows = {number for number, choice in enumerate(choices) if choice.get(node) == variant}
        if not rows:
            variant_names = sorted({f"{name}={variant}" for choice in choices for name, variant in choice.items()})
            raise InputError(f"own has {text!r:.100}, which no row has{did_you_mean(text, variant_names)}")
        numbers |= rows
    return numbers


def _of_families(
    database: Database, sweep: SweepRow, choices: Sequence[Mapping[str, str]], families: Sequence[str]
) -> set[int] | None:
    """Return the combinations in which a varied node called a model of these families; None if no call shows it."""
    # Only nodes that vary can make a row differ from another: what all rows share favours none.
    varied = {node for node in choices[0] if len({choice[node] for choice in choices}) > 1} if choices else set()
    called = [call for call in models_called(database, sweep.id) if call[0] in varied]
    if not (called and families):
        return None
    own = {(node, variant) for node, variant, model in called if family_of(model) in families}
    return {number for number, choice in enumerate(choices) if not own.isdisjoint(choice.items())}


def _lengths(
    database: Database, sweep: SweepRow, metric: str, choices: Sequence[Mapping[str, str]], cases: Set[int]
) -> dict[tuple[int, int, int], int]:
    """Return the lengths of the judged texts of these cases, by combination, case and repeat."""
    _, judge = judge_of(sweep, metric)
    lengths: dict[tuple[int, int, int], int] = {}
    for name, number in evidence.case_numbers(database, sweep.id).items():
        # One case at a time: the states of a whole sweep may not fit into memory.
        if number in cases:
            for cell in cell_documents(database, sweep.id, statuses=("succeeded",), case=name):
                state = cell["state"]
                text = text_of(state.get(judge["field"]) if "field" in judge else state)
                lengths[choices.index(cell["combination"]), number, cell["repeat"]] = len(text)
    return lengths
