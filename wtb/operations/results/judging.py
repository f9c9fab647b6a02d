"""Holding a judge against people: the scores of a metric against labels that people gave."""

from __future__ import annotations

from pathlib import Path

from wtb.analysis import judges
from wtb.analysis.judges import JudgeCheck
from wtb.analysis.scores import Scores
from wtb.analysis.statistics.raters.agreement import Scale
from wtb.core.arguments.checking import checked
from wtb.core.errors import InputError, did_you_mean
from wtb.operations.context import Context
from wtb.operations.results.label_files import read_labels
from wtb.store.read import evidence, queries


@checked
def check_judge(
    context: Context, ref: str, *, labels: Path, metric: str | None = None, scale: Scale = "ordinal"
) -> JudgeCheck:
    """Hold the scores of a metric against labels of people.

    Args:
        context: Where.
        ref: A sweep: its id, the beginning of it, or its name.
        labels: A CSV file, or `.jsonl`: `case`, `label`, `repeat`, `rater` and the variants of varied nodes. They have
            to be of cases that were drawn at random.
        metric: The scores; by default those that decide.
        scale: What labels are: `nominal`, `ordinal` or `interval`.

    Returns:
        How far they agree, what the scores are off by, and what people would say of each row.

    Raises:
        InputError: If there is no such sweep or metric, or the labels cannot be used.
    """
    database = context.database
    sweep = queries.find_sweep(database, ref)
    scores = Scores(database, sweep)
    known = scores.measures
    chosen = metric or scores.primary
    if chosen is None or chosen not in known:
        what = "the sweep has no scores" if chosen is None else f"the sweep has no metric {chosen!r}"
        raise InputError(f"{what}{did_you_mean(chosen or '', known) or '; expected one that it has scores of'}")
    found = read_labels(labels, scores.choices, evidence.case_numbers(database, sweep.id), known[chosen].scale)
    return judges.check(database, sweep, chosen, found, scale)
