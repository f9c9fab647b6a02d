"""Options of evaluators: whether a function takes them, and what those of built-in ones may be."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from wtb.authoring.evaluation import regex_search
from wtb.authoring.evaluation.library.safety import KINDS
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, did_you_mean
from wtb.core.mappings import Options

_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


@frozen
class Option:
    """What an option of a built-in evaluator may be.

    kind: its types. expected: that in words. least: of a number. choices: all that it may be, or that its items may
    be; none if that is open. of_names: it is a list of texts, and not an empty one. is_filled: it has no blank text, by
    which every answer would be right.
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

    def fits(self, value: object) -> bool:
        """Return whether the option may have a value."""
        if isinstance(value, bool):  # which is an int, too
            return bool in self.kinds
        if not isinstance(value, self.kinds):
            return False
        if isinstance(value, int | float):
            return self.least is None or value >= self.least
        if self.is_filled and not _is_filled(value):
            return False
        if self.of_names:
            return self._has_names(value)
        return not self.choices or value in self.choices

    def schema(self) -> dict[str, Any]:
        """Return what it may be as a JSON Schema."""
        types = [_JSON_TYPES[one] for one in self.kinds if one in _JSON_TYPES]
        items: dict[str, Any] = {"type": "string", "enum": list(self.choices)} if self.choices else {"type": "string"}
        return {
            "type": types[0] if len(types) == 1 else types,
            "description": self.expected,
            **({"minimum": self.least} if self.least is not None else {}),
            **({"items": items, "minItems": 1} if self.of_names else {}),
            **({"pattern": r"\S", "items": {"pattern": r"\S"}, "minItems": 1} if self.is_filled else {}),
            **({"enum": list(self.choices)} if self.choices and not self.of_names else {}),
        }

    def _has_names(self, names: Any) -> bool:
        every = all(isinstance(one, str) and (not self.choices or one in self.choices) for one in names)
        return bool(names) and every


def _is_filled(value: Any) -> bool:
    texts = [value] if isinstance(value, str) else value
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
    parameters = [one for one in inspect.signature(fn).parameters.values() if one.kind is one.KEYWORD_ONLY]
    rules = {**_OPTIONS, **_CHECKED_BY_OTHERS}
    return {
        "type": "object",
        "properties": {
            one.name: rules[one.name].schema() | ({} if one.default is one.empty else {"default": one.default})
            for one in parameters
        },
        "required": [one.name for one in parameters if one.default is one.empty],
    }


def takes(fn: Callable[..., Any], option: str) -> bool:
    """Return whether a function has a keyword-only argument of this name."""
    try:
        parameter = inspect.signature(fn).parameters.get(option)
    except ValueError:
        return False
    return parameter is not None and parameter.kind is parameter.KEYWORD_ONLY


def check_options(name: str, fn: Callable[..., Any], options: Options) -> None:
    """Refuse options that a function does not take, and the lack of those that it needs. Raises InputError."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except ValueError:
        return
    known = {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}
    for option in options:
        if option not in known:
            taken = ", ".join(known) or "no options"
            raise InputError(
                f"evaluator {name!r} takes no option {option!r}{did_you_mean(option, known)} (it takes: {taken})"
            )
    for parameter in known.values():
        if parameter.default is parameter.empty and parameter.name not in options:
            raise InputError(f"evaluator {name!r} needs the option {parameter.name!r}")


def check_built_in(name: str, options: Options) -> None:
    """Refuse options of a built-in evaluator that can give no score. Raises InputError."""
    for option, value in options.items():
        rule = _OPTIONS.get(option)
        if rule is not None and value is not None and not rule.fits(value):
            raise InputError(f"evaluator {name!r}: {option!r} is {value!r:.50}; expected {rule.expected}")
    if (pattern := options.get("pattern")) is not None and (wrong := regex_search.pattern_problem(pattern)):
        raise InputError(f"evaluator {name!r}: 'pattern' is {wrong}")
    if "schema" in options:
        _check_schema(name, options["schema"])
    if options.get("dialect"):
        _check_dialect(name, options["dialect"])


def _check_schema(name: str, schema: Any) -> None:
    from wtb.authoring.evaluation.json_schemas import check_schema  # which takes its time to import

    try:
        check_schema(schema)
    except InputError as error:
        raise InputError(*(f"evaluator {name!r}: {text}" for text in error.problems)) from None


def _check_dialect(name: str, dialect: Any) -> None:
    from sqlglot.dialects.dialect import Dialect, Dialects

    known = [one.value for one in Dialects if one.value]
    if not isinstance(dialect, str) or Dialect.get(dialect) is None:
        near = did_you_mean(dialect, known) if isinstance(dialect, str) else ""
        raise InputError(
            f"evaluator {name!r}: 'dialect' is {dialect!r:.50}{near or '; expected one that sqlglot knows'}"
        )
