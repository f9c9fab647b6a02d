"""Grids of levels, as a sweep file has them under `vary`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import product
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, model_serializer

from wtb.config.field_types import Strict, VariantName, import_path
from wtb.config.validation_messages import problem
from wtb.core.errors import describe
from wtb.core.factors.level_names import canonical, level_label
from wtb.core.serialization.storable import unstorable
from wtb.core.values import Json

MAX_POINTS: Final = 10_000  # of a node: each is a variant
_RANGE = frozenset(("from", "to", "steps"))
_LARGEST_FLOAT = 1e16  # PostgreSQL returns larger ones as integers


class Grid(Strict):
    """Levels of parameters of a node. Each combination of them is a variant.

    source, of: what the variants derive from, as in `VariantRef`. levels: of each parameter, in declared order.
    """

    source: Annotated[str, BeforeValidator(import_path)] | None = Field(default=None, validation_alias="with")
    of: VariantName | None = None
    levels: dict[str, tuple[Any, ...]]

    def __len__(self) -> int:
        return math.prod(map(len, self.levels.values()))

    def points(self) -> Iterator[dict[str, Json]]:
        """Yield its points, parameter -> level; the last parameter changes fastest."""
        for values in product(*self.levels.values()):
            yield dict(zip(self.levels, values, strict=True))

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        extra = {"with": self.source, "of": self.of}
        levels = {parameter: list(values) for parameter, values in self.levels.items()}
        return {key: text for key, text in extra.items() if text} | levels


def read_grid(item: object) -> object:
    """Read a mapping of parameters to levels as the fields of Grid."""
    if isinstance(item, Grid) or not isinstance(item, dict):
        return item
    if "name" in item:
        raise problem("'name'; expected a list of variants, or a grid, in which each parameter has a list of levels")
    own = {key: item[key] for key in ("with", "of") if key in item}
    if len(own) == 2 and None not in own.values():
        raise problem("both 'with' and 'of'; expected one of them")
    parameters = {str(key): value for key, value in item.items() if key not in own}
    if not parameters:
        raise problem("no parameters; expected a list of levels for at least one")
    return own | {"levels": {name: levels_under(name, value) for name, value in parameters.items()}}


def read_listed_grid(item: object) -> object:
    """Read a grid that is an entry of a list, in which a mapping may also be a variant without its name."""
    if isinstance(item, dict) and not any(isinstance(value, list | tuple | dict) for value in item.values()):
        raise problem(
            "no 'name'; expected the name of the variant, or a grid, in which each parameter has a list of levels"
        )
    return read_grid(item)


def levels_under(parameter: str, value: object, at: tuple[str, ...] | None = None) -> tuple[Any, ...]:
    """Read the levels of a parameter: a list, or a range. at: where problems are, below the validated value."""
    place = (parameter,) if at is None else at
    if not parameter.isidentifier():
        raise problem(f"no parameter of a function: {describe(parameter)}; expected a name such as 'model'", at=place)
    if isinstance(value, Mapping) and set(value) & _RANGE:
        return _range(value, place)
    if isinstance(value, tuple):
        value = list(value)
    if not isinstance(value, list):
        like = f", such as [{value}]" if isinstance(value, str | int | float) and len(str(value)) <= 40 else ""
        raise problem(f"{describe(value)}; expected a list of levels{like}, or a range {{from, to, steps}}", at=place)
    if not value:
        raise problem("an empty list; expected at least one level", at=place)
    if len(value) > MAX_POINTS:
        raise problem(f"{len(value):,} levels; expected at most {MAX_POINTS:,}", at=place)
    seen: dict[str, int] = {}
    for number, level in enumerate(value):
        _check_level(level, (*place, number))
        if seen.setdefault(canonical(level), number) != number:
            raise problem(f"the level {level_label(level)} a second time; expected each once", at=(*place, number))
    return tuple(value)


def _check_level(level: object, place: tuple[str | int, ...]) -> None:
    """Refuse what is not JSON, or comes back from a database as something else."""
    if found := unstorable(level):
        raise problem(found[1], at=(*place, *found[0]))
    todo = [level]
    while todo:
        part = todo.pop()
        if isinstance(part, float) and (abs(part) >= _LARGEST_FLOAT or (part == 0 and math.copysign(1, part) < 0)):
            raise problem(f"{part}, which no database keeps as a float; expected a smaller number", at=place)
        if isinstance(part, Mapping):
            todo += part.values()
        elif isinstance(part, list | tuple):
            todo += part
        elif not isinstance(part, str | int | float | None):
            raise problem(f"{describe(part)}; expected a value that JSON has", at=place)


def _range(value: Mapping[Any, Any], place: tuple[str, ...]) -> tuple[Any, ...]:
    """The levels of `{from, to, steps}`: so many numbers at equal distances, both ends included."""
    if set(value) != _RANGE:
        wrong = next((key for key in value if key not in _RANGE), None)
        text = f"unknown key {describe(wrong)} of a range" if wrong is not None else "an incomplete range"
        raise problem(f"{text}; expected {{from: 0, to: 1, steps: 5}}", at=place)
    ends = [value["from"], value["to"]]
    for key, end in zip(("from", "to"), ends, strict=True):
        if isinstance(end, bool) or not isinstance(end, int | float) or not math.isfinite(end):
            raise problem(f"{describe(end)}; expected a finite number", at=(*place, key))
        _check_level(end, (*place, key))
    steps = value["steps"]
    if isinstance(steps, bool) or not isinstance(steps, int) or not 2 <= steps <= MAX_POINTS:
        raise problem(f"{describe(steps)}; expected a number of levels from 2 to {MAX_POINTS:,}", at=(*place, "steps"))
    if ends[0] == ends[1]:
        raise problem(f"a range from {ends[0]} to itself; expected different ends", at=place)
    are_whole = all(isinstance(end, int) for end in ends)
    first, last = (Decimal(str(end)) for end in ends)
    exact = [first + (last - first) * step / (steps - 1) for step in range(steps)]
    return tuple(int(one) if are_whole and one == one.to_integral() else float(one) for one in exact)


def is_range(value: object) -> bool:
    """Return whether a value under `vary` is meant to be a range of levels; `from` is no name of a parameter."""
    return isinstance(value, Mapping) and "from" in value


def are_variants(value: object) -> bool:
    """Return whether a list can only be one of variants: each of its entries has a name, as in what is stored."""
    return isinstance(value, Sequence) and all(
        "name" in one if isinstance(one, Mapping) else hasattr(one, "name") for one in value
    )
