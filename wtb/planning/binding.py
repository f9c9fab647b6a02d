"""A sweep bound to code: its workflow with the sweep's own variants, its evaluators, its fingerprints."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, Literal

from wtb.authoring.code.drafts import Draft, VariantDraft, add_for_forks, complete
from wtb.authoring.code.fingerprint import evaluator_code, present_code
from wtb.authoring.code.import_paths import is_importable, registered_name, workflow_path
from wtb.authoring.code.recipe import NamedEvaluator, Recipe
from wtb.authoring.evaluation.evaluators import Evaluator
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.config.yaml_reader import Loc
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, StateError, meant_or_known
from wtb.core.factors.file_levels import with_texts
from wtb.core.mappings import Namespace, Params
from wtb.core.tree.stored_code import RecordedCode, StoredCode, stored_code
from wtb.planning.approval import mode_problems
from wtb.planning.factors.equality import equal_variants
from wtb.planning.factors.expansion import expand_factors
from wtb.planning.factors.variant_forms import VariantRef
from wtb.planning.publishing import IMPORTED, Code
from wtb.planning.sweep_spec import SweepSpec


@frozen
class Bound:
    """What a process needs to run nodes of a sweep.

    Attributes:
        spec: The sweep.
        adapter: The workflow with the sweep's own variants, which engines run and forks add variants to.
        workflow: Its facts.
        vary: Varied node -> names of its variants, in the order of the sweep.
        evaluators: The evaluators, named.
        fingerprints: Node -> variant -> code.
        params: What nodes find in `ctx.params`.
        recipe: How a node process makes the same.
        not_importable_reason: Why it cannot, if the code exists in this process only.
        code: What the fingerprints rest on.
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
        """The code of its evaluators as it is at present."""
        return evaluator_code(zip(self.recipe.evaluators, self.evaluators, strict=True))

    @property
    def present_code(self) -> RecordedCode:
        """The code of its variants as it is at present."""
        return RecordedCode(self.fingerprints, self.code)

    def with_recorded(self, recorded: RecordedCode) -> Bound:
        """Return it with the fingerprints that a sweep records of code that did not change: results name those."""
        return replace(self, fingerprints=recorded.replacing(self.present_code))

    @property
    def pool(self) -> Literal["process", "thread"]:
        """Where its nodes run: in processes of their own, unless the sweep or its code forbids."""
        return self.spec.run.pool or ("thread" if self.not_importable_reason else "process")


def bind(
    spec: SweepSpec,
    workflow: Workflow | None = None,
    evaluators: Mapping[str, Callable[..., Any]] | None = None,
    code: Code = IMPORTED,
) -> Bound:
    """Find the code that a sweep names and check that it fits. Raises InputError with all problems at once.

    workflow, evaluators: objects that Python callers gave; they need no import path. code: where the others come from.
    """
    located = spec.located.problem
    own_facts = None if workflow is None else workflow.facts()
    places: Mapping[tuple[str, int], Loc] = {}
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
    """Return what a sweep names of code; nothing of it is imported."""
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
    """Return the place in the sweep file of what stands at a place of the expanded sweep."""
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
    """Add variants that somebody makes for a fork to bound code.

    Args:
        bound: The code of a sweep; it is left as it is.
        refs: The variants by node.
        code: Where what they name comes from.

    Returns:
        The code with them.

    Raises:
        InputError: If one cannot be made, or its name means something else already.
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
    if not problems and workflow.nodes.keys() != bound.workflow.nodes.keys():
        problems = [f"{', '.join(refs)}: what runs as one node cannot change in a sweep that has run"]
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
    """Why another process cannot follow a recipe, where it cannot. The mappings hold objects by import path."""
    for path, thing in {**workflows, **evaluators}.items():
        module, _, name = path.partition(":")
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not thing or not is_importable(sys.modules[module]):
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
