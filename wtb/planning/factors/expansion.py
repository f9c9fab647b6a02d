"""Expanding grids: what a sweep file says of levels becomes ordinary variants, once the names of nodes are known."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from pydantic_core import PydanticCustomError

from wtb.authoring.nodes import Variant
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.config.yaml_reader import Loc, parse
from wtb.core.errors import InputError, did_you_mean, meant_or_known
from wtb.core.factors.factors import base_name
from wtb.core.factors.file_levels import with_texts
from wtb.core.factors.level_names import canonical, level_label, point_name
from wtb.core.values import Json
from wtb.planning.factors.grids import MAX_POINTS, Grid, is_range, levels_under
from wtb.planning.factors.references import Variants, resolve_choices, resolve_rule
from wtb.planning.factors.variant_forms import Unsettled, VariantRef
from wtb.planning.publishing import Code
from wtb.planning.sweep_spec import SingleSpec, SweepSpec, read_node_variants

_Entry = tuple[VariantRef | Grid, Loc]  # with its place in the sweep file


@dataclass
class _Expansion:
    """What is known so far.

    Attributes:
        entries: Node -> its variants and grids, with their places; None for `all`.
        grids: Nodes whose grid comes from a mapping, or from keys with dots.
        places: (grid's place, parameter) -> the place of the parameter, if that is elsewhere.
    """

    spec: SweepSpec
    workflow: WorkflowFacts
    code: Code | None
    entries: dict[str, list[_Entry] | None] = field(default_factory=dict)
    grids: dict[str, dict[str, tuple[Any, ...]]] = field(default_factory=dict)
    places: dict[tuple[str, str], Loc] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def report(self, place: Loc, text: str) -> None:
        line = self.spec.located.problem(place, text)
        if line not in self.problems:
            self.problems.append(line)


def expand_factors(
    spec: SweepSpec, workflow: WorkflowFacts, code: Code | None = None
) -> tuple[SweepSpec, Mapping[tuple[str, int], Loc]]:
    """Replace grids by their points, and levels that are chosen by the variants that have them.

    Args:
        spec: A sweep.
        workflow: The facts of its workflow.
        code: Where import paths lead; None if the grids were checked.

    Returns:
        The sweep with variants only; and of each, by its node and number, its place in the sweep file.

    Raises:
        InputError: With everything that is wrong.
    """
    expansion = _Expansion(spec, workflow, code)
    for key, written in spec.vary.items():
        _settle(expansion, key, written)
    for node, levels in expansion.grids.items():
        expansion.entries[node] = [(Grid(levels=levels), ("vary", node))]
    for node, entries in expansion.entries.items():
        for entry, place in entries or ():
            if isinstance(entry, Grid) and code is not None:
                _check_grid(expansion, node, entry, place)
    if expansion.problems:
        raise InputError(*expansion.problems)
    vary, places = _points(expansion)
    expanded = spec.model_copy(update={"vary": vary})
    if expansion.problems:
        raise InputError(*expansion.problems)
    return _with_choices(expanded), places


def _settle(expansion: _Expansion, key: str, written: Any) -> None:
    """Tell whether a key is a node or a parameter of one, and note what stands under it."""
    if not isinstance(written, Unsettled):
        place: Loc = ("vary", key)
        if written == "all":
            _add_node(expansion, key, None)
        elif len(written) == 1 and isinstance(written[0], Grid) and _is_bare(written[0]):
            _add_levels(expansion, key, written[0].levels, place)
        else:
            _add_node(expansion, key, [(one, (*place, number)) for number, one in enumerate(written)])
        return
    node, _, parameter = key.rpartition(".")
    is_node, is_parameter = _is_node(expansion.workflow, key), _has_parameter(expansion.workflow, node, parameter)
    if is_node and is_parameter and not is_range(written.written):
        text = (
            f"{key!r} is ambiguous: it is a node, and the parameter {parameter!r} of the node {node!r}; for the "
            f"parameter write `{node}: {{{parameter}: [...]}}`, for the node a list of mappings with 'name'"
        )
        expansion.report(("vary", key), text)
    elif is_node or _may_appear(expansion.spec, key):
        _add_unsettled_node(expansion, key, written)
    elif not _is_node(expansion.workflow, node):
        near = did_you_mean(key, _names(expansion.workflow))
        text = f"workflow {expansion.workflow.name!r} has no node or parameter {key!r}{near}"
        expansion.report(("vary", key), text)
    else:
        try:
            levels = levels_under(parameter, written.written, at=())
            if isinstance(expansion.spec, SingleSpec) and node in expansion.workflow.nodes:  # its levels were typed
                base = expansion.workflow.nodes[node].variants[expansion.workflow.nodes[node].default]
                levels = tuple(read_level(base, parameter, one) if isinstance(one, str) else one for one in levels)
        except PydanticCustomError as error:
            context = error.context or {}
            expansion.report(("vary", key, *context.get("at", ())), f"{key!r} has {context['text']}")
        else:
            _add_levels(expansion, node, {parameter: levels}, ("vary", key))


def _may_appear(spec: SweepSpec, key: str) -> bool:
    """Return whether a node may be one of a graph that a variant stands for: its name begins with that variant's."""
    first = key.partition(".")[0]
    listed = [one for refs in spec.vary.values() if isinstance(refs, tuple) for one in refs]
    return any(isinstance(one, VariantRef) and one.name == first for one in listed)


def _is_bare(grid: Grid) -> bool:
    return grid.source is None and grid.of is None


def _add_unsettled_node(expansion: _Expansion, key: str, written: Unsettled) -> None:
    """Note variants under a key with a dot."""
    try:
        variants = read_node_variants(key, written.written, expansion.spec.located)
    except InputError as error:
        expansion.problems += error.problems
        return
    _add_node(expansion, key, [(one, ("vary", key, number)) for number, one in enumerate(variants)])


def _add_node(expansion: _Expansion, node: str, entries: list[_Entry] | None) -> None:
    if node in expansion.grids:
        _report_both(expansion, node)
    expansion.entries[node] = entries


def _add_levels(expansion: _Expansion, node: str, levels: Mapping[str, tuple[Any, ...]], place: Loc) -> None:
    """Add levels to the grid of a node."""
    if node in expansion.entries and node not in expansion.grids:
        _report_both(expansion, node)
        return
    expansion.entries.setdefault(node, [])
    grid = expansion.grids.setdefault(node, {})
    for parameter, values in levels.items():
        where = place if place[-1] != node else (*place, parameter)
        if parameter in grid:
            first = expansion.spec.located.place(expansion.places[node, parameter])
            expansion.report(where, f"'{node}.{parameter}' has levels at {first}, too; expected one list of them")
        grid[parameter] = values
        expansion.places[node, parameter] = where


def _report_both(expansion: _Expansion, node: str) -> None:
    text = (
        f"'vary.{node}' lists variants, and '{node}.PARAMETER' has levels; expected the grid as an entry of the list: "
        f"- {{PARAMETER: [...]}}"
    )
    expansion.report(("vary", node), text)


def _names(workflow: WorkflowFacts) -> list[str]:
    return [*workflow.nodes, *(f"{node}.{name}" for node in workflow.nodes for name in _parameters(workflow, node)[0])]


def _is_node(workflow: WorkflowFacts, name: str) -> bool:
    """Return whether a workflow has a node, or something that becomes one where it is varied."""
    return workflow.varied(name) is not None


def _has_parameter(workflow: WorkflowFacts, node: str, name: str) -> bool:
    return node in workflow.nodes and name in _parameters(workflow, node)[0]


def _parameters(workflow: WorkflowFacts, node: str) -> tuple[Mapping[str, inspect.Parameter], bool]:
    found = workflow.nodes[node]
    try:
        return found.variants[found.default].parameters
    except InputError:
        return {}, False


def _check_grid(expansion: _Expansion, node: str, grid: Grid, place: Loc) -> None:
    """Check that the node takes the parameters of a grid, and their levels, before it is expanded."""
    if len(grid) > MAX_POINTS:
        counts = " x ".join(f"{len(values):,}" for values in grid.levels.values())
        text = (
            f"the grid of node {node!r} has {counts} = {len(grid):,} points; expected at most {MAX_POINTS:,}: give it "
            f"fewer levels, or list the points that matter"
        )
        expansion.report(place, text)
        return
    base = _base(expansion, node, grid, place)
    if base is None:
        return
    for parameter, values in grid.levels.items():
        where = expansion.places.get((node, parameter), (*place, parameter))
        texts = with_texts(list(values), expansion.spec.texts)
        seen: dict[str, int] = {}
        for number, level in enumerate(texts):
            if (first := seen.setdefault(canonical(level), number)) != number:
                both = " and ".join(level_label(values[one]) for one in (first, number))
                expansion.report((*where, number), f"{both} have equal content; leave one of them out")
        for position, text in base.parameter_problems(f"node {node!r}", parameter, texts):
            expansion.report(where if position is None else (*where, position), text)


def _base(expansion: _Expansion, node: str, grid: Grid, place: Loc) -> Variant | None:
    """Return the variant that the points of a grid derive from; None if there is none."""
    workflow = expansion.workflow
    found = workflow.varied(node)
    if found is None:
        near = meant_or_known(node, workflow.nodes)
        expansion.report(place[:2], f"workflow {workflow.name!r} has no node {node!r}{near}")
        return None
    if grid.source is not None and expansion.code is not None:
        try:
            return found.variant_type(node, grid.source, expansion.code.load(grid.source))
        except InputError as error:
            for text in error.problems:
                expansion.report((*place, "with"), text)
            return None
    if grid.of is not None and grid.of not in found.variants:
        near = meant_or_known(grid.of, found.variants)
        expansion.report((*place, "of"), f"node {node!r} has no variant {grid.of!r} to derive from{near}")
        return None
    return found.variants[grid.of or found.default]


def _points(
    expansion: _Expansion,
) -> tuple[dict[str, Literal["all"] | tuple[VariantRef, ...]], dict[tuple[str, int], Loc]]:
    """Expand the grids. Returns the variants by node, and the place of each by its node and number."""
    vary: dict[str, Literal["all"] | tuple[VariantRef, ...]] = {}
    places: dict[tuple[str, int], Loc] = {}
    for node, entries in expansion.entries.items():
        if entries is None:
            vary[node] = "all"
            continue
        refs: dict[str, VariantRef] = {}
        for entry, place in entries:
            for ref in [entry] if isinstance(entry, VariantRef) else _of_grid(entry):
                if ref.name in refs:
                    text = f"node {node!r} has the variant {ref.name!r} a second time; expected each once"
                    expansion.report(place, text)
                places[node, len(refs)] = place
                refs[ref.name] = ref
        vary[node] = tuple(refs.values())
    return vary, places


def _of_grid(grid: Grid) -> list[VariantRef]:
    base = base_name(grid.of, grid.source)
    return [
        VariantRef(name=point_name(levels, base), source=grid.source, of=grid.of, params=levels, levels=levels)
        for levels in grid.points()
    ]


def _with_choices(spec: SweepSpec) -> SweepSpec:
    """Replace levels under `baseline`, `exclude` and `combinations` by the variants that have them."""
    problems: list[str] = []
    variants = cast("Variants", spec.vary)  # expanded

    def report(place: Loc, text: str) -> None:
        problems.append(spec.located.problem(place, text))

    baseline = resolve_choices(variants, spec.baseline, {}, ("baseline",), report)
    update: dict[str, Any] = {"baseline": baseline}
    update["exclude"] = tuple(
        resolve_rule(variants, rule, ("exclude", number), report) for number, rule in enumerate(spec.exclude)
    )
    if isinstance(spec.combinations, tuple):
        update["combinations"] = tuple(
            resolve_choices(variants, item, baseline, ("combinations", number), report)
            for number, item in enumerate(spec.combinations)
        )
    if problems:
        raise InputError(*problems)
    return spec.model_copy(update=update)


def read_level(base: Variant, parameter: str, text: str) -> Json:
    """Read a level that was typed: as a number or another plain value if the parameter takes that, else as text."""
    if "\n" in text:
        return text
    try:
        value: Json = parse(b"level: " + text.encode(), "level").data["level"]
    except InputError:
        return text
    is_text = isinstance(value, str | list | dict) or base.parameter_problems("", parameter, [value])
    return text if is_text else value
