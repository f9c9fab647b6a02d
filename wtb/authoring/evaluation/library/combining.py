"""Evaluators of others: what passes if one does not, if all do or any does, and the weighted mean of several."""

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
from wtb.core.classes.frozen import frozen
from wtb.core.mappings import Options
from wtb.core.scoring.judgement import CALLS_AT_ONCE
from wtb.core.scoring.reasons import Score
from wtb.core.scoring.scales import PASS_OR_FAIL
from wtb.core.scoring.threshold import Threshold

FAILED, USD = "failed", "usd"  # metrics of judges beside their score


@dataclass
class Asked:
    """What the judges among evaluators that are combined took.

    usd: US dollars, or why they are not known. spent: how much of it now, None where nobody knows. failed: of each
    judge that was asked, the share without a usable reply. versions: of the models that answered. reasons: of parts
    that do not have the best score, and of judges.
    """

    usd: float | Unscored = 0.0
    spent: float | None = 0.0
    failed: list[float] = field(default_factory=list)
    versions: set[str] = field(default_factory=set)
    reasons: list[str] = field(default_factory=list)

    def add(self, given: Options) -> None:
        """Count what an evaluator returned that asked judges, besides its score."""
        cost, failed = given.get(USD), given.get(FAILED)
        if isinstance(cost, Priced):
            self.spent = None if self.spent is None or cost.spent is None else self.spent + cost.spent
            if not isinstance(self.usd, Unscored):
                self.usd = cost.value if isinstance(cost.value, Unscored) else self.usd + cost.value
        if isinstance(failed, float | int):
            self.failed.append(failed)

    def score_of(self, given: float | Unscored | Versioned) -> float | Unscored:
        """The score that it returned, whose version is noted."""
        if not isinstance(given, Versioned):
            return given
        if given.version is not None:
            self.versions |= set(given.version.split(", "))
        if given.reason is not None:
            self.reasons.append(given.reason)
        return given.value

    def note(self, part: Evaluator, score: float, reason: str | None) -> None:
        """Keep the reason for the score of a part that does not have the best one."""
        self.reasons.append(f"{part.name} is {score:g}" if reason is None else f"{part.name}: {reason}")

    def with_score(self, score: float | Unscored) -> dict[str, float | Unscored | Versioned | Priced]:
        """The metrics of an evaluator that may ask judges: its score, what they cost, and how often they failed."""
        failed = {FAILED: fmean(self.failed)} if self.failed else {}
        versions = ", ".join(sorted(self.versions)) or None
        return {"": Versioned(score, versions, self.reason), USD: Priced(self.usd, self.spent), **failed}

    @property
    def reason(self) -> str | None:
        """The reasons of all parts, a line each."""
        return "\n".join(self.reasons) or None


@frozen
class Part:
    """One of the evaluators that are combined.

    weight: in a weighted mean. threshold: of a judge's score. asks: whether it asks judges.
    """

    evaluator: Evaluator
    weight: float = 1.0
    threshold: Threshold | None = None
    asks: bool = False

    def score(self, case: ScoredCase, result: CellResult, asked: Asked) -> float | Unscored:
        """Its score; why there is none, where a judge gave none."""
        if not self.asks:
            returned = self.evaluator.fn(case, result)
            score = self.evaluator.judged(float(returned))
            if score < 1.0:
                asked.note(self.evaluator, score, self._reason(returned, case, result))
            return score
        return self.counted(self.ask(case, result), asked)

    def _reason(self, returned: object, case: ScoredCase, result: CellResult) -> str | None:
        if isinstance(returned, Score):
            return returned.reason
        return None if self.evaluator.explain is None else self.evaluator.explain(case, result)

    def ask(self, case: ScoredCase, result: CellResult) -> Any:
        """What its judges say, which nobody has counted yet."""
        return self.evaluator.fn(case, result)

    def counted(self, returned: Any, asked: Asked) -> float | Unscored:
        """The score that is in what its judges said."""
        given = returned if isinstance(returned, Mapping) else {"": returned}
        asked.add(given)
        score = asked.score_of(given[""])
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
    def negated(asked: Asked) -> float | Unscored:
        score = _negated(of[0].score(case, result, asked))
        if score == 0.0 and not of[0].asks:
            asked.reasons = [f"{of[0].evaluator.name} passes, and must not"]
        return score

    return _combined(of, negated)


@lacks_expected_by(_parts_lack)
@evaluator(better="higher", scale=PASS_OR_FAIL)
def all_of(case: ScoredCase, result: CellResult, *, of: Sequence[Part]) -> Combined:
    return _combined(of, lambda asked: _negated(_any(_negated(one.score(case, result, asked)) for one in of)))


@lacks_expected_by(_parts_lack)
@evaluator(better="higher", scale=PASS_OR_FAIL)
def any_of(case: ScoredCase, result: CellResult, *, of: Sequence[Part]) -> Combined:
    return _combined(of, lambda asked: _any(one.score(case, result, asked) for one in of))


@lacks_expected_by(_parts_lack)
@evaluator(better="higher", scale=PASS_OR_FAIL)
def weighted_mean(case: ScoredCase, result: CellResult, *, of: Sequence[Part]) -> Combined:
    return _combined(of, lambda asked: _mean(of, _scores(of, case, result, asked)))


@lacks_expected_by(_assertions_lack)
@evaluator(better="higher", scale=PASS_OR_FAIL)
def assertions(case: ScoredCase, result: CellResult, *, read: Callable[[object], Sequence[Part]]) -> Combined:
    of = read(assertions_of(case.expected))
    return _combined(of, lambda asked: _mean(of, _scores(of, case, result, asked)))


def _combined(of: Sequence[Part], score: Callable[[Asked], float | Unscored]) -> Combined:
    asked = Asked()
    found = score(asked)
    if any(one.asks for one in of):
        return asked.with_score(found)
    assert not isinstance(found, Unscored), "only judges give no score"
    return found if found == 1.0 else Score(found, asked.reason)


def _scores(of: Sequence[Part], case: ScoredCase, result: CellResult, asked: Asked) -> list[float | Unscored]:
    """The scores of parts of which all count, so that their judges are asked at the same time."""
    asking = [one for one in of if one.asks]
    with ThreadPoolExecutor(min(max(len(asking), 1), CALLS_AT_ONCE)) as threads:
        said = threads.map(lambda one: one.ask(case, result), asking)
        return [one.counted(next(said), asked) if one.asks else one.score(case, result, asked) for one in of]


def _negated(score: float | Unscored) -> float | Unscored:
    return score if isinstance(score, Unscored) else float(score != 1.0)


def _any(scores: Iterable[float | Unscored]) -> float | Unscored:
    """1 where any is, whatever others would have said; the rest is not asked for. Else why one is missing, else 0."""
    missing: Unscored | None = None
    for score in scores:
        if score == 1.0:
            return 1.0
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
    """The evaluators of a case, as they are written; None where it has none."""
    return expected.get(ASSERT) if isinstance(expected, Mapping) else None
