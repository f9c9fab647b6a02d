"""Choices of variants by levels, such as `baseline: {answer.model: mini}` and `--combination answer.model=mini`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from wtb.config.field_types import name_of, variant_name
from wtb.config.yaml_reader import Loc
from wtb.core.errors import meant_or_known, quoted_names
from wtb.core.factors import SCHEME, canonical, file_reference, labels_of, level_label
from wtb.core.values import Json
from wtb.planning.variant_forms import Unsettled, VariantRef

Variants = Mapping[str, Literal["all"] | Sequence[VariantRef]]
Report = Callable[[Loc, str], None]


def resolve_choices(
    variants: Variants, choices: Mapping[str, Any], like: Mapping[str, str], place: Loc, report: Report
) -> dict[str, str]:
    """Replace levels by variants in a mapping that chooses one variant of each node.

    Args:
        variants: Node -> its variants.
        choices: Node -> variant, or `node.parameter` -> level.
        like: Node -> the variant whose levels apply to parameters that are not chosen.
        place: The place of the choices in the sweep file.
        report: Called with the place and the text of each problem.

    Returns:
        Node -> variant.
    """
    by_node: dict[str, str] = {}
    for node, names in _resolve(variants, choices, place, report).items():
        refs = {ref.name: ref for ref in variants.get(node, ()) if isinstance(ref, VariantRef)}
        near = refs.get(like.get(node, ""))
        by_node[node] = max(names, key=lambda name: _in_common(refs.get(name), near)) if len(names) > 1 else names[0]
    return by_node


def _in_common(ref: VariantRef | None, other: VariantRef | None) -> int:
    if ref is None or other is None:
        return 0
    return sum(canonical(level) == canonical(other.levels.get(name)) for name, level in ref.levels.items())


def resolve_rule(variants: Variants, rule: Mapping[str, Any], place: Loc, report: Report) -> dict[str, tuple[str, ...]]:
    """Replace levels by all variants that have them, in a mapping that names one or more for each key."""
    return {node: tuple(names) for node, names in _resolve(variants, rule, place, report).items()}


def _resolve(variants: Variants, choices: Mapping[str, Any], place: Loc, report: Report) -> dict[str, list[str]]:
    """Return node -> the names of the variants that match all choices for it, in the order of the sweep."""
    by_node: dict[str, list[str]] = {}
    keys_by_node: dict[str, list[str]] = {}
    for key, written in choices.items():
        node, names = _names(variants, key, written, (*place, key), report)
        if names is not None:
            # Several factors of one node narrow its variants down together.
            keys_by_node.setdefault(node, []).append(key)
            by_node[node] = [name for name in by_node[node] if name in names] if node in by_node else names
    for node, names in by_node.items():
        if not names:
            keys = " and ".join(map(repr, keys_by_node[node]))
            text = f"no variant of node {node!r} fits {keys}; expected levels that one of them has together"
            report((*place, keys_by_node[node][-1]), text)
    return {node: names for node, names in by_node.items() if names}


def _names(variants: Variants, key: str, written: Any, place: Loc, report: Report) -> tuple[str, list[str] | None]:
    """Return the node of a key, and the variants that it names; None if there was a problem."""
    if not isinstance(written, Unsettled):
        return key, [written] if isinstance(written, str) else list(written)
    values = written.written if isinstance(written.written, list) else [written.written]
    if key in variants:
        names = [variant_name(reference) for reference in values if _is_name(reference)]
        if len(names) == len(values):
            return key, names
    node, _, parameter = key.rpartition(".")
    refs = [ref for ref in variants.get(node, ()) if isinstance(ref, VariantRef) and parameter in ref.levels]
    if not refs:
        candidates = [*variants, *(f"{node}.{name}" for node, name in _factors(variants))]
        report(place, f"no node or factor {key!r} under 'vary'{meant_or_known(key, candidates)}")
        return node, None
    levels = {canonical(ref.levels[parameter]): ref.levels[parameter] for ref in refs}
    matched: set[str] = set()
    for reference in values:
        matches = _matching(list(levels.values()), reference)
        # A text that names two levels chooses none, rather than the first one.
        if len(matches) != 1:
            labels = [level_label(level) for level in matches or levels.values()]
            text = f"no level {level_label(reference)} of {key!r}{meant_or_known(level_label(reference), labels)}"
            if matches:
                text = f"{level_label(reference)} of {key!r} is ambiguous; expected one of: {quoted_names(labels)}"
            report(place, text)
            return node, None
        matched.add(canonical(matches[0]))
    return node, [ref.name for ref in refs if canonical(ref.levels[parameter]) in matched]


def _is_name(reference: object) -> bool:
    return isinstance(reference, str) and bool(reference.strip()) and name_of(reference) is reference


def _factors(variants: Variants) -> dict[tuple[str, str], None]:
    return {
        (node, parameter): None
        for node, refs in variants.items()
        for ref in refs
        if isinstance(ref, VariantRef)
        for parameter in ref.levels
    }


def _matching(levels: Sequence[Json], reference: Any) -> list[Json]:
    """Return the levels that equal a value, else those that a text names: by label, or by file."""
    # An equal value comes first: the text of one level may be the label of another.
    equal = [level for level in levels if canonical(level) == canonical(reference)]
    if equal or not isinstance(reference, str):
        return equal
    return [level for level in levels if names_label(reference, level_label(level)) or _names_path(reference, level)]


def _names_path(text: str, level: Json) -> bool:
    reference = file_reference(level)
    return reference is not None and text.removeprefix(SCHEME) == reference.path


def names_label(text: str, label: str) -> bool:
    """Return whether a typed text names the level of a label: in full, or without its hash."""
    if text in (label, label.rpartition("#")[0]) or level_label(text) == label:
        return True
    is_path = text.startswith(SCHEME) and file_reference(text) is None  # one that was read is named by its text, too
    return is_path and text.rpartition("/")[2] == label.rpartition("#")[0]


def matching_levels(every: Sequence[Mapping[str, str]], key: str, text: str) -> list[str] | None:
    """Find the labels of a factor that a text names.

    Args:
        every: Combinations, node -> variant.
        key: `node.parameter`.
        text: A typed level.

    Returns:
        The labels, several if the text is ambiguous; None if no combination has such a factor.
    """
    labels = dict.fromkeys(label for choices in every if (label := labels_of(choices).get(key)) is not None)
    if not labels:
        return None
    # A whole label is never ambiguous, although another one without its hash may read the same.
    exact = [label for label in labels if label == text]
    return exact or [label for label in labels if names_label(text, label)]


def is_step_of(variants: Variants) -> Callable[[str, str, str], bool]:
    """Return a function that decides whether two variants of a node differ in at most one factor of the same grid."""
    points = {
        (node, ref.name): (ref.of, ref.source, {name: canonical(level) for name, level in ref.levels.items()})
        for node, refs in variants.items()
        for ref in refs
        if isinstance(ref, VariantRef) and ref.levels
    }

    def is_step(node: str, variant: str, other: str) -> bool:
        first, second = points.get((node, variant)), points.get((node, other))
        if first is None or second is None:
            return True
        *base, levels = first
        *other_base, other_levels = second
        return (
            base != other_base or sum(levels.get(name) != other_levels.get(name) for name in levels | other_levels) <= 1
        )

    return is_step
