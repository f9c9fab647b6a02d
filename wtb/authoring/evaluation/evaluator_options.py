"""Options of evaluators: what those of built-in ones may be, thresholds, and the parts of combined ones."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import lru_cache, partial
from typing import Any

from wtb.authoring.evaluation import regex_search
from wtb.authoring.evaluation.built_in import BUILT_IN, COMBINING
from wtb.authoring.evaluation.combining import Part, all_of, any_of, assertions, assertions_of, not_, weighted_mean
from wtb.authoring.evaluation.evaluators import EVALUATION_S, Evaluator
from wtb.authoring.evaluation.similarity import KINDS
from wtb.core.errors import InputError, describe, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.scoring.measure import Threshold
from wtb.core.scoring.scores import CALLS_AT_ONCE, PASS_OR_FAIL, returns_bool
from wtb.core.values import Options

_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


@frozen
class Option:
    """The values that an option of a built-in evaluator may have.

    Attributes:
        kind: Its types.
        expected: The same in words.
        least: The least value of a number.
        choices: All values that it, or each of its items, may have; empty if any will do.
        of_names: It is a list of texts, and not an empty one.
        is_filled: It may hold no blank text, by which every answer would be right.
    """

    kind: type | tuple[type, ...]
    expected: str
    least: float | None = None
    choices: tuple[str, ...] = ()
    of_names: bool = False
    is_filled: bool = False

    @property
    def kinds(self) -> tuple[type, ...]:
        return self.kind if isinstance(self.kind, tuple) else (self.kind,)

    def fits(self, setting: object) -> bool:
        """Return whether the option may have a value."""
        if isinstance(setting, bool):  # which is an int, too
            return bool in self.kinds
        if not isinstance(setting, self.kinds):
            return False
        if isinstance(setting, int | float):
            return self.least is None or setting >= self.least
        if self.is_filled and not _is_filled(setting):
            return False
        if self.of_names:
            return self._has_names(setting)
        return not self.choices or setting in self.choices

    def schema(self) -> dict[str, Any]:
        """Return what it may be as a JSON Schema."""
        types = [_JSON_TYPES[kind] for kind in self.kinds if kind in _JSON_TYPES]
        item_schema: dict[str, Any] = (
            {"type": "string", "enum": list(self.choices)} if self.choices else {"type": "string"}
        )
        return {
            "type": types[0] if len(types) == 1 else types,
            "description": self.expected,
            **({"minimum": self.least} if self.least is not None else {}),
            **({"items": item_schema, "minItems": 1} if self.of_names else {}),
            **({"pattern": r"\S", "items": {"pattern": r"\S"}, "minItems": 1} if self.is_filled else {}),
            **({"enum": list(self.choices)} if self.choices and not self.of_names else {}),
        }

    def _has_names(self, names: Any) -> bool:
        every = all(isinstance(name, str) and (not self.choices or name in self.choices) for name in names)
        return bool(names) and every


def _is_filled(setting: Any) -> bool:
    texts = [setting] if isinstance(setting, str) else setting
    return bool(texts) and not any(isinstance(text, str) and not text.strip() for text in texts)


def _one_of(*choices: str) -> Option:
    return Option(str, f"one of {', '.join(choices)}", choices=choices)


def _names(expected: str, *choices: str) -> Option:
    return Option((list, tuple), f"a list of {expected}", choices=choices, of_names=True)


_YES_OR_NO = Option(bool, "true or false")
_NOT_NEGATIVE = Option((int, float), "a number from 0 on", least=0)
_OPTIONS: Mapping[str, Option] = {
    "field": Option(str, "the name of a key of the state"),
    "ignore_case": _YES_OR_NO,
    "ignore_order": _YES_OR_NO,
    "text": Option((str, list, tuple), "a text or a list of texts, none of them blank", is_filled=True),
    "positive": Option((str, int, bool), "the class that is positive"),
    "pattern": Option(str, "a regular expression that is not blank", is_filled=True),
    "abs": _NOT_NEGATIVE,
    "rel": _NOT_NEGATIVE,
    "k": Option(int, "a whole number of at least 1", least=1),
    "variant": _one_of("1", "2", "L"),
    "figure": _one_of("f1", "precision", "recall"),
    "tokenize": _one_of("13a", "char", "intl", "zh", "none"),
    "order": _one_of("any", "in_order", "exact"),
    "tools": _names("names of tools"),
    "nodes": _names("names of nodes"),
    "kinds": _names(", ".join(KINDS), *KINDS),
    "word_order": Option(int, "a whole number of at least 0", least=0),
}

_CHECKED_BY_OTHERS: Mapping[str, Option] = {  # by libraries that know what they are
    "schema": Option(dict, "a JSON Schema"),
    "dialect": Option(str, "a dialect that sqlglot knows"),
}


def options_schema(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the options of a built-in evaluator that combines no others, as the JSON Schema of an object."""
    parameters = [
        parameter for parameter in inspect.signature(fn).parameters.values() if parameter.kind is parameter.KEYWORD_ONLY
    ]
    rules = {**_OPTIONS, **_CHECKED_BY_OTHERS}
    return {
        "type": "object",
        "properties": {
            parameter.name: rules[parameter.name].schema()
            | ({} if parameter.default is parameter.empty else {"default": parameter.default})
            for parameter in parameters
        },
        "required": [parameter.name for parameter in parameters if parameter.default is parameter.empty],
    }


