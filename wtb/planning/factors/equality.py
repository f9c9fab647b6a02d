"""Variants that do the same: a sweep would run one of them twice, and compare it with itself."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

from wtb.authoring.nodes import Variant
from wtb.core.errors import InputError
from wtb.planning.factors.variant_forms import VariantRef


def equal_variants(
    refs: Sequence[VariantRef], variants: Mapping[str, Variant], *, named: bool
) -> list[tuple[int, str]]:
    """Find variants that do the same as another one.

    Args:
        refs: The variants of a node, as its sweep has them.
        variants: The same as the workflow has them, by name.
        named: Whether two variants that have names of their own count, too. They do in a new sweep. A sweep that is
            there may have them, and a name of its own is how code that has changed becomes another row.

    Returns:
        The number of each that equals one before it, and a line that names both.
    """
    seen: dict[Any, VariantRef] = {}
    problems: list[tuple[int, str]] = []
    for number, ref in enumerate(refs):
        if (variant := variants.get(ref.name)) is None:
            continue
        first = seen.setdefault(_identity(variant), ref)
        if first is not ref and (named or first.levels or ref.levels):
            text = (
                f"the variants {first.name!r} and {ref.name!r} of node {variant.node!r} are equal: the same function "
                f"with the same parameters; leave one of them out"
            )
            problems.append((number, text))
    return problems


def _identity(variant: Variant) -> Any:
    """What two variants that do the same have in common: the function, and its arguments with their defaults."""
    fn = variant.fn
    try:
        known = variant.parameters[0]
    except InputError:
        known = {}
    defaults = {name: one.default for name, one in known.items() if one.default is not inspect.Parameter.empty}
    arguments = json.dumps({**defaults, **variant.params}, sort_keys=True, default=repr)
    return getattr(fn, "fingerprint", None) or (fn if getattr(fn, "__hash__", None) else id(fn)), arguments
