"""Evaluators of others: what passes if one does not, if all do or any does, and the weighted mean of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from wtb.authoring.evaluation.evaluators import CellResult, Evaluator, ScoredCase, evaluator
from wtb.core.scoring.scales import PASS_OR_FAIL

ASSERT = "assert"  # the key of what is expected that holds a case's own evaluators


@dataclass(frozen=True)
class Part:
    """One of the evaluators that are combined. weight: in a weighted mean."""

    evaluator: Evaluator
    weight: float = 1.0

    def passes(self, case: ScoredCase, result: CellResult) -> bool:
        """Return whether it passes, where it gives nothing but pass or fail."""
        return self.evaluator.score_of(case, result) == 1.0


@evaluator(better="higher", scale=PASS_OR_FAIL)
def not_(case: ScoredCase, result: CellResult, *, of: Sequence[Part]) -> bool:
    return not of[0].passes(case, result)


@evaluator(better="higher", scale=PASS_OR_FAIL)
def all_of(case: ScoredCase, result: CellResult, *, of: Sequence[Part]) -> bool:
    return all(part.passes(case, result) for part in of)


@evaluator(better="higher", scale=PASS_OR_FAIL)
def any_of(case: ScoredCase, result: CellResult, *, of: Sequence[Part]) -> bool:
    return any(part.passes(case, result) for part in of)


@evaluator(better="higher", scale=PASS_OR_FAIL)
def weighted_mean(case: ScoredCase, result: CellResult, *, of: Sequence[Part]) -> float:
    return sum(part.weight * part.evaluator.score_of(case, result) for part in of) / sum(part.weight for part in of)


@evaluator(better="higher", scale=PASS_OR_FAIL)
def assertions(
    case: ScoredCase, result: CellResult, *, read: Callable[[object], Sequence[Part]]
) -> float | dict[str, float]:
    written = assertions_of(case.expected)
    return weighted_mean(case, result, of=read(written)) if written else {}  # a case without any has no score


def assertions_of(expected: object) -> object:
    """The evaluators of a case, as they are written; None where it has none."""
    return expected.get(ASSERT) if isinstance(expected, Mapping) else None
