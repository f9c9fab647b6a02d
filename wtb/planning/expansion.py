"""Expansion of grids: levels of a sweep file become variants, once nodes are known; variants that do the same."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from pydantic_core import PydanticCustomError

from wtb.authoring.nodes import Variant
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.config.yaml_reader import Loc, parse
from wtb.core.errors import InputError, did_you_mean, meant_or_known
from wtb.core.factors import base_name, canonical, level_label, point_name, with_texts
from wtb.core.values import Json
from wtb.planning.level_references import Variants, resolve_choices, resolve_rule
from wtb.planning.publishing import Code
from wtb.planning.sweep_spec import SingleSpec, SweepSpec, read_node_variants
from wtb.planning.variant_forms import MAX_POINTS, Grid, Unsettled, VariantRef, is_range, levels_under

_Entry = tuple[VariantRef | Grid, Loc]  # with its place in the sweep file


@dataclass
class _Expansion:
    """State of an expansion.

    Attributes:
        spec: The sweep.
        workflow: The facts of its workflow.
        code: The source of code; None if the grids were checked before.
        entries: Node -> its variants and grids, with their places; None for `all`.
        grids: Nodes whose grid comes from a mapping, or from keys with dots.
        places: (grid's place, parameter) -> the place of the parameter, if it is elsewhere.
        problems: The problems so far.
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
    """Replace grids by their points, and chosen levels by the variants that have them.

    Args:
        spec: A sweep.
        workflow: The facts of its workflow.
        code: The source of code; None if the grids were checked before.

    Returns:
        The sweep with variants only, and the place of each in the sweep file by its node and number.

    Raises:
        InputError: With all problems.
    """
    expansion = _Expansion(spec, workflow, code)
    # Keys are settled before anything is expanded, because levels of one node may come from several keys.
    for key, written in spec.vary.items():
        _settle(expansion, key, written)
    for node, levels in expansion.grids.items():
        expansion.entries[node] = [(Grid(levels=levels), ("vary", node))]
    for node, entries in expansion.entries.items():
        for form, place in entries or ():
            if isinstance(form, Grid) and code is not None:
                _check_grid(expansion, node, form, place)
    if expansion.problems:
        raise InputError(*expansion.problems)
    vary, places = _points(expansion)
    expanded = spec.model_copy(update={"vary": vary})
    if expansion.problems:
        raise InputError(*expansion.problems)
    return _with_choices(expanded), places


def _settle(expansion: _Expansion, key: str, written: Any) -> None:
    """Decide whether a key is a node or a parameter of one, and record its content."""
    if not isinstance(written, Unsettled):
        place: Loc = ("vary", key)
        if written == "all":
            _add_node(expansion, key, None)
        elif len(written) == 1 and isinstance(written[0], Grid) and _is_bare(written[0]):
            _add_levels(expansion, key, written[0].levels, place)
        else:
            _add_node(expansion, key, [(variant, (*place, number)) for number, variant in enumerate(written)])
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
            # The levels of a single execution come from a command line, as text.
            if isinstance(expansion.spec, SingleSpec) and node in expansion.workflow.nodes:
                base = expansion.workflow.nodes[node].variants[expansion.workflow.nodes[node].default]
                levels = tuple(
                    read_level(base, parameter, level) if isinstance(level, str) else level for level in levels
                )
        except PydanticCustomError as error:
            context = error.context or {}
            expansion.report(("vary", key, *context.get("at", ())), f"{key!r} has {context['text']}")
        else:
            _add_levels(expansion, node, {parameter: levels}, ("vary", key))


def _may_appear(spec: SweepSpec, key: str) -> bool:
    """Return whether a node may belong to a graph that replaces a variant: its name begins with the variant's."""
    first = key.partition(".")[0]
    listed = [ref for refs in spec.vary.values() if isinstance(refs, tuple) for ref in refs]
    return any(isinstance(ref, VariantRef) and ref.name == first for ref in listed)


def _is_bare(grid: Grid) -> bool:
    return grid.source is None and grid.of is None


def _add_unsettled_node(expansion: _Expansion, key: str, written: Unsettled) -> None:
    """Record variants under a key with a dot."""
    try:
        variants = read_node_variants(key, written.written, expansion.spec.located)
    except InputError as error:
        expansion.problems += error.problems
        return
    _add_node(expansion, key, [(variant, ("vary", key, number)) for number, variant in enumerate(variants)])


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
    """Return whether a workflow has a node, or something that becomes one if it is varied."""
    return workflow.varied(name) is not None


def _has_parameter(workflow: WorkflowFacts, node: str, name: str) -> bool:
    return node in workflow.nodes and name in _parameters(workflow, node)[0]


def _parameters(workflow: WorkflowFacts, node: str) -> tuple[Mapping[str, inspect.Parameter], bool]:
    varied_node = workflow.nodes[node]
    try:
        return varied_node.variants[varied_node.default].parameters
    except InputError:
        return {}, False


def _check_grid(expansion: _Expansion, node: str, grid: Grid, place: Loc) -> None:
    """Check that the node takes the parameters of a grid, and their levels, before it is expanded."""
    # The size is known without the points, which may be billions.
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
        # Two files may have the same text under different names: their points would run the same work twice.
        for number, level in enumerate(texts):
            if (first := seen.setdefault(canonical(level), number)) != number:
                both = " and ".join(level_label(values[position]) for position in (first, number))
                expansion.report((*where, number), f"{both} have equal content; leave one of them out")
        for position, text in base.parameter_problems(f"node {node!r}", parameter, texts):
            expansion.report(where if position is None else (*where, position), text)


def _base(expansion: _Expansion, node: str, grid: Grid, place: Loc) -> Variant | None:
    """Return the variant that the points of a grid derive from; None if it does not exist."""
    workflow = expansion.workflow
    varied_node = workflow.varied(node)
    if varied_node is None:
        near = meant_or_known(node, workflow.nodes)
        expansion.report(place[:2], f"workflow {workflow.name!r} has no node {node!r}{near}")
        return None
    if grid.source is not None and expansion.code is not None:
        try:
            return varied_node.variant_type(node, grid.source, expansion.code.load(grid.source))
        except InputError as error:
            for text in error.problems:
                expansion.report((*place, "with"), text)
            return None
    if grid.of is not None and grid.of not in varied_node.variants:
        near = meant_or_known(grid.of, varied_node.variants)
        expansion.report((*place, "of"), f"node {node!r} has no variant {grid.of!r} to derive from{near}")
        return None
    return varied_node.variants[grid.of or varied_node.default]


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
        for form, place in entries:
            for ref in [form] if isinstance(form, VariantRef) else _of_grid(form):
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
            resolve_choices(variants, choices, baseline, ("combinations", number), report)
            for number, choices in enumerate(spec.combinations)
        )
    if problems:
        raise InputError(*problems)
    return spec.model_copy(update=update)


def read_level(base: Variant, parameter: str, text: str) -> Json:
    """Read a level from a command line: as a plain value if the parameter takes it, else as text."""
    # Further lines could add keys of their own to the YAML below.
    if "\n" in text:
        return text
    try:
        level: Json = parse(b"level: " + text.encode(), "level").data["level"]
    except InputError:
        return text
    is_text = isinstance(level, str | list | dict) or base.parameter_problems("", parameter, [level])
    return text if is_text else level


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
    """Return the identity of a variant: its function and its arguments with their defaults."""
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
    # Defaults count as arguments: a level that is the default changes nothing.
    arguments = json.dumps({**defaults, **variant.params}, sort_keys=True, default=repr)
    # A published function has a fingerprint. A callable without a hash is known by its identity only.
    return getattr(fn, "fingerprint", None) or (fn if getattr(fn, "__hash__", None) else id(fn)), arguments
