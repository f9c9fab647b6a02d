"""A sweep bound to code: its workflow with the sweep's variants and changed levels, its evaluators and fingerprints."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, Literal

from wtb.authoring.code.fingerprint import evaluator_code, present_code
from wtb.authoring.code.import_paths import is_importable, registered_name, workflow_path
from wtb.authoring.code.recipe import Draft, NamedEvaluator, Recipe, VariantDraft, add_for_forks, complete
from wtb.authoring.evaluation.evaluators import Evaluator
from wtb.authoring.nodes import Node, Variant
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.config.run_options import After
from wtb.config.yaml_reader import Loc
from wtb.core.errors import InputError, StateError, meant_or_known, quoted_names
from wtb.core.factors import base_name, canonical, factors_of, file_reference, level_label, point_name, with_texts
from wtb.core.frozen import frozen
from wtb.core.questions import Mode, modes_of, no_such_node
from wtb.core.tree.stored_code import RecordedCode, StoredCode, stored_code
from wtb.core.values import Json, Namespace, Params
from wtb.planning.expansion import equal_variants, expand_factors, read_level
from wtb.planning.level_references import names_label
from wtb.planning.publishing import IMPORTED, Code
from wtb.planning.sweep_spec import SweepSpec
from wtb.planning.variant_forms import VariantRef


def effective_modes(spec: SweepSpec, workflow: WorkflowFacts) -> tuple[Mode, ...]:
    """Return the modes that apply: those of the sweep, else those of its workflow."""
    return _of_spec(spec) or modes_of(workflow.approval)


def _of_spec(spec: SweepSpec) -> tuple[Mode, ...]:
    """Return the modes that a sweep sets itself, as files write them; empty if it sets none."""
    approval = spec.run.approval
    if approval is None:
        return ()
    several = approval if isinstance(approval, tuple) else (approval,)
    return tuple({"after": mode.after} if isinstance(mode, After) else mode for mode in several)


def mode_problems(spec: SweepSpec, workflow: WorkflowFacts) -> list[str]:
    """Return the problems of a sweep's approval modes."""
    problems = []
    is_list = isinstance(spec.run.approval, tuple)
    for place, mode in enumerate(_of_spec(spec)):
        if not isinstance(mode, str) and mode["after"] not in workflow.nodes:
            at = ("run", "approval", *((place,) if is_list else ()), "after")
            problems.append(spec.located.problem(at, no_such_node(workflow.name, workflow.nodes, mode["after"])))
    return problems


@frozen
class Bound:
    """The code and settings that a process needs to run nodes of a sweep.

    Attributes:
        spec: The sweep.
        adapter: The workflow with the sweep's own variants, which engines run and forks add variants to.
        workflow: Its facts.
        vary: Varied node -> names of its variants, in the order of the sweep.
        evaluators: The evaluators, named.
        fingerprints: Node -> variant -> code.
        params: The values of `ctx.params` in nodes.
        recipe: The instructions by which a node process builds the same.
        not_importable_reason: The reason why it cannot, if the code exists in this process only.
        code: The code that the fingerprints cover.
    """

    spec: SweepSpec
    adapter: Workflow
    workflow: WorkflowFacts
    vary: Mapping[str, Sequence[str]]
    evaluators: Sequence[Evaluator]
    fingerprints: Mapping[str, Mapping[str, str]]
    params: Params = field(default_factory=dict)
    recipe: Recipe = field(default_factory=lambda: Recipe(None))
    not_importable_reason: str | None = None
    code: StoredCode = field(default_factory=lambda: stored_code({}))

    @cached_property
    def evaluator_code(self) -> RecordedCode:
        """Present code of its evaluators."""
        return evaluator_code(zip(self.recipe.evaluators, self.evaluators, strict=True))

    @property
    def present_code(self) -> RecordedCode:
        """Present code of its variants."""
        return RecordedCode(self.fingerprints, self.code)

    def with_recorded(self, recorded: RecordedCode) -> Bound:
        """Return it with the fingerprints that a sweep recorded for unchanged code, because results refer to those."""
        return replace(self, fingerprints=recorded.replacing(self.present_code))

    @property
    def pool(self) -> Literal["process", "thread"]:
        """The pool of its nodes: processes, unless the sweep or its code forbids them."""
        return self.spec.run.pool or ("thread" if self.not_importable_reason else "process")


