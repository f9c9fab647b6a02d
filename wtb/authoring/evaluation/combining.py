"""Evaluators that combine others: not, all, any, the weighted mean, and the assertions of cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from wtb.authoring.evaluation.evaluators import (
    CellResult,
    Evaluator,
    Priced,
    ScoredCase,
    Unscored,
    Versioned,
    evaluator,
)
from wtb.authoring.evaluation.fields import ASSERT, lacks_expected_by
from wtb.core.frozen import frozen
from wtb.core.scoring.measure import Threshold
from wtb.core.scoring.scores import CALLS_AT_ONCE, PASS_OR_FAIL, Score
from wtb.core.values import Options

FAILED, USD = "failed", "usd"  # metrics of judges beside their score


@dataclass
class Asked:
    """Costs, failures and reasons, summed over the judges among combined evaluators.

    Attributes:
        usd: US dollars, or the reason why they are unknown.
        spent: The part of it that was spent now; None if unknown.
        failed: The share of replies that were not usable, of each judge that was asked.
        versions: Versions of the models that answered.
        reasons: Reasons of judges, and of parts that do not have the best score.
    """

    usd: float | Unscored = 0.0
    spent: float | None = 0.0
    failed: list[float] = field(default_factory=list)
    versions: set[str] = field(default_factory=set)
    reasons: list[str] = field(default_factory=list)

    def add(self, metrics: Options) -> None:
        """Add the cost and the failures that an evaluator with judges returned besides its score."""
        cost, failed = metrics.get(USD), metrics.get(FAILED)
        if isinstance(cost, Priced):
            self.spent = None if self.spent is None or cost.spent is None else self.spent + cost.spent
            if not isinstance(self.usd, Unscored):
                self.usd = cost.value if isinstance(cost.value, Unscored) else self.usd + cost.value
        if isinstance(failed, float | int):
            self.failed.append(failed)

    def score_of(self, score: float | Unscored | Versioned) -> float | Unscored:
        """Return the score itself, and note its version and its reason."""
        if not isinstance(score, Versioned):
            return score
        if score.version is not None:
            self.versions |= set(score.version.split(", "))
        if score.reason is not None:
            self.reasons.append(score.reason)
        return score.value

    def note(self, part: Evaluator, score: float, reason: str | None) -> None:
        """Keep the reason for the score of a part that does not have the best one."""
        self.reasons.append(f"{part.name} is {score:g}" if reason is None else f"{part.name}: {reason}")

    def with_score(self, score: float | Unscored) -> dict[str, float | Unscored | Versioned | Priced]:
        """Return the metrics of an evaluator with judges: its score, their cost, and how often they failed."""
        failed = {FAILED: fmean(self.failed)} if self.failed else {}
        versions = ", ".join(sorted(self.versions)) or None
        return {"": Versioned(score, versions, self.reason), USD: Priced(self.usd, self.spent), **failed}

    @property
    def reason(self) -> str | None:
        """Return the reasons of all parts, one on each line."""
        return "\n".join(self.reasons) or None


@frozen
class Part:
    """One of the evaluators that are combined.

    Attributes:
        evaluator: The evaluator.
        weight: Its weight in a weighted mean.
        threshold: The threshold for a judge's score.
        asks: It asks judges.
    """

    evaluator: Evaluator
    weight: float = 1.0
    threshold: Threshold | None = None
    asks: bool = False

    def score(self, case: ScoredCase, result: CellResult, judging: Asked) -> float | Unscored:
        """Return its score, or the reason why a judge gave none."""
        if not self.asks:
            returned = self.evaluator.fn(case, result)
            score = self.evaluator.judged(float(returned))
            if score < 1.0:
                judging.note(self.evaluator, score, self._reason(returned, case, result))
            return score
        return self.counted(self.ask(case, result), judging)

    def _reason(self, returned: object, case: ScoredCase, result: CellResult) -> str | None:
        if isinstance(returned, Score):
            return returned.reason
        return None if self.evaluator.explain is None else self.evaluator.explain(case, result)

    def ask(self, case: ScoredCase, result: CellResult) -> Any:
        """Ask its judges and return their replies, which `counted` adds up later."""
        return self.evaluator.fn(case, result)

    def counted(self, returned: Any, judging: Asked) -> float | Unscored:
        """Add up the replies of its judges, and return the score among them."""
        metrics = returned if isinstance(returned, Mapping) else {"": returned}
        judging.add(metrics)
        score = judging.score_of(metrics[""])
        if isinstance(score, Unscored):
            return score
        score = self.evaluator.judged(float(score))
        return score if self.threshold is None else float(self.threshold.passes(score))


def _lacks_any(parts: Iterable[Part], expected: object) -> bool:
    """Return whether any part needs an expected value that a case lacks.

    The whole has no score then, even if other parts decide it: scores of such cases would all be on one side.
    """
    return any(part.evaluator.lacks_expected(expected) for part in parts)


def _parts_lack(options: Options, expected: object) -> bool:
    return _lacks_any(options["of"], expected)


def _assertions_lack(options: Options, expected: object) -> bool:
    written = assertions_of(expected)
    return not written or _lacks_any(options["read"](written), expected)


Combined = float | bool | Score | dict[str, float | Unscored | Versioned | Priced]


@lacks_expected_by(_parts_lack)
@evaluator(better="higher", scale=PASS_OR_FAIL)
def not_(case: ScoredCase, result: CellResult, *, of: Sequence[Part]) -> Combined:
    def negated(judging: Asked) -> float | Unscored:
        score = _negated(of[0].score(case, result, judging))
        if score == 0.0 and not of[0].asks:
            judging.reasons = [f"{of[0].evaluator.name} passes, and must not"]
        return score

    return _combined(of, negated)


@lacks_expected_by(_parts_lack)
@evaluator(better="higher", scale=PASS_OR_FAIL)
def all_of(case: ScoredCase, result: CellResult, *, of: Sequence[Part]) -> Combined:
    # All pass exactly if none fails, so `_any` also stops at the first part that fails here.
    return _combined(of, lambda judging: _negated(_any(_negated(part.score(case, result, judging)) for part in of)))


@lacks_expected_by(_parts_lack)
@evaluator(better="higher", scale=PASS_OR_FAIL)
def any_of(case: ScoredCase, result: CellResult, *, of: Sequence[Part]) -> Combined:
    return _combined(of, lambda judging: _any(part.score(case, result, judging) for part in of))


@lacks_expected_by(_parts_lack)
@evaluator(better="higher", scale=PASS_OR_FAIL)
def weighted_mean(case: ScoredCase, result: CellResult, *, of: Sequence[Part]) -> Combined:
    return _combined(of, lambda judging: _mean(of, _scores(of, case, result, judging)))


@lacks_expected_by(_assertions_lack)
@evaluator(better="higher", scale=PASS_OR_FAIL)
def assertions(case: ScoredCase, result: CellResult, *, read: Callable[[object], Sequence[Part]]) -> Combined:
    of = read(assertions_of(case.expected))
    return _combined(of, lambda judging: _mean(of, _scores(of, case, result, judging)))


def _combined(of: Sequence[Part], score: Callable[[Asked], float | Unscored]) -> Combined:
    judging = Asked()
    combined_score = score(judging)
    if any(part.asks for part in of):
        return judging.with_score(combined_score)
    assert not isinstance(combined_score, Unscored), "only judges give no score"
    return combined_score if combined_score == 1.0 else Score(combined_score, judging.reason)


def _scores(of: Sequence[Part], case: ScoredCase, result: CellResult, judging: Asked) -> list[float | Unscored]:
    """Score parts that all count. Their judges are therefore asked at the same time."""
    asking = [part for part in of if part.asks]
    with ThreadPoolExecutor(min(max(len(asking), 1), CALLS_AT_ONCE)) as threads:
        replies = threads.map(lambda part: part.ask(case, result), asking)
        return [part.counted(next(replies), judging) if part.asks else part.score(case, result, judging) for part in of]


def _negated(score: float | Unscored) -> float | Unscored:
    return score if isinstance(score, Unscored) else float(score != 1.0)


def _any(scores: Iterable[float | Unscored]) -> float | Unscored:
    """Return 1 as soon as any score is 1, without asking for the rest; else why one is missing, or 0 if none is."""
    missing: Unscored | None = None
    for score in scores:
        if score == 1.0:
            return 1.0
        # A later part may still decide the whole, so a missing score does not end the loop.
        missing = missing or (score if isinstance(score, Unscored) else None)
    return missing or 0.0


def _mean(of: Sequence[Part], scores: Sequence[float | Unscored]) -> float | Unscored:
    total = 0.0
    for part, score in zip(of, scores, strict=True):
        if isinstance(score, Unscored):
            return score
        total += part.weight * score
    return total / sum(part.weight for part in of)


def assertions_of(expected: object) -> object:
    """Return the evaluators of a case, as they are written; None if it has none."""
    return expected.get(ASSERT) if isinstance(expected, Mapping) else None
