"""The forms of variants in a sweep file, and of what chooses among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

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
    import_path,
    is_import_path,
    one_or_more,
    stored,
    variant_name,
)
from wtb.config.validation_messages import expected, problem
from wtb.core.factors.factors import levels_of
from wtb.core.values import Json
from wtb.planning.factors.grids import Grid, are_variants, is_range, read_grid, read_listed_grid

SETTLED = "settled"  # key of a validation context: keys with dots are nodes
_UNSETTLED, _VARIANT, _GRID = "\0unsettled", "\0variant", "\0grid"  # tags, as in `field_types`


class VariantRef(Strict):
    """One variant of a varied node.

    With `source` (an import path), `of` (the variant it derives from) or `params` the sweep makes it;
    otherwise it is the workflow's own of that name. levels: of a grid point, whose parameters they are, in declared
    order.
    """

    name: Name
    source: Annotated[str, BeforeValidator(import_path)] | None = Field(default=None, validation_alias="with")
    of: VariantName | None = None
    params: dict[str, Json] = {}
    levels: dict[str, Json] = {}

    @property
    def is_own(self) -> bool:
        """Whether the workflow must have it."""
        return self.source is None and self.of is None and not self.params

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        extra = {"with": self.source, "of": self.of}
        fields = {"name": self.name} | {key: text for key, text in extra.items() if text}
        # As pairs, since PostgreSQL keeps no order of keys.
        return fields | ({"levels": [list(pair) for pair in self.levels.items()]} if self.levels else self.params)


class Unsettled(Strict):
    """What stands under a key with a dot, before the names of nodes are known.

    Under `vary` these are variants of a node, or levels of a parameter; elsewhere the name of a variant, or a level.
    """

    written: Any

    @model_serializer
    def _as_written(self) -> Any:
        return self.written


def _variant(item: object) -> object:
    """The three ways to write a variant, as the fields of VariantRef."""
    if isinstance(item, VariantRef):
        return item
    if isinstance(item, str):
        return {"name": variant_name(item), "with": item if is_import_path(item) else None}
    if not isinstance(item, dict):
        raise expected("the name of a variant, an import path 'pkg.mod:fn', a mapping with 'name' or a grid of levels")
    if item.get("with") is not None and item.get("of") is not None:
        raise problem("both 'with' and 'of'; expected one of them")
    own = {key: item[key] for key in ("name", "with", "of") if key in item}
    if levels := levels_of(item):  # a grid point, as it is stored
        return own | {"params": stored(levels), "levels": levels}
    return own | {"params": stored({key: value for key, value in item.items() if key not in own})}


def distinct(refs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse a variant of the same name, or an evaluator with the same options, as one before it."""
    seen: set[str] = set()
    for position, ref in enumerate(refs):
        key = ref.name if isinstance(ref, VariantRef) else repr(ref)
        if key in seen:
            what = "the same grid" if isinstance(ref, Grid) else f"'{ref.name}'"
            raise problem(f"{what} a second time; expected each once", at=(position,))
        seen.add(key)
    return refs


def _entry_form(item: object) -> str:
    is_grid = isinstance(item, Grid) or (isinstance(item, dict) and "name" not in item)
    return _GRID if is_grid else _VARIANT


def _vary_form(value: object) -> str | None:
    if isinstance(value, Unsettled):
        return _UNSETTLED
    if isinstance(value, str):
        return WORD if value == "all" else None
    if isinstance(value, list | tuple):
        return LIST
    return MAPPING if isinstance(value, dict | BaseModel) else None


def _choice_form(value: object) -> str:
    return _UNSETTLED if isinstance(value, Unsettled) else WORD


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


def mark_vary(value: object, info: ValidationInfo) -> object:
    """Mark what stands under keys of `vary` with a dot, unless it can only be variants of a node."""
    if not isinstance(value, Mapping) or SETTLED in (info.context or ()):
        return value
    return {
        key: Unsettled(written=list(one) if isinstance(one, tuple) else one)
        if isinstance(key, str) and "." in key and _may_be_levels(one)
        else one
        for key, one in value.items()
    }


def _may_be_levels(value: object) -> bool:
    if value != "all" and isinstance(value, str | int | float):
        return True  # a single level, or a single variant: neither is a list
    return is_range(value) or (isinstance(value, list | tuple) and bool(value) and not are_variants(value))


def mark_choices(value: object, info: ValidationInfo) -> object:
    """Mark what stands under keys with a dot in a mapping that chooses variants."""
    if not isinstance(value, Mapping) or SETTLED in (info.context or ()):
        return value
    return {
        key: Unsettled(written=stored(one)) if isinstance(key, str) and "." in key and one != [] else one
        for key, one in value.items()
    }


Rule = Annotated[dict[Name, _Choices], NotEmpty, BeforeValidator(mark_choices)]
