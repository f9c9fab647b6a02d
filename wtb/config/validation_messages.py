"""Validation messages: one line for each error that pydantic finds in a user's input.

Validators raise `expected(...)` or `problem(...)`; `lines` turns a ValidationError into
lines that name the place, the value and what was expected, with near matches for unknown keys.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from wtb.config.yaml_reader import Loc, Located, key_text
from wtb.core.errors import describe, did_you_mean

MAX_PROBLEMS = 20  # as many as fit on one screen

# Keys that had another name in earlier versions.
_RENAMED: Mapping[Loc, str] = {
    ("tolerance",): "'margin' now",
    ("best", "indifferent"): "'margin' now, which is by metric: write margin: {METRIC: NUMBER} at the top of the file",
}

# The models of a file by the path of their key; the whole file is at ().
Sections = Mapping[Loc, type[BaseModel]]

# What was expected, by pydantic's type of error; types that are not listed keep pydantic's own message.
_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "tuple_type": "a list",
    "invalid_key": "text",
    "too_short": "at least one entry",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "expected": "{expected}",
}


def expected(what: str) -> PydanticCustomError:
    """The value is not what is expected."""
    return PydanticCustomError("expected", "not expected", {"expected": what})


def problem(text: str, at: Loc = ()) -> PydanticCustomError:
    """The value, or what it holds at `at`, has `text`: something found; something expected."""
    return PydanticCustomError("problem", "a problem", {"text": text, "at": at})


def lines(error: ValidationError, located: Located, sections: Sections, except_at: Collection[Loc] = ()) -> list[str]:
    """The first MAX_PROBLEMS problems, in the order of the file, and how many more there are.

    `sections` holds every model that forbids unknown keys or requires some. `except_at`: entries of lists whose
    problems the caller names itself.
    """
    placed = [(_loc(details), details) for details in error.errors(include_url=False)]
    placed = [(loc, details) for loc, details in placed if loc[:2] not in except_at]
    # pydantic also calls a list too short if its entries are wrong (redundant).
    placed = [(loc, details) for loc, details in placed if details["type"] != "too_short" or not details["input"]]
    if document := located.document:
        placed.sort(key=lambda item: document.line(item[0]))
    texts = [_line(located, loc, details, sections) for loc, details in placed[:MAX_PROBLEMS]]
    if len(placed) > MAX_PROBLEMS:
        texts.append(f"and {len(placed) - MAX_PROBLEMS:,} more problems")
    return texts


def _loc(error: ErrorDetails) -> Loc:
    """The path of keys in the file, without pydantic's own marks (tags of unions start with NUL)."""
    parts = (*error["loc"], *error.get("ctx", {}).get("at", ()))
    return tuple(part for part in parts if part != "[key]" and not str(part).startswith("\0"))


def _line(located: Located, loc: Loc, error: ErrorDetails, sections: Sections) -> str:
    context = error.get("ctx", {})
    key = key_text(loc)
    kind = error["type"]
    if kind == "problem":
        text = f"'{key}' has {context['text']}"
    elif kind == "missing":
        field = sections[loc[:-1]].model_fields[str(loc[-1])]
        text = f"key '{key}' is missing; expected {field.description}"
    elif kind == "extra_forbidden" and loc in _RENAMED:
        text = f"key '{key}' is called {_RENAMED[loc]}"
    elif kind == "extra_forbidden":
        text = f"key '{key}' is not known{_near(loc, sections)}"
    else:
        expected_text = _EXPECTED[kind].format(**context) if kind in _EXPECTED else error["msg"]
        text = f"'{key}' is {describe(error['input'])}; expected {expected_text}"
    return located.problem(loc, text)


def _near(loc: Loc, sections: Sections) -> str:
    """What an unknown key may have been meant to be."""
    name, fields = str(loc[-1]), sections[loc[:-1]].model_fields
    if near := did_you_mean(name, fields):
        return near
    for section, model in sections.items():
        if name in model.model_fields:
            return f"; expected under '{key_text(section)}'" if section else "; expected at the top of the file"
    return f"; expected one of: {', '.join(fields)}"
