"""Forms of variants in a sweep file, grids of levels under `vary`, and choices among them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from decimal import Decimal
from functools import lru_cache
from itertools import product
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    model_serializer,
)

from wtb.config.field_types import (
    LIST,
    MAPPING,
    WORD,
    Name,
    NotEmpty,
    Strict,
    VariantName,
    bounded,
    condition,
    expected,
    import_path,
    is_import_path,
    name_of,
    one_or_more,
    problem,
    stored,
    variant_name,
)
from wtb.core.errors import describe
from wtb.core.expressions import Condition, parse_condition
from wtb.core.factors import canonical, level_label, levels_of
from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import unstorable
from wtb.core.values import Json

MAX_POINTS: Final = 10_000  # of a node: each is a variant
_RANGE = frozenset(("from", "to", "steps"))
_LARGEST_FLOAT = 1e16  # PostgreSQL returns larger ones as integers


class Grid(Strict):
    """Levels of parameters of a node. Each combination of them is a variant.

    Attributes:
        source: The import path that the variants derive from, as in `VariantRef`.
        of: The variant that they derive from.
        levels: The levels of each parameter, in declared order.
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


def read_grid(form: object) -> object:
    """Read a mapping of parameters to levels as the fields of Grid."""
    if isinstance(form, Grid) or not isinstance(form, dict):
        return form
    if "name" in form:
        raise problem("'name'; expected a list of variants, or a grid, in which each parameter has a list of levels")
    own = {key: form[key] for key in ("with", "of") if key in form}
    if len(own) == 2 and None not in own.values():
        raise problem("both 'with' and 'of'; expected one of them")
    parameters = {str(key): levels for key, levels in form.items() if key not in own}
    if not parameters:
        raise problem("no parameters; expected a list of levels for at least one")
    return own | {"levels": {name: levels_under(name, levels) for name, levels in parameters.items()}}


def read_listed_grid(form: object) -> object:
    """Read a grid that is an entry of a list, in which a mapping may also be a variant without its name."""
    if isinstance(form, dict) and not any(isinstance(levels, list | tuple | dict) for levels in form.values()):
        raise problem(
            "no 'name'; expected the name of the variant, or a grid, in which each parameter has a list of levels"
        )
    return read_grid(form)


def levels_under(parameter: str, levels: object, at: tuple[str, ...] | None = None) -> tuple[Any, ...]:
    """Read the levels of a parameter: a list, or a range. `at` is the place of problems below the validated value."""
    place = (parameter,) if at is None else at
    if not parameter.isidentifier():
        raise problem(f"no parameter of a function: {describe(parameter)}; expected a name such as 'model'", at=place)
    if isinstance(levels, Mapping) and set(levels) & _RANGE:
        return _range(levels, place)
    if isinstance(levels, tuple):
        levels = list(levels)
    if not isinstance(levels, list):
        like = f", such as [{levels}]" if isinstance(levels, str | int | float) and len(str(levels)) <= 40 else ""
        raise problem(f"{describe(levels)}; expected a list of levels{like}, or a range {{from, to, steps}}", at=place)
    if not levels:
        raise problem("an empty list; expected at least one level", at=place)
    if len(levels) > MAX_POINTS:
        raise problem(f"{len(levels):,} levels; expected at most {MAX_POINTS:,}", at=place)
    seen: dict[str, int] = {}
    for number, level in enumerate(levels):
        _check_level(level, (*place, number))
        if seen.setdefault(canonical(level), number) != number:
            raise problem(f"the level {level_label(level)} a second time; expected each once", at=(*place, number))
    return tuple(levels)


def _check_level(level: object, place: tuple[str | int, ...]) -> None:
    """Reject values that are not JSON, or that a database would return as something else."""
    if refusal := unstorable(level):
        raise problem(refusal[1], at=(*place, *refusal[0]))
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


