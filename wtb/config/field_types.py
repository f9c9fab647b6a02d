"""What single values of a sweep file may be: names, texts, durations, sizes, conditions."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field

from wtb.config.validation_messages import expected, problem
from wtb.core import units
from wtb.core.expressions.figures import parse_condition
from wtb.core.expressions.language import UnreadableExpression
from wtb.core.serialization.storable import unstorable

_IMPORT_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
BIGINT = 2**63 - 1  # what a database column holds
MAX_ENTRIES = 10_000  # of any list but `cases`


T = TypeVar("T")


def is_import_path(text: str) -> bool:
    """Return whether `text` looks like `pkg.module:attribute`."""
    return _IMPORT_PATH.fullmatch(text) is not None


def variant_name(text: str) -> str:
    """The name that a variant given as `pkg.mod:fn` goes by: `fn`. Other names stay."""
    return re.split("[:.]", text)[-1] if is_import_path(text) else text


def name_of(value: object) -> object:
    if isinstance(value, str) and 0 < len(value.strip()) == len(value) <= 200 and value.isprintable():
        return value
    raise expected("a name of 1 to 200 printable characters")


def _text(value: object) -> object:
    if isinstance(value, str) and 0 < len(value.strip()) == len(value) <= 4096 and value.isprintable():
        return value
    raise expected("text of 1 to 4,096 printable characters")


def import_path(value: object) -> object:
    if isinstance(value, str) and is_import_path(value):
        return value
    raise expected("an import path such as 'pkg.mod:fn'")


DURATION = "a positive duration of at most 366d, such as 20ms, 60s, 2m or 1.5h"


def seconds(value: object) -> float:
    """A positive duration in seconds, of at most `units.LONGEST_S`."""
    try:
        amount = units.parse_duration(value)
    except ValueError:
        amount = 0.0
    if not 0 < amount <= units.LONGEST_S:
        raise expected(DURATION)
    return amount


def _size(value: object) -> int:
    try:
        return units.parse_size(value if isinstance(value, str | int) else "")
    except ValueError:
        raise expected(units.EXPECTED) from None


def durability_of(value: object) -> object:
    return value if value == "sync" else seconds(value)


def bounded(value: object) -> object:
    """Stops a list before each of its entries makes an error of its own."""
    if isinstance(value, list | tuple) and len(value) > MAX_ENTRIES:
        raise expected(f"at most {MAX_ENTRIES:,} entries")
    return value


def stored(value: T) -> T:
    """Refuses what no database keeps as it is, where it stands."""
    if refusal := unstorable(value):
        place, wrong = refusal
        raise problem(wrong, at=place)
    return value


def one_or_more(value: object) -> object:
    if not isinstance(value, str | list | tuple):
        raise expected("a variant or a list of variants")
    return (value,) if isinstance(value, str) else bounded(value)


def condition(value: object) -> object:
    if not isinstance(value, str):
        raise expected("a comparison such as 'ndcg.mean >= 0.25'")
    try:
        return parse_condition(value).text
    except UnreadableExpression as error:
        raise expected(f"METRIC.STATISTIC >= NUMBER, such as 'contains.mean >= 0.9'{error.note(value)}") from None
    except ValueError as error:
        raise problem(str(error)) from None


# Tags of unions are part of pydantic's place of an error; the NUL distinguishes them from keys, which have none.
WORD, LIST, MAPPING = "\0word", "\0list", "\0mapping"


def form_of(expected_text: str, *words: str) -> Discriminator:
    """Tells by its form which member of a union a value is meant to be; with no `words` any text is one."""

    def form(value: object) -> str | None:
        if isinstance(value, str):
            return WORD if value in words or not words else None
        if isinstance(value, list | tuple):
            return LIST
        return MAPPING if isinstance(value, dict | BaseModel) else None

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
