"""The cases of a sweep that tell most: those in which combinations differ most, and those that are hard for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from wtb.analysis.comparison.first_difference import partings
from wtb.analysis.scores import Scores
from wtb.store.database import Database
from wtb.store.read import evidence, queries
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument
    from wtb.core.documents.report import TellingCase, TellingCases, TellingEnds


EACH = 5  # cases of either kind


def worst(database: Database, sweep: SweepRow, matrix: MatrixDocument) -> TellingCases:
    """By the primary metric: cases that are hard for all, and of the others those in which combinations differ most.

    Hard is a case whose best score is worse than the mean of all scores; the hardest is that with the worst such score.
    Differing is measured by the variance between combinations. A case's figures are over the combinations that have a
    score for it. Each has the best and the worst combination, and where the paths of the two part first.
    """
    metric = matrix["primary"]
    if metric is None:
        why = "nothing was evaluated" if matrix["cells"]["succeeded"] else "no cell has succeeded"
        return {"metric": None, "better": None, "cases": [], "because": why}
    better = matrix["metrics"][metric]["better"]
    score_rows = Scores(database, sweep).case_rows(metric)
    document: TellingCases = {"metric": metric, "better": better, "cases": [], "because": None}
    if not len(score_rows):
        return {**document, "because": f"no cell has a score by {metric}"}
    order = np.lexsort((score_rows[:, 2] if better == "higher" else -score_rows[:, 2], score_rows[:, 1]))
    score_rows = score_rows[order]  # by case, worst first
    numbers, starts, counts = np.unique(score_rows[:, 1], return_index=True, return_counts=True)
    ends = starts + counts - 1
    low, high = score_rows[starts, 2], score_rows[ends, 2]
    means = np.add.reduceat(score_rows[:, 2], starts) / counts
    spreads = np.abs(high - low)
    variances = np.add.reduceat((score_rows[:, 2] - np.repeat(means, counts)) ** 2, starts) / counts
    sign = 1.0 if better == "higher" else -1.0
    middle = float(np.mean(score_rows[:, 2]))
    slack = 1e-9 * float(np.abs(score_rows[:, 2]).max())  # by which a mean of equals may be off
    order = np.lexsort((sign * means, sign * high))
    hardest = [i for i in order if sign * (middle - high[i]) > slack][:EACH]
    varied = [i for i in np.argsort(-variances, kind="stable") if spreads[i] > 0 and i not in hardest][:EACH]
    chosen: list[tuple[Literal["differ", "hard"], int]] = [("differ", int(i)) for i in varied]
    chosen += [("hard", int(i)) for i in hardest]
    if not chosen:
        return {**document, "because": f"every score by {metric} is the same"}
    names = queries.case_rows(database, sweep.id, [int(numbers[i]) for _, i in chosen])
    for why, i in chosen:
        number = int(numbers[i])
        ends_of = [(int(score_rows[at, 0]), float(score_rows[at, 2])) for at in (ends[i], starts[i])]
        document["cases"].append(
            {
                "case": names[number].id,
                "why": why,
                "n": int(counts[i]),
                "mean": float(means[i]),
                "spread": float(spreads[i]),
                **_ends(database, sweep.id, number, ends_of),
            }
        )
    _part(database, document["cases"])
    return document


def _ends(database: Database, sweep_id: str, case: int, ends: list[tuple[int, float]]) -> TellingEnds:
    """The best and the worst combination of a case, with an execution of each."""
    (best, best_score), (worst, worst_score) = ends
    if best_score == worst_score:
        return {"best": None, "worst": None, "parted": None, "because": "all combinations score the same"}
    found = evidence.executions_of(database, sweep_id, case, [best, worst])
    return {
        "best": {"combination": best, "score": best_score, "execution": found.get(best)},
        "worst": {"combination": worst, "score": worst_score, "execution": found.get(worst)},
        "parted": None,
        "because": None if found else "no repeat has an outcome for both",
    }


def _part(database: Database, cases: list[TellingCase]) -> None:
    """Where the two executions of each case part first."""
    pairs = [(one, one["best"], one["worst"]) for one in cases]
    compared = [(one, (a["execution"], b["execution"])) for one, a, b in pairs if a and b and a["execution"]]
    for (one, _), node in zip(compared, partings(database, [pair for _, pair in compared]), strict=True):
        one["parted"] = node
        one["because"] = None if node else "no node's result differs, or they were collected"
