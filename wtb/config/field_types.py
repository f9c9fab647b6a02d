"""Types of single values of a sweep file: names, texts, durations, sizes, conditions."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from wtb.config.yaml_reader import Loc, Located, key_text
from wtb.core import units
from wtb.core.errors import describe, did_you_mean
from wtb.core.expressions import UnreadableExpression, parse_condition
from wtb.core.serialization.plain_json import unstorable

MAX_PROBLEMS = 20  # as many as fit on one screen

# Keys that had another name in earlier versions.
_RENAMED: Mapping[Loc, str] = {
    ("tolerance",): "'margin' now",
    ("best", "indifferent"): "'margin' now, which is by metric: write margin: {METRIC: NUMBER} at the top of the file",
}

# The models of a file by the path of their key; the whole file is at ().
Sections = Mapping[Loc, type[BaseModel]]

# Expected values by pydantic's type of error; other types keep pydantic's own message.
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
    """Return the error for a value that is not as expected."""
    return PydanticCustomError("expected", "not expected", {"expected": what})


def problem(text: str, at: Loc = ()) -> PydanticCustomError:
    """Return the error for a value, or its part `at`, that has a problem: "something found; something expected"."""
    return PydanticCustomError("problem", "a problem", {"text": text, "at": at})


def lines(error: ValidationError, located: Located, sections: Sections, except_at: Collection[Loc] = ()) -> list[str]:
    """Return the first MAX_PROBLEMS problems, in the order of the file, and how many more there are.

    Args:
        error: The error of pydantic.
        located: The place of the values.
        sections: Every model that forbids unknown keys or requires some.
        except_at: Entries of lists whose problems the caller reports itself.
    """
    placed = [(_loc(details), details) for details in error.errors(include_url=False)]
    placed = [(loc, details) for loc, details in placed if loc[:2] not in except_at]
    # pydantic also calls a list too short if its entries are wrong (redundant).
    placed = [(loc, details) for loc, details in placed if details["type"] != "too_short" or not details["input"]]
    if document := located.document:
        placed.sort(key=lambda place: document.line(place[0]))
    texts = [_line(located, loc, details, sections) for loc, details in placed[:MAX_PROBLEMS]]
    if len(placed) > MAX_PROBLEMS:
        texts.append(f"and {len(placed) - MAX_PROBLEMS:,} more problems")
    return texts


def _loc(error: ErrorDetails) -> Loc:
    """Return the path of keys in the file, without pydantic's own marks (tags of unions start with NUL)."""
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
    """Return the part of a message that suggests the intended key."""
    name, fields = str(loc[-1]), sections[loc[:-1]].model_fields
    if near := did_you_mean(name, fields):
        return near
    for section, model in sections.items():
        if name in model.model_fields:
            return f"; expected under '{key_text(section)}'" if section else "; expected at the top of the file"
    return f"; expected one of: {', '.join(fields)}"


_IMPORT_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
BIGINT = 2**63 - 1  # the largest integer of a database column
MAX_ENTRIES = 10_000  # of any list but `cases`


T = TypeVar("T")


def is_import_path(text: str) -> bool:
    """Return whether `text` looks like `pkg.module:attribute`."""
    return _IMPORT_PATH.fullmatch(text) is not None


def variant_name(text: str) -> str:
    """Return the name of a variant given as `pkg.mod:fn`, which is `fn`; other names stay."""
    return re.split("[:.]", text)[-1] if is_import_path(text) else text


def name_of(name: object) -> object:
    if isinstance(name, str) and 0 < len(name.strip()) == len(name) <= 200 and name.isprintable():
        return name
    raise expected("a name of 1 to 200 printable characters")


def _text(text: object) -> object:
    if isinstance(text, str) and 0 < len(text.strip()) == len(text) <= 4096 and text.isprintable():
        return text
    raise expected("text of 1 to 4,096 printable characters")


def import_path(path: object) -> object:
    if isinstance(path, str) and is_import_path(path):
        return path
    raise expected("an import path such as 'pkg.mod:fn'")


DURATION = "a positive duration of at most 366d, such as 20ms, 60s, 2m or 1.5h"


def seconds(duration: object) -> float:
    """Return a positive duration in seconds, of at most `units.LONGEST_S`."""
    try:
        amount = units.parse_duration(duration)
    except ValueError:
        amount = 0.0
    if not 0 < amount <= units.LONGEST_S:
        raise expected(DURATION)
    return amount


def _size(size: object) -> int:
    try:
        return units.parse_size(size if isinstance(size, str | int) else "")
    except ValueError:
        raise expected(units.EXPECTED) from None


def durability_of(durability: object) -> object:
    return durability if durability == "sync" else seconds(durability)


def bounded(members: object) -> object:
    """Reject a list that is too long before each of its entries makes an error of its own."""
    if isinstance(members, list | tuple) and len(members) > MAX_ENTRIES:
        raise expected(f"at most {MAX_ENTRIES:,} entries")
    return members


def stored(value: T) -> T:
    """Reject a value that no database stores unchanged, with the place of the problem."""
    if refusal := unstorable(value):
        place, wrong = refusal
        raise problem(wrong, at=place)
    return value


def one_or_more(texts: object) -> object:
    if not isinstance(texts, str | list | tuple):
        raise expected("a variant or a list of variants")
    return (texts,) if isinstance(texts, str) else bounded(texts)


def condition(text: object) -> object:
    if not isinstance(text, str):
        raise expected("a comparison such as 'ndcg.mean >= 0.25'")
    try:
        return parse_condition(text).text
    except UnreadableExpression as error:
        raise expected(f"METRIC.STATISTIC >= NUMBER, such as 'contains.mean >= 0.9'{error.note(text)}") from None
    except ValueError as error:
        raise problem(str(error)) from None


# Tags of unions are part of pydantic's place of an error; the NUL distinguishes them from keys, which have none.
WORD, LIST, MAPPING = "\0word", "\0list", "\0mapping"


def form_of(expected_text: str, *words: str) -> Discriminator:
    """Return a discriminator that chooses the member of a union by a value's form; without `words` any text is one."""

    def form(content: object) -> str | None:
        if isinstance(content, str):
            return WORD if content in words or not words else None
        if isinstance(content, list | tuple):
            return LIST
        return MAPPING if isinstance(content, dict | BaseModel) else None

    return Discriminator(form, "expected", "not expected", {"expected": expected_text})


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


Name = Annotated[str, BeforeValidator(name_of)]
Text = Annotated[str, BeforeValidator(_text)]
VariantName = Annotated[Name, AfterValidator(variant_name)]
Seconds = Annotated[float, BeforeValidator(seconds)]
Size = Annotated[int, BeforeValidator(_size)]
Positive = Annotated[int, Field(strict=True, ge=1, le=BIGINT)]
Params = Annotated[dict[str, Any], AfterValidator(stored)]
Slots = Annotated[int, Field(strict=True, ge=1, le=units.MOST_SLOTS)]
Seed = Annotated[int, Field(strict=True, ge=0, le=BIGINT)]
NotEmpty = Field(min_length=1)
