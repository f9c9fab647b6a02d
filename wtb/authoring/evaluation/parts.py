"""The parts of a combined evaluator as a sweep file has them, such as `all_of: [{contains: ...}, {rouge: ...}]`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any

from wtb.authoring.evaluation.built_in import BUILT_IN, COMBINING
from wtb.authoring.evaluation.evaluators import EVALUATION_S, Evaluator
from wtb.authoring.evaluation.library.combining import (
    Part,
    all_of,
    any_of,
    assertions,
    assertions_of,
    not_,
    weighted_mean,
)
from wtb.authoring.evaluation.thresholds import KEYS, read_threshold
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, describe, did_you_mean
from wtb.core.mappings import Options
from wtb.core.scoring.judgement import CALLS_AT_ONCE
from wtb.core.scoring.scales import PASS_OR_FAIL, returns_bool
from wtb.core.scoring.threshold import Threshold

MakeEvaluator = Callable[[str, Options], Evaluator]
JUDGE = "judge"  # the one evaluator that is not built in and may be a part
ASKING = frozenset({JUDGE, *COMBINING})  # those that may ask a judge
_OF_THE_WHOLE = ("name", "timeout", "on_failure")
_FORM = "expected built-in evaluators, such as [contains: {field: answer, text: yes}]"
_DEEPEST = 20
_MOST_KEPT = 1_000  # of the assertions of cases; each is read once for all rows and repeats
PASS_OR_FAIL_PARTS = (not_, all_of, any_of)
_WEIGHTED = (weighted_mean.__name__, assertions.__name__)


def with_parts(name: str, options: Options, make: MakeEvaluator, seconds: Any = None) -> Options:
    """The options of a combined evaluator with its parts made.

    Args:
        name: That of a combined evaluator: one of `COMBINING`.
        options: With the parts in `of`; those of `not` may stand there without it, those of `assertions` are in cases.
        make: Makes an evaluator of its name and options.
        seconds: Its timeout, which its judges share.

    Raises:
        InputError: There are no parts, or one of them cannot be combined so.
    """
    whole = {key: value for key, value in options.items() if key in (*_OF_THE_WHOLE, *KEYS)}
    rest = {key: value for key, value in options.items() if key not in whole}
    seconds = EVALUATION_S if seconds is None else seconds
    if name == assertions.__name__:
        if rest:
            raise InputError(f"evaluator {name!r} takes no option {next(iter(rest))!r}; cases have what it scores by")
        return {**whole, "read": _reader(make, seconds)}
    given = rest if name == "not" and "of" not in rest else rest.pop("of", None)
    if given is not rest and rest:
        raise InputError(f"evaluator {name!r} takes no option {next(iter(rest))!r} beside 'of'")
    return {**whole, "of": _parts(name, given, make, seconds)}


def problem_of_assertions(options: Options, expected: object) -> str | None:
    """What is wrong with the assertions of a case, in words, by the options that `with_parts` gave."""
    written = assertions_of(expected)
    try:
        if written is not None:
            options["read"](written)
    except InputError as error:
        return "; ".join(error.problems)
    return None


@frozen
class _Written:
    """The assertions of a case, which are the same as others that are written alike."""

    text: str
    value: object = field(compare=False)


def _reader(make: MakeEvaluator, seconds: Any) -> Callable[[object], list[Part]]:
    """What reads assertions of cases, and keeps them: to check an evaluator takes longer than to score by it."""

    @lru_cache(_MOST_KEPT)
    def read(written: _Written) -> list[Part]:
        return _parts(assertions.__name__, written.value, make, seconds)

    return lambda written: read(_Written(repr(written), written))


def _parts(name: str, given: object, make: MakeEvaluator, seconds: Any) -> list[Part]:
    """The parts of a combined evaluator. seconds: for all of it, which its judges share."""
    items = [given] if isinstance(given, Mapping | str) and given else given
    if not isinstance(items, list | tuple) or not items or (name == "not" and len(items) > 1):
        raise InputError(f"evaluator {name!r}: 'of' is {describe(given)}; {_FORM}")
    if _depth(items) > _DEEPEST:
        raise InputError(f"evaluator {name!r}: evaluators in evaluators, more than {_DEEPEST} deep")
    judges = [_judges(item) for item in items]
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    whole = seconds if is_number else EVALUATION_S  # what is no number is refused of the whole
    if name in _WEIGHTED:  # where all are asked at the same time
        asking = sum(count > 0 for count in judges)
        shares = [math.ceil(asking / CALLS_AT_ONCE) ** -1 if count else 0.0 for count in judges]
    else:
        shares = [count / max(1, sum(judges)) for count in judges]
    return [_part(name, item, make, whole * share) for item, share in zip(items, shares, strict=True)]


def _judges(value: object) -> int:
    """How many judges there are in what is written."""
    if isinstance(value, list | tuple):
        return sum(map(_judges, value))
    if not isinstance(value, Mapping):
        return int(value == JUDGE)
    return sum(int(key == JUDGE) or _judges(inner) for key, inner in value.items())


def _depth(value: object) -> int:
    """How deep lists and mappings are nested. Documents that are read are never deep enough to end the recursion."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return max((_depth(one) + 1 for one in inner), default=0)