def bind(
    spec: SweepSpec,
    workflow: Workflow | None = None,
    evaluators: Mapping[str, Callable[..., Any]] | None = None,
    code: Code = IMPORTED,
) -> Bound:
    """Find the code that a sweep names and check that it fits.

    Args:
        spec: The sweep.
        workflow: An object that a Python caller passed; it needs no import path.
        evaluators: Objects that a Python caller passed, by name.
        code: The source of all other code.

    Returns:
        The sweep with its code.

    Raises:
        InputError: The code is missing or does not fit; all problems at once.
    """
    located = spec.located.problem
    own_facts = None if workflow is None else workflow.facts()
    places: Mapping[tuple[str, int], Loc] = {}
    # Factors expand to variants of nodes, so they need the workflow's facts before anything else is completed.
    if spec.has_factors:
        workflow = workflow or code.workflow(spec.workflow, lambda text: located(("workflow",), text))
        spec, places = expand_factors(spec, own_facts or workflow.facts(), code)
    draft = draft_of(spec)
    completed = complete(draft, code, workflow, evaluators, lambda text: located(("workflow",), text))
    assert completed.workflow is not None, "a sweep names a workflow"
    facts = completed.workflow.facts()
    problems = [text if place is None else located(_written(place, places), text) for place, text in completed.problems]
    problems += (
        _equal_problems(spec, facts, places) + _baseline_problems(spec, completed.vary) + mode_problems(spec, facts)
    )
    if problems:
        raise InputError(*problems)
    recipe = completed.recipe
    objects = {} if own_facts is None else {recipe.workflow or spec.workflow: own_facts.source}
    not_importable_reason = _tie(recipe, objects, evaluators or {})
    fingerprints, parts = present_code(facts.nodes.values(), completed.vary, recipe)
    return Bound(
        spec,
        completed.workflow,
        facts,
        completed.vary,
        completed.evaluators,
        fingerprints,
        params=recipe.params or {},
        recipe=recipe,
        not_importable_reason=not_importable_reason,
        code=parts,
    )


def draft_of(spec: SweepSpec) -> Draft:
    """Return the code references of a sweep, without importing anything."""
    return Draft(
        spec.workflow,
        _path_of(spec),
        {
            node: None if isinstance(refs, str) else [_drafted(ref, spec) for ref in refs]
            for node, refs in spec.variants.items()
        },
        {node: [_drafted(ref, spec) for ref in refs] for node, refs in spec.fork_variants.items()},
        [NamedEvaluator(ref.name, with_texts(ref.options, spec.texts), "") for ref in spec.evaluate],
        with_texts(spec.params, spec.texts),
        spec.model_dump(mode="json", include={"mcp"})["mcp"],
        name=registered_name(spec.workflow),
    )


def _drafted(ref: VariantRef, spec: SweepSpec) -> VariantDraft:
    return VariantDraft(ref.name, ref.source, ref.of, with_texts(ref.params, spec.texts), ref.is_own)


def _written(place: Loc, places: Mapping[tuple[str, int], Loc]) -> Loc:
    """Return the place in the sweep file for a place in the expanded sweep."""
    match place:
        case ("vary", str(node), int(number), *rest):
            return (*places.get((node, number), ("vary", node, number)), *rest)
    return place


def _equal_problems(spec: SweepSpec, workflow: WorkflowFacts, places: Mapping[tuple[str, int], Loc]) -> list[str]:
    return [
        spec.located.problem(_written(("vary", node, number), places), text)
        for node, refs in spec.variants.items()
        if not isinstance(refs, str) and node in workflow.nodes
        for number, text in equal_variants(refs, workflow.nodes[node].variants)
    ]


def with_fork_variants(bound: Bound, refs: Mapping[str, Sequence[VariantRef]], code: Code = IMPORTED) -> Bound:
    """Add variants that are made for a fork to bound code.

    Args:
        bound: The code of a sweep, which is not modified.
        refs: The variants by node.
        code: The source of the code that they name.

    Returns:
        The code with them.

    Raises:
        InputError: A variant cannot be made, or its name is taken.
    """
    adapter = bound.adapter.copy()
    drafts = {node: [_drafted(ref, bound.spec) for ref in of_node] for node, of_node in refs.items()}
    added, problems = add_for_forks(adapter, drafts, code)
    for node, of_node in refs.items():
        problems += [
            f"node {node!r} has a variant {ref.name!r} already; give the one of the fork a name of its own"
            for ref in of_node
            if ref.name in bound.workflow.nodes[node].variants
        ]
    workflow = adapter.facts()
    # A variant may merge nodes that run as one; checkpoints of the sweep refer to the nodes as they were.
    if not problems and workflow.nodes.keys() != bound.workflow.nodes.keys():
        problems = [f"{', '.join(refs)}: the split into nodes cannot change in a sweep that has run"]
    if problems:
        raise InputError(*problems)
    recipe = replace(bound.recipe, variants=[*bound.recipe.variants, *added])
    return replace(bound, adapter=adapter, workflow=workflow, recipe=recipe)


def _path_of(spec: SweepSpec) -> str | None:
    try:
        return workflow_path(spec.workflow)
    except InputError:  # an object that was given under a name of its own
        return None


