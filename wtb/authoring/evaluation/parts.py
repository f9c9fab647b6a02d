"""The parts of a combined evaluator as a sweep file has them, such as `all_of: [{contains: ...}, {rouge: ...}]`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from wtb.authoring.evaluation.built_in import BUILT_IN, COMBINING
from wtb.authoring.evaluation.evaluators import Evaluator
from wtb.authoring.evaluation.library.combining import Part, assertions, assertions_of, weighted_mean
from wtb.authoring.evaluation.thresholds import KEYS
from wtb.core.errors import InputError, describe, did_you_mean
from wtb.core.scoring.scales import PASS_OR_FAIL, returns_bool

MakeEvaluator = Callable[[str, Mapping[str, Any]], Evaluator]
_OF_THE_WHOLE = ("name", "timeout", "on_failure")
_FORM = "expected built-in evaluators, such as [contains: {field: answer, text: yes}]"
_DEEPEST = 20
_MOST_KEPT = 1_000  # of the assertions of cases; each is read once for all rows and repeats
_WEIGHTED = (weighted_mean.__name__, assertions.__name__)


def with_parts(name: str, options: Mapping[str, Any], make: MakeEvaluator) -> dict[str, Any]:
    """The options of a combined evaluator with its parts made.

    Args:
        name: That of a combined evaluator: one of `COMBINING`.
        options: With the parts in `of`; those of `not` may stand there without it, those of `assertions` are in cases.
        make: Makes an evaluator of its name and options.

    Raises:
        InputError: There are no parts, or one of them cannot be combined so.
    """
    whole = {key: value for key, value in options.items() if key in (*_OF_THE_WHOLE, *KEYS)}
    rest = {key: value for key, value in options.items() if key not in whole}
    if name == assertions.__name__:
        if rest:
            raise InputError(f"evaluator {name!r} takes no option {next(iter(rest))!r}; cases have what it scores by")
        return {**whole, "read": _reader(make)}
    given = rest if name == "not" and "of" not in rest else rest.pop("of", None)
    if given is not rest and rest:
        raise InputError(f"evaluator {name!r} takes no option {next(iter(rest))!r} beside 'of'")
    return {**whole, "of": _parts(name, given, make)}


def problem_of_assertions(options: Mapping[str, Any], expected: object) -> str | None:
    """What is wrong with the assertions of a case, in words, by the options that `with_parts` gave."""
    written = assertions_of(expected)
    try:
        if written is not None:
            options["read"](written)
    except InputError as error:
        return "; ".join(error.problems)
    return None


@dataclass(frozen=True)
class _Written:
    """The assertions of a case, which are the same as others that are written alike."""

    text: str
    value: object = field(compare=False)


def _reader(make: MakeEvaluator) -> Callable[[object], list[Part]]:
    """What reads assertions of cases, and keeps them: to check an evaluator takes longer than to score by it."""

    @lru_cache(_MOST_KEPT)
    def read(written: _Written) -> list[Part]:
        return _parts(assertions.__name__, written.value, make)

    return lambda written: read(_Written(repr(written), written))


def _parts(name: str, given: object, make: MakeEvaluator) -> list[Part]:
    items = [given] if isinstance(given, Mapping | str) and given else given
    if not isinstance(items, list | tuple) or not items or (name == "not" and len(items) > 1):
        raise InputError(f"evaluator {name!r}: 'of' is {describe(given)}; {_FORM}")
    if _depth(items) > _DEEPEST:
        raise InputError(f"evaluator {name!r}: evaluators in evaluators, more than {_DEEPEST} deep")
    return [_part(name, item, make) for item in items]


def _depth(value: object) -> int:
    """How deep lists and mappings are nested. Documents that are read are never deep enough to end the recursion."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return max((_depth(one) + 1 for one in inner), default=0)


def _part(whole: str, item: object, make: MakeEvaluator) -> Part:
    name, options = _name_and_options(whole, item)
    if name not in BUILT_IN or name == assertions.__name__:
        near = did_you_mean(name, BUILT_IN) or "; functions of your own are not combined"
        raise InputError(f"evaluator {whole!r}: {name!r} is no built-in evaluator{near}")
    for key in _OF_THE_WHOLE:
        if key in options:
            raise InputError(f"evaluator {whole!r}: {key!r} of its part {name!r}; expected it of {whole!r} itself")
    weight = _weight(name, options.pop("weight")) if whole in _WEIGHTED and "weight" in options else 1.0
    try:
        made = make(name, options)
    except InputError as error:
        raise InputError(*(f"evaluator {whole!r}: {text}" for text in error.problems)) from None
    _check_combinable(whole, name, made)
    return Part(made, weight)


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


def _check_combinable(whole: str, name: str, made: Evaluator) -> None:
    """Refuse a part whose score says neither pass nor fail where it must, or is not on the scale of the others."""
    if made.figure is not None:
        raise InputError(f"evaluator {whole!r}: {name!r} is a figure over all cells of a row, which no cell has")
    if whole in _WEIGHTED:
        if made.scale != PASS_OR_FAIL:
            raise InputError(
                f"evaluator {whole!r}: {name!r} has no scale from 0 to 1; expected 'at_least' or 'at_most' of it"
            )
    elif made.threshold is None and not returns_bool(BUILT_IN[name]):
        wanted = "expected 'at_least' or 'at_most' of it"
        raise InputError(f"evaluator {whole!r}: {name!r} gives a score, neither pass nor fail; {wanted}")


def _weight(name: str, weight: object) -> float:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
        raise InputError(f"evaluator {name!r}: 'weight' is {describe(weight)}; expected a number above 0")
    return float(weight)