def _part(whole: str, item: object, make: MakeEvaluator, seconds: float) -> Part:
    """seconds: for the judges in it, 0 where there are none."""
    name, options = _name_and_options(whole, item)
    if name not in (*BUILT_IN, JUDGE) or name == assertions.__name__:
        near = did_you_mean(name, [*BUILT_IN, JUDGE]) or "; functions of your own are not combined"
        raise InputError(f"evaluator {whole!r}: {name!r} is no built-in evaluator{near}")
    for key in _OF_THE_WHOLE:
        if key in options:
            raise InputError(f"evaluator {whole!r}: {key!r} of its part {name!r}; expected it of {whole!r} itself")
    weight = _weight(name, options.pop("weight")) if whole in _WEIGHTED and "weight" in options else 1.0
    threshold: Threshold | None = None
    try:
        if name == JUDGE:
            threshold = _threshold_of_judge(options)
        evaluator = make(name, {**options, "timeout": seconds} if seconds else options)
    except InputError as error:
        raise InputError(*(f"evaluator {whole!r}: {text}" for text in error.problems)) from None
    if name == JUDGE:
        _check_judge(whole, evaluator, threshold)
    else:
        _check_combinable(whole, name, evaluator)
    return Part(evaluator, weight, threshold, asks=seconds > 0)


def _threshold_of_judge(options: dict[str, Any]) -> Threshold | None:
    """Take the threshold of a judge out of its options. Raises InputError.

    One that says of criteria whether they are met passes where most of its replies say so.
    """
    given = {key: options.pop(key) for key in KEYS if key in options}
    if given:
        return read_threshold(JUDGE, lambda: None, given)
    return Threshold(at_least=0.5) if options.get("rubric") is None else None


def _check_judge(whole: str, evaluator: Evaluator, threshold: Threshold | None) -> None:
    """Refuse a judge by whose levels nobody knows what passes, or that are on no scale from 0 to 1."""
    ends = evaluator.scale[""] if isinstance(evaluator.scale, Mapping) else evaluator.scale
    if threshold is None and not (whole in _WEIGHTED and ends == PASS_OR_FAIL):
        raise InputError(
            f"evaluator {whole!r}: 'judge' gives a level of its rubric; expected 'at_least' or 'at_most' of it"
        )


def _name_and_options(whole: str, item: object) -> tuple[str, dict[str, Any]]:
    if isinstance(item, str):
        return item, {}
    if isinstance(item, Mapping) and len(item) == 1:
        ((name, options),) = item.items()
        if isinstance(options, list) and name in COMBINING:
            return str(name), {"of": options}
        if options is None or isinstance(options, Mapping):
            return str(name), dict(options or {})
    raise InputError(f"evaluator {whole!r}: a part is {describe(item)}; {_FORM}")


def _check_combinable(whole: str, name: str, evaluator: Evaluator) -> None:
    """Refuse a part whose score says neither pass nor fail where it must, or is not on the scale of the others."""
    if evaluator.figure is not None:
        raise InputError(f"evaluator {whole!r}: {name!r} is a figure over all cells of a row, which no cell has")
    if whole in _WEIGHTED:
        ends = evaluator.scale[""] if isinstance(evaluator.scale, Mapping) else evaluator.scale
        if ends != PASS_OR_FAIL:
            raise InputError(
                f"evaluator {whole!r}: {name!r} has no scale from 0 to 1; expected 'at_least' or 'at_most' of it"
            )
    elif evaluator.threshold is None and not returns_bool(BUILT_IN[name]) and BUILT_IN[name] not in PASS_OR_FAIL_PARTS:
        wanted = "expected 'at_least' or 'at_most' of it"
        raise InputError(f"evaluator {whole!r}: {name!r} gives a score, neither pass nor fail; {wanted}")


def _weight(name: str, weight: object) -> float:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
        raise InputError(f"evaluator {name!r}: 'weight' is {describe(weight)}; expected a number above 0")
    return float(weight)
