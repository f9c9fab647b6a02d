"""Variants that do the same: a sweep would run one of them twice, and compare it with itself."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

from wtb.authoring.nodes import Variant
from wtb.core.errors import InputError
from wtb.planning.factors.variant_forms import VariantRef


def equal_variants(refs: Sequence[VariantRef], variants: Mapping[str, Variant]) -> list[tuple[int, str]]:
    """Find grid points that do the same as another variant.

    Args:
        refs: The variants of a node, as its sweep has them.
        variants: The same as the workflow has them, by name.

    Returns:
        The number of each that equals one before it, and a line that names both.
    """
    if not any(ref.levels for ref in refs):
        return []  # people may want to compare a variant with itself
    seen: dict[Any, VariantRef] = {}
    problems: list[tuple[int, str]] = []
    for number, ref in enumerate(refs):
        if (variant := variants.get(ref.name)) is None:
            continue
        first = seen.setdefault(_identity(variant), ref)
        if first is not ref and (first.levels or ref.levels):
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
        parameters = variant.parameters[0]
    except InputError:
        parameters = {}
    defaults = {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    arguments = json.dumps({**defaults, **variant.params}, sort_keys=True, default=repr)
    return getattr(fn, "fingerprint", None) or (fn if getattr(fn, "__hash__", None) else id(fn)), arguments