def _range(bounds: Mapping[Any, Any], place: tuple[str, ...]) -> tuple[Any, ...]:
    """Return the levels of `{from, to, steps}`: evenly spaced numbers, both ends included."""
    if set(bounds) != _RANGE:
        wrong = next((key for key in bounds if key not in _RANGE), None)
        text = f"unknown key {describe(wrong)} of a range" if wrong is not None else "an incomplete range"
        raise problem(f"{text}; expected {{from: 0, to: 1, steps: 5}}", at=place)
    ends = [bounds["from"], bounds["to"]]
    for key, end in zip(("from", "to"), ends, strict=True):
        if isinstance(end, bool) or not isinstance(end, int | float) or not math.isfinite(end):
            raise problem(f"{describe(end)}; expected a finite number", at=(*place, key))
        _check_level(end, (*place, key))
    steps = bounds["steps"]
    if isinstance(steps, bool) or not isinstance(steps, int) or not 2 <= steps <= MAX_POINTS:
        raise problem(f"{describe(steps)}; expected a number of levels from 2 to {MAX_POINTS:,}", at=(*place, "steps"))
    if ends[0] == ends[1]:
        raise problem(f"a range from {ends[0]} to itself; expected different ends", at=place)
    are_whole = all(isinstance(end, int) for end in ends)
    # Decimals, so that 0.1 to 0.5 in five steps has 0.3 and not 0.30000000000000004 in names of variants.
    first, last = (Decimal(str(end)) for end in ends)
    exact = [first + (last - first) * step / (steps - 1) for step in range(steps)]
    return tuple(int(number) if are_whole and number == number.to_integral() else float(number) for number in exact)


def is_range(levels: object) -> bool:
    """Return whether a value under `vary` is meant to be a range of levels; `from` is no name of a parameter."""
    return isinstance(levels, Mapping) and "from" in levels


def are_variants(members: object) -> bool:
    """Return whether a list can only contain variants: each entry has a name, as in stored sweeps."""
    return isinstance(members, Sequence) and all(
        "name" in member if isinstance(member, Mapping) else hasattr(member, "name") for member in members
    )


KEYS_ARE_NODES = "settled"  # key of a validation context: keys with dots are nodes
_UNSETTLED, _VARIANT, _GRID = "\0unsettled", "\0variant", "\0grid"  # tags, as in `field_types`


class VariantRef(Strict):
    """One variant of a varied node.

    With `source`, `of` or `params` the sweep makes it; otherwise the workflow must have a variant of that name.

    Attributes:
        name: Its name.
        source: The import path that it is made from.
        of: The variant that it derives from.
        params: Its parameters.
        levels: For a grid point, its levels by parameter, in declared order.
    """

    name: Name
    source: Annotated[str, BeforeValidator(import_path)] | None = Field(default=None, validation_alias="with")
    of: VariantName | None = None
    params: dict[str, Json] = {}
    levels: dict[str, Json] = {}

    @property
    def is_own(self) -> bool:
        """True if the workflow itself must have it."""
        return self.source is None and self.of is None and not self.params

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        extra = {"with": self.source, "of": self.of}
        fields = {"name": self.name} | {key: text for key, text in extra.items() if text}
        # As pairs, since PostgreSQL keeps no order of keys.
        return fields | ({"levels": [list(pair) for pair in self.levels.items()]} if self.levels else self.params)


class Unsettled(Strict):
    """The content of a key with a dot, before the names of nodes are known.

    Under `vary` it is variants of a node, or levels of a parameter; elsewhere the name of a variant, or a level.
    """

    written: Any

    @model_serializer
    def _as_written(self) -> Any:
        return self.written


def _variant(form: object) -> object:
    """Convert the three ways to write a variant to the fields of VariantRef."""
    if isinstance(form, VariantRef):
        return form
    if isinstance(form, str):
        return {"name": variant_name(form), "with": form if is_import_path(form) else None}
    if not isinstance(form, dict):
        raise expected("the name of a variant, an import path 'pkg.mod:fn', a mapping with 'name' or a grid of levels")
    if form.get("with") is not None and form.get("of") is not None:
        raise problem("both 'with' and 'of'; expected one of them")
    own = {key: form[key] for key in ("name", "with", "of") if key in form}
    if levels := levels_of(form):  # a grid point, as it is stored
        return own | {"params": stored(levels), "levels": levels}
    return own | {"params": stored({key: parameter for key, parameter in form.items() if key not in own})}