def _tie(recipe: Recipe, workflows: Namespace, evaluators: Mapping[str, Callable[..., Any]]) -> str | None:
    """Return the reason why another process cannot follow a recipe, or None. The mappings have objects by path."""
    for path, bound_object in {**workflows, **evaluators}.items():
        module, _, name = path.partition(":")
        current: Any = sys.modules.get(module)
        for part in name.split("."):
            current = getattr(current, part, None)
        # An equal name is not enough: a process that imports the path must get this very object.
        if current is not bound_object or not is_importable(sys.modules[module]):
            return f"{path!r} cannot be imported: it was made in a script, a notebook or a function"
    try:
        recipe.text()
    except StateError as error:
        return f"a parameter cannot be handed on: {error}"
    return None


def _baseline_problems(spec: SweepSpec, vary: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        spec.located.problem(
            ("baseline", node),
            f"the baseline names node {node!r}, which is not varied{meant_or_known(node, vary)}",
        )
        for node in spec.baseline
        if node not in spec.vary and node not in vary
    ]


Form = str | Mapping[str, Json]  # a variant, as a sweep file has it


def with_changed_levels(
    bound: Bound, forms: Mapping[str, Form], combinations: Sequence[Mapping[str, str]], *, typed: bool = True
) -> dict[str, Form]:
    """Replace levels by variants in choices for nodes.

    Args:
        bound: The sweep with its code.
        forms: Node -> variant, or `node.parameter` -> level.
        combinations: Combinations, node -> variant, whose other levels apply.
        typed: True if text levels come from a command line, and may be numbers; else they are text if the parameter is.

    Returns:
        Node -> variant: the name of an existing one, else a grid point with these levels.

    Raises:
        InputError: A node has no such parameter or level, or the combinations have several variants of it.
    """
    nodes = bound.workflow.nodes
    variant_forms = {key: form for key, form in forms.items() if _factor(nodes, key) is None}
    changes: dict[str, dict[str, Any]] = {}
    for key, level in forms.items():
        if (factor := _factor(nodes, key)) is not None:
            node, parameter = factor
            if node in variant_forms:
                raise InputError(f"{key!r} and {node!r}: choose the variant, or levels of the variant that it has")
            changes.setdefault(node, {})[parameter] = level
    for node, levels in changes.items():
        variant_forms[node] = _changed(bound, nodes[node], levels, combinations, typed=typed)
    return variant_forms


def _factor(nodes: Mapping[str, Node], key: str) -> tuple[str, str] | None:
    """Return the node and the parameter of a key; None if it is a node, or nothing that is known."""
    node, _, parameter = key.rpartition(".")
    return (node, parameter) if key not in nodes and node in nodes else None


def _changed(
    bound: Bound, node: Node, levels: Mapping[str, Json], combinations: Sequence[Mapping[str, str]], *, typed: bool
) -> Form:
    """Return a variant of a node with other levels than the one that combinations choose."""
    names = list(dict.fromkeys(choices.get(node.name, node.default) for choices in combinations))
    if len(names) > 1:
        raise InputError(
            f"several variants of node {node.name!r} are chosen here, so a level alone is ambiguous: "
            f"{quoted_names(names)}; choose a whole variant"
        )
    name = names[0] if names else node.default
    refs = _refs(bound, node.name)
    ref = next((candidate for candidate in refs if candidate.name == name), None)
    base = node[name]
    changed = dict(ref.levels) if ref is not None else {}
    for parameter, level in levels.items():
        changed[parameter] = _level(refs, bound.spec.texts, base, parameter, level, typed=typed)
    of = ref.of if ref is not None and ref.levels else None if name == node.default else name
    source = ref.source if ref is not None and ref.levels else None
    variant_name = point_name(changed, base_name(of, source))
    # A point with the same levels has the same name, so the fork shares results with the sweep.
    if variant_name in node.variants:
        return variant_name
    pairs: list[Json] = [[parameter, level] for parameter, level in changed.items()]
    return {
        key: content
        for key, content in {"name": variant_name, "of": of, "with": source, "levels": pairs}.items()
        if content
    }


def _refs(bound: Bound, node: str) -> list[VariantRef]:
    listed = bound.spec.variants.get(node, ())
    return [*(ref for ref in listed if isinstance(ref, VariantRef)), *bound.spec.fork_variants.get(node, ())]


def _level(
    refs: Sequence[VariantRef], texts: Mapping[str, str], base: Variant, parameter: str, level: Any, *, typed: bool
) -> Json:
    """Return the level of the sweep that a text names, else the text converted to the type of the parameter."""
    levels_by_text: dict[str, Json] = {
        canonical(ref.levels[parameter]): ref.levels[parameter] for ref in refs if parameter in ref.levels
    }
    # The same text under the same name is the same level, wherever its file is.
    if file_reference(level) is not None:
        same = [
            sweep_level for sweep_level in levels_by_text.values() if level_label(sweep_level) == level_label(level)
        ]
        level = same[0] if same else level
    elif isinstance(level, str):
        named = [
            sweep_level
            for sweep_level in levels_by_text.values()
            if names_label(level, level_label(sweep_level)) or with_texts(sweep_level, texts) == level
        ]
        if not typed:
            named = [sweep_level for sweep_level in named if isinstance(sweep_level, str)]
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