def takes(fn: Callable[..., Any], option: str) -> bool:
    """Return whether a function has a keyword-only argument of this name."""
    try:
        parameter = inspect.signature(fn).parameters.get(option)
    except ValueError:
        return False
    return parameter is not None and parameter.kind is parameter.KEYWORD_ONLY


def check_options(name: str, fn: Callable[..., Any], options: Options) -> None:
    """Check that a function takes all options, and that none is missing. Raises InputError."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except ValueError:
        return
    allowed = {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}
    for option in options:
        if option not in allowed:
            listed = ", ".join(allowed) or "no options"
            raise InputError(
                f"evaluator {name!r} takes no option {option!r}{did_you_mean(option, allowed)} (it takes: {listed})"
            )
    for parameter in allowed.values():
        if parameter.default is parameter.empty and parameter.name not in options:
            raise InputError(f"evaluator {name!r} needs the option {parameter.name!r}")


def check_built_in(name: str, options: Options) -> None:
    """Reject options of a built-in evaluator with which no cell gets a score. Raises InputError."""
    for option, setting in options.items():
        rule = _OPTIONS.get(option)
        if rule is not None and setting is not None and not rule.fits(setting):
            raise InputError(f"evaluator {name!r}: {option!r} is {setting!r:.50}; expected {rule.expected}")
    if (pattern := options.get("pattern")) is not None and (wrong := regex_search.pattern_problem(pattern)):
        raise InputError(f"evaluator {name!r}: 'pattern' is {wrong}")
    if "schema" in options:
        from wtb.authoring.evaluation.json_schemas import check_schema  # which takes its time to import

        as_problems(name, partial(check_schema, options["schema"]))
    if options.get("dialect"):
        _check_dialect(name, options["dialect"])


def as_problems(name: str, check: Callable[[], Any]) -> Any:
    """Run a check of options and return its result. Raises InputError that names the evaluator."""
    try:
        return check()
    except InputError as error:
        raise InputError(*(f"evaluator {name!r}: {text}" for text in error.problems)) from None


def _check_dialect(name: str, dialect: Any) -> None:
    from sqlglot.dialects.dialect import Dialect, Dialects

    dialects = [member.value for member in Dialects if member.value]
    if not isinstance(dialect, str) or Dialect.get(dialect) is None:
        near = did_you_mean(dialect, dialects) if isinstance(dialect, str) else ""
        raise InputError(
            f"evaluator {name!r}: 'dialect' is {dialect!r:.50}{near or '; expected one that sqlglot knows'}"
        )


KEYS = ("at_least", "at_most")


def read_threshold(name: str, fn: Callable[..., Any], options: Options) -> Threshold | None:
    """Read the threshold in the options of an evaluator, unless the function itself has options of these names.

    Raises:
        InputError: An end is no finite number, no score could pass, or a scale is given beside it.
    """
    ends = {key: options[key] for key in KEYS if key in options and not takes(fn, key)}
    if not ends:
        return None
    for key, end in ends.items():
        if isinstance(end, bool) or not isinstance(end, int | float) or not math.isfinite(end):
            raise InputError(f"evaluator {name!r}: {key!r} is {end!r:.50}; expected a finite number, such as 0.5")
    if "scale" in options and not takes(fn, "scale"):
        raise InputError(f"evaluator {name!r}: both 'scale' and {next(iter(ends))!r}; what passes or fails has its own")
    threshold = Threshold(**ends)
    if threshold.at_least > threshold.at_most:
        raise InputError(
            f"evaluator {name!r}: 'at_least' is {threshold.at_least:g} and 'at_most' {threshold.at_most:g}; "
            "expected the lower end first, since no score passes"
        )
    return threshold


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
    """Return the options of a combined evaluator, with its parts as evaluators.

    Args:
        name: That of a combined evaluator: one of `COMBINING`.
        options: With the parts in `of`; those of `not` may stand there without it, those of `assertions` are in cases.
        make: Makes an evaluator of its name and options.
        seconds: Its timeout, which its judges share.

    Raises:
        InputError: There are no parts, or one of them cannot be combined so.
    """
    whole = {key: setting for key, setting in options.items() if key in (*_OF_THE_WHOLE, *KEYS)}
    rest = {key: setting for key, setting in options.items() if key not in whole}
    seconds = EVALUATION_S if seconds is None else seconds
    if name == assertions.__name__:
        if rest:
            raise InputError(f"evaluator {name!r} takes no option {next(iter(rest))!r}; cases have what it scores by")
        return {**whole, "read": _reader(make, seconds)}
    written = rest if name == "not" and "of" not in rest else rest.pop("of", None)
    if written is not rest and rest:
        raise InputError(f"evaluator {name!r} takes no option {next(iter(rest))!r} beside 'of'")
    return {**whole, "of": _parts(name, written, make, seconds)}


def problem_of_assertions(options: Options, expected: object) -> str | None:
    """Return the problem of the assertions of a case, or None. `options` are those that `with_parts` returned."""
    written = assertions_of(expected)
    try:
        if written is not None:
            options["read"](written)
    except InputError as error:
        return "; ".join(error.problems)
    return None


@frozen
class _Written:
    """The assertions of a case. Those with the same text are equal."""

    text: str
    value: object = field(compare=False)


def _reader(make: MakeEvaluator, seconds: Any) -> Callable[[object], list[Part]]:
    """Return a cached reader of assertions, because checking an evaluator takes longer than scoring by it."""

    @lru_cache(_MOST_KEPT)
    def read(written: _Written) -> list[Part]:
        return _parts(assertions.__name__, written.value, make, seconds)

    # The cache needs keys that can be hashed, which lists and mappings cannot.
    return lambda written: read(_Written(repr(written), written))


def _parts(name: str, written: object, make: MakeEvaluator, seconds: Any) -> list[Part]:
    """Make the parts of a combined evaluator, whose judges share `seconds`."""
    parts = [written] if isinstance(written, Mapping | str) and written else written
    if not isinstance(parts, list | tuple) or not parts or (name == "not" and len(parts) > 1):
        raise InputError(f"evaluator {name!r}: 'of' is {describe(written)}; {_FORM}")
    if _depth(parts) > _DEEPEST:
        raise InputError(f"evaluator {name!r}: evaluators in evaluators, more than {_DEEPEST} deep")
    judges = [_judges(part) for part in parts]
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    whole = seconds if is_number else EVALUATION_S  # any other value is rejected for the whole
    if name in _WEIGHTED:  # where all are asked at the same time
        asking = sum(count > 0 for count in judges)
        # Judges are asked in rounds of CALLS_AT_ONCE, which share the time.
        shares = [math.ceil(asking / CALLS_AT_ONCE) ** -1 if count else 0.0 for count in judges]
    else:
        # These are asked one after another, until the result is decided.
        shares = [count / max(1, sum(judges)) for count in judges]
    return [_part(name, part, make, whole * share) for part, share in zip(parts, shares, strict=True)]


def _judges(part: object) -> int:
    """Count the judges in evaluators as they are written."""
    if isinstance(part, list | tuple):
        return sum(map(_judges, part))
    if not isinstance(part, Mapping):
        return int(part == JUDGE)
    return sum(int(key == JUDGE) or _judges(inner) for key, inner in part.items())


def _depth(document: object) -> int:
    """Measure how deep lists and mappings are nested. Documents that can be read never reach the recursion limit."""
    inner = (
        document.values() if isinstance(document, Mapping) else document if isinstance(document, list | tuple) else ()
    )
    return max((_depth(part) + 1 for part in inner), default=0)


def _part(whole: str, part: object, make: MakeEvaluator, seconds: float) -> Part:
    """Make one part. `seconds` is the time of the judges in it, 0 if there are none."""
    name, options = _name_and_options(whole, part)
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
    """Remove the threshold of a judge from its options and return it. Raises InputError.

    By default, a judge of criteria passes if most of its replies find them met.
    """
    threshold_options = {key: options.pop(key) for key in KEYS if key in options}
    if threshold_options:
        return read_threshold(JUDGE, lambda: None, threshold_options)
    return Threshold(at_least=0.5) if options.get("rubric") is None else None


def _check_judge(whole: str, evaluator: Evaluator, threshold: Threshold | None) -> None:
    """Reject a judge whose levels have no threshold, unless they are on a scale from 0 to 1."""
    ends = evaluator.scale[""] if isinstance(evaluator.scale, Mapping) else evaluator.scale
    if threshold is None and not (whole in _WEIGHTED and ends == PASS_OR_FAIL):
        raise InputError(
            f"evaluator {whole!r}: 'judge' gives a level of its rubric; expected 'at_least' or 'at_most' of it"
        )


def _name_and_options(whole: str, part: object) -> tuple[str, dict[str, Any]]:
    if isinstance(part, str):
        return part, {}
    if isinstance(part, Mapping) and len(part) == 1:
        ((name, options),) = part.items()
        if isinstance(options, list) and name in COMBINING:
            return str(name), {"of": options}
        if options is None or isinstance(options, Mapping):
            return str(name), dict(options or {})
    raise InputError(f"evaluator {whole!r}: a part is {describe(part)}; {_FORM}")


def _check_combinable(whole: str, name: str, evaluator: Evaluator) -> None:
    """Reject a part whose score must be pass or fail and is not, or is on another scale than those of other parts."""
    if evaluator.figure is not None:
        raise InputError(f"evaluator {whole!r}: {name!r} is a figure over all cells of a row, which no cell has")
    if whole in _WEIGHTED:
        ends = evaluator.scale[""] if isinstance(evaluator.scale, Mapping) else evaluator.scale
        if ends != PASS_OR_FAIL:
            raise InputError(
                f"evaluator {whole!r}: {name!r} has no scale from 0 to 1; expected 'at_least' or 'at_most' of it"
            )
    elif evaluator.threshold is None and not returns_bool(BUILT_IN[name]) and BUILT_IN[name] not in PASS_OR_FAIL_PARTS:
        hint = "expected 'at_least' or 'at_most' of it"
        raise InputError(f"evaluator {whole!r}: {name!r} gives a score, neither pass nor fail; {hint}")


def _weight(name: str, weight: object) -> float:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
        raise InputError(f"evaluator {name!r}: 'weight' is {describe(weight)}; expected a number above 0")
    return float(weight)