def distinct(refs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Reject a variant with the same name, or an evaluator with the same options, as an earlier one."""
    seen: set[str] = set()
    for position, ref in enumerate(refs):
        key = ref.name if isinstance(ref, VariantRef) else repr(ref)
        if key in seen:
            what = "the same grid" if isinstance(ref, Grid) else f"'{ref.name}'"
            raise problem(f"{what} a second time; expected each once", at=(position,))
        seen.add(key)
    return refs


def _entry_form(form: object) -> str:
    is_grid = isinstance(form, Grid) or (isinstance(form, dict) and "name" not in form)
    return _GRID if is_grid else _VARIANT


def _vary_form(vary: object) -> str | None:
    if isinstance(vary, Unsettled):
        return _UNSETTLED
    if isinstance(vary, str):
        return WORD if vary == "all" else None
    if isinstance(vary, list | tuple):
        return LIST
    return MAPPING if isinstance(vary, dict | BaseModel) else None


def _choice_form(choice: object) -> str:
    return _UNSETTLED if isinstance(choice, Unsettled) else WORD


def _single(grid: object) -> object:
    return (grid,)


_Grid = Annotated[Grid, BeforeValidator(read_grid)]
_Variants = Annotated[
    tuple[
        Annotated[
            Annotated[VariantRef, BeforeValidator(_variant), Tag(_VARIANT)]
            | Annotated[Grid, BeforeValidator(read_listed_grid), Tag(_GRID)],
            Discriminator(_entry_form),
        ],
        ...,
    ],
    NotEmpty,
    BeforeValidator(bounded),
    AfterValidator(distinct),
]
Vary = Annotated[
    Annotated[Literal["all"], Tag(WORD)]
    | Annotated[_Variants, Tag(LIST)]
    | Annotated[_Grid, AfterValidator(_single), Tag(MAPPING)]
    | Annotated[Unsettled, Tag(_UNSETTLED)],
    Discriminator(
        _vary_form, "expected", "not expected", {"expected": "the word 'all', a list of variants or a grid of levels"}
    ),
]
Choice = Annotated[
    Annotated[VariantName, Tag(WORD)] | Annotated[Unsettled, Tag(_UNSETTLED)], Discriminator(_choice_form)
]
_Choices = Annotated[
    Annotated[tuple[VariantName, ...], NotEmpty, BeforeValidator(one_or_more), Tag(WORD)]
    | Annotated[Unsettled, Tag(_UNSETTLED)],
    Discriminator(_choice_form),
]


def mark_vary(vary: object, info: ValidationInfo) -> object:
    """Mark the content of keys of `vary` with a dot, unless it can only be variants of a node."""
    if not isinstance(vary, Mapping) or KEYS_ARE_NODES in (info.context or ()):
        return vary
    return {
        key: Unsettled(written=list(content) if isinstance(content, tuple) else content)
        if isinstance(key, str) and "." in key and _may_be_levels(content)
        else content
        for key, content in vary.items()
    }


def _may_be_levels(levels: object) -> bool:
    if levels != "all" and isinstance(levels, str | int | float):
        return True  # a single level, or a single variant: neither is a list
    return is_range(levels) or (isinstance(levels, list | tuple) and bool(levels) and not are_variants(levels))


def mark_choices(choices: object, info: ValidationInfo) -> object:
    """Mark the content of keys with a dot in a mapping that chooses variants."""
    if not isinstance(choices, Mapping) or KEYS_ARE_NODES in (info.context or ()):
        return choices
    return {
        key: Unsettled(written=stored(content)) if isinstance(key, str) and "." in key and content != [] else content
        for key, content in choices.items()
    }


Rule = Annotated[dict[Name, _Choices], NotEmpty, BeforeValidator(mark_choices)]


NO_WORSE_THAN: Final = "no_worse_than"  # not worse than a baseline
_LONGEST = 2_000
_OF_ROWS = re.compile(r'((?:[^":]|"(?:[^"\\]|\\.)*"|:(?!\s))+):\s+(.*)', re.DOTALL)
_CHOICE = re.compile(r'\s*([^=,"]+?)\s*=\s*("(?:[^"\\]|\\.)*"|[\[{]\S*?(?=,\s|\s*$)|[^,"]+?)\s*(?:,|$)')
_FORMS = (
    f"a comparison such as 'contains.mean >= 0.9', one of rows such as 'answer.model=mini: contains.mean >= 0.9', or "
    f"'{NO_WORSE_THAN}: NAME' of a baseline"
)


@frozen
class Gate:
    """A parsed gate.

    Attributes:
        text: Its text, as it is shown and stored.
        condition: The condition that must hold; None for a gate on a baseline.
        rows: Node -> variant, or `node.parameter` -> level: the condition must hold for every row that has these. Empty
            if it is about the chosen row.
        baseline: The name of the baseline, for a gate on one.
    """

    text: str
    condition: Condition | None = None
    rows: Mapping[str, str] = field(default_factory=dict)
    baseline: str | None = None


@lru_cache(maxsize=1_024)
def parse_gate(text: str) -> Gate:
    """Parse a checked gate of a sweep: its text, as `read_gate` returned it."""
    key, _, name = text.partition(":")
    if key.strip() == NO_WORSE_THAN:
        return Gate(text, baseline=name.strip())
    rows, figures = _split(text)
    return Gate(text, parse_condition(figures), _choices(rows))


def read_gate(gate: object) -> object:
    """Check a gate of a sweep file, text or a mapping with one key, and return its text."""
    if isinstance(gate, dict) and len(gate) == 1:
        ((key, condition_text),) = gate.items()
        if key == NO_WORSE_THAN:
            return f"{NO_WORSE_THAN}: {name_of(condition_text)}"
        if isinstance(key, str) and "=" in key and isinstance(condition_text, str):
            gate = f"{key}: {condition_text}"
    if not isinstance(gate, str):
        raise expected(_FORMS)
    if len(gate) > _LONGEST:
        raise problem(f"{len(gate):,} characters; expected at most {_LONGEST:,}")
    key, _, name = gate.partition(":")
    if key.strip() == NO_WORSE_THAN:
        return f"{NO_WORSE_THAN}: {name_of(name.strip())}"
    rows, figures = _split(gate)
    checked = condition(figures)
    if not rows:
        return checked
    choices = _choices(rows)
    if not choices:
        raise expected("FACTOR=LEVEL before the colon, such as 'answer.model=mini: contains.mean >= 0.9'")
    return f"{', '.join(f'{key}={text}' for key, text in choices.items())}: {checked}"


def _split(text: str) -> tuple[str, str]:
    """Return the part that names rows, if any, and the condition."""
    match = _OF_ROWS.fullmatch(text.strip())
    return (match[1], match[2]) if match is not None else ("", text)


def _choices(text: str) -> dict[str, str]:
    """Read FACTOR=LEVEL, ...; a level with a comma is in double quotes. Returns an empty mapping for any other text."""
    choices: dict[str, str] = {}
    place = 0
    while place < len(text):
        match = _CHOICE.match(text, place)
        if match is None or match[1] in choices:
            return {}
        choices[match[1]] = _as_label(match[2])
        place = match.end()
    return choices


def _as_label(text: str) -> str:
    """Return a level without unnecessary quotes."""
    label = level_label(level := unquoted(text))
    return text if label == text else level


def unquoted(text: str) -> str:
    """Return the content of double quotes, decoded as JSON; any other text unchanged."""
    if not text.startswith('"'):
        return text
    try:
        content = json.loads(text)
    except ValueError:
        return text
    return content if isinstance(content, str) else text
