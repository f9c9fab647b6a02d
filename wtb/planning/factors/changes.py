"""Changes of single levels, as forks and added rows make them: `answer.model=mini` instead of a whole variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wtb.authoring.nodes import Node, Variant
from wtb.core.errors import InputError, quoted_names
from wtb.core.factors.factors import base_name, factors_of
from wtb.core.factors.file_levels import file_reference, with_texts
from wtb.core.factors.level_names import canonical, level_label, point_name
from wtb.core.values import Json
from wtb.planning.binding import Bound
from wtb.planning.factors.expansion import read_level
from wtb.planning.factors.references import names_label
from wtb.planning.factors.variant_forms import VariantRef

Form = str | Mapping[str, Json]  # a variant, as a sweep file has it


def with_changed_levels(
    bound: Bound, forms: Mapping[str, Form], chosen: Sequence[Mapping[str, str]], *, typed: bool = True
) -> dict[str, Form]:
    """Replace levels by variants among what somebody chooses for nodes.

    Args:
        bound: The sweep with its code.
        forms: Node -> variant, or `node.parameter` -> level.
        chosen: Combinations, node -> variant, whose other levels hold.
        typed: Whether a level that is text was typed, and may be a number; else it is text if the parameter takes text.

    Returns:
        Node -> variant: the name of one that the sweep has, else a grid point with these levels.

    Raises:
        InputError: If a node takes no such parameter or level, or combinations choose several variants of it.
    """
    nodes = bound.workflow.nodes
    found = {key: form for key, form in forms.items() if _factor(nodes, key) is None}
    changes: dict[str, dict[str, Any]] = {}
    for key, level in forms.items():
        if (factor := _factor(nodes, key)) is not None:
            node, parameter = factor
            if node in found:
                raise InputError(f"{key!r} and {node!r}: choose the variant, or levels of the variant that it has")
            changes.setdefault(node, {})[parameter] = level
    for node, levels in changes.items():
        found[node] = _changed(bound, nodes[node], levels, chosen, typed=typed)
    return found


def _factor(nodes: Mapping[str, Node], key: str) -> tuple[str, str] | None:
    """Return the node and the parameter of a key; None if it is a node, or nothing that is known."""
    node, _, parameter = key.rpartition(".")
    return (node, parameter) if key not in nodes and node in nodes else None


def _changed(
    bound: Bound, node: Node, levels: Mapping[str, Json], chosen: Sequence[Mapping[str, str]], *, typed: bool
) -> Form:
    """Return a variant of a node with other levels than the one that combinations choose."""
    names = list(dict.fromkeys(choices.get(node.name, node.default) for choices in chosen))
    if len(names) > 1:
        raise InputError(
            f"several variants of node {node.name!r} are chosen here, so a level alone does not say which one is "
            f"changed: {quoted_names(names)}; choose a whole variant"
        )
    name = names[0] if names else node.default
    refs = _refs(bound, node.name)
    ref = next((one for one in refs if one.name == name), None)
    base = node[name]
    changed = dict(ref.levels) if ref is not None else {}
    for parameter, level in levels.items():
        changed[parameter] = _level(refs, bound.spec.texts, base, parameter, level, typed=typed)
    of = ref.of if ref is not None and ref.levels else None if name == node.default else name
    source = ref.source if ref is not None and ref.levels else None
    variant_name = point_name(changed, base_name(of, source))
    if variant_name in node.variants:
        return variant_name
    pairs: list[Json] = [[parameter, level] for parameter, level in changed.items()]
    return {
        key: value for key, value in {"name": variant_name, "of": of, "with": source, "levels": pairs}.items() if value
    }


def _refs(bound: Bound, node: str) -> list[VariantRef]:
    listed = bound.spec.variants.get(node, ())
    return [*(one for one in listed if isinstance(one, VariantRef)), *bound.spec.fork_variants.get(node, ())]


def _level(
    refs: Sequence[VariantRef], texts: Mapping[str, str], base: Variant, parameter: str, level: Any, *, typed: bool
) -> Json:
    """Return a level of the sweep that a text names, else what a text is for the type of the parameter."""
    known: dict[str, Json] = {
        canonical(one.levels[parameter]): one.levels[parameter] for one in refs if parameter in one.levels
    }
    if file_reference(level) is not None:  # the same text under the same name is the same level, wherever it lies
        same = [one for one in known.values() if level_label(one) == level_label(level)]
        level = same[0] if same else level
    elif isinstance(level, str):
        named = [
            one for one in known.values() if names_label(level, level_label(one)) or with_texts(one, texts) == level
        ]
        if not typed:
            named = [one for one in named if isinstance(one, str)]
        if len(named) == 1:
            return named[0]
        if typed or base.parameter_problems("", parameter, [level]):
            level = read_level(base, parameter, level)
    problems = base.parameter_problems(f"node {base.node!r}", parameter, with_texts([level], texts))
    if problems:
        raise InputError(*(text for _, text in problems))
    return level  # type: ignore[no-any-return]


def unchecked_levels(bound: Bound) -> list[str]:
    """Return a sentence for each factor that a node takes only because it takes any parameter."""
    sentences = []
    for factors in factors_of(bound.spec.as_stored()["vary"]).values():
        for factor in factors:
            node = bound.workflow.nodes.get(factor.node)
            variants = [] if node is None else [node[name] for level in factor.levels for name in level.variants]
            if any(factor.parameter not in variant.parameters[0] for variant in variants):
                name = factor.parameter
                sentences.append(f"node {factor.node!r} takes parameters of any name, so {name!r} is not checked")
    return sentences
