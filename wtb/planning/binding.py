"""A sweep bound to code: its workflow with the sweep's own variants, its evaluators, its fingerprints."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from wtb.authoring.code.fingerprint import fingerprints
from wtb.authoring.code.import_paths import is_importable, workflow_path
from wtb.authoring.code.recipe import AddedVariant, NamedEvaluator, Recipe, add_server, make_variant
from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.authoring.evaluation.evaluators import Evaluator
from wtb.authoring.nodes import Node
from wtb.authoring.workflow import Workflow
from wtb.core.errors import InputError, StateError, did_you_mean, meant_or_known
from wtb.planning.approval import mode_problems
from wtb.planning.publishing import IMPORTED, Code
from wtb.planning.sweep_spec import SweepSpec, VariantRef


@dataclass(frozen=True)
class Bound:
    """What a process needs to run nodes of a sweep.

    vary: varied node -> names of its variants, in the order of the sweep. fingerprints: node -> variant -> code.
    recipe: how a node process makes the same. not_importable_reason: why it cannot; the code exists in this
    process only.
    """

    spec: SweepSpec
    workflow: Workflow
    vary: Mapping[str, Sequence[str]]
    evaluators: Sequence[Evaluator]
    fingerprints: Mapping[str, Mapping[str, str]]
    params: Mapping[str, Any] = field(default_factory=dict)
    recipe: Recipe = field(default_factory=lambda: Recipe(None))
    not_importable_reason: str | None = None

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
    given = workflow
    if workflow is None:
        workflow = code.workflow(spec.workflow, lambda text: spec.located.problem(("workflow",), text))
    workflow.validate()
    bound = workflow.copy()
    problems: list[str] = []
    variants: list[AddedVariant] = []
    names: dict[str, list[str]] = {}
    for node_name in bound.in_order(spec.vary):
        wanted, node = spec.vary[node_name], bound.varied(node_name)
        if node is None:
            around = next((name for name in names if node_name.startswith(f"{name}.")), None)
            near = did_you_mean(node_name, bound.nodes)
            text = f"workflow {workflow.name!r} has no node {node_name!r}{near}"
            if around is not None:
                text = (
                    f"node {node_name!r} is part of the node {around!r}, which is varied, too, and then runs as one "
                    f"node: vary one of them, or give {around!r} a variant with that part changed"
                )
            problems.append(spec.located.problem(("vary", node_name), text))
            continue
        if wanted == "all":
            names[node_name] = node.active()
            if not names[node_name]:
                text = f"every variant of node {node_name!r} is deactivated; expected at least one, or a list of names"
                problems.append(spec.located.problem(("vary", node_name), text))
            continue
        for number, ref in enumerate(wanted):
            added, wrong = _added(bound, node, ref, code)
            variants += [added] if added is not None else []
            problems += [spec.located.problem(("vary", node_name, number), text) for text in wrong]
        names[node_name] = [ref.name for ref in wanted]
    variants += _for_forks(bound, spec.fork_variants, code)[0]  # a fork whose variant cannot be made any more fails
    vary = {name: names[name] for name in spec.vary if name in names}
    for name, node in bound.nodes.items():
        texts = node.variant_problems(vary.get(name, [node.default]))
        problems += [spec.located.problem(("vary", name), text) if name in vary else text for text in texts]
    problems += _baseline_problems(spec, bound, vary) + mode_problems(spec, bound)
    servers = spec.model_dump(mode="json", include={"mcp"})["mcp"]
    problems += _server_problems(spec, bound, servers)
    made, more = _evaluators(spec, evaluators or {}, code)
    problems += more
    params = {**workflow.params, **spec.params}
    problems += [spec.located.problem(("params",), text) for text in bound.param_problems(params)]
    if problems:
        raise InputError(*problems)
    refs = zip(spec.evaluate, made, strict=True)
    recipe = Recipe(
        _path_of(spec),
        variants,
        [NamedEvaluator(ref.name, ref.options, one.name) for ref, one in refs],
        params,
        list(vary),
        servers,
    )
    objects = {} if given is None else {recipe.workflow or spec.workflow: getattr(given, "source", given)}
    not_importable_reason = _tie(recipe, objects, evaluators or {})
    return Bound(
        spec, bound, vary, made, fingerprints(bound.nodes.values(), vary), params, recipe, not_importable_reason
    )


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
    workflow = bound.workflow.copy()
    added, problems = _for_forks(workflow, refs, code)
    for node, of_node in refs.items():
        problems += [
            f"node {node!r} has a variant {ref.name!r} already; give the one of the fork a name of its own"
            for ref in of_node
            if ref.name in bound.workflow.nodes[node].variants
        ]
    if not problems and workflow.nodes.keys() != bound.workflow.nodes.keys():
        problems = [f"{', '.join(refs)}: what runs as one node cannot change in a sweep that has run"]
    if problems:
        raise InputError(*problems)
    recipe = replace(bound.recipe, variants=[*bound.recipe.variants, *added])
    return replace(bound, workflow=workflow, recipe=recipe)


def _for_forks(
    workflow: Workflow, refs: Mapping[str, Sequence[VariantRef]], code: Code
) -> tuple[list[AddedVariant], list[str]]:
    """Add variants that were made for forks to a workflow. Returns them, and what is wrong with the others."""
    made: list[AddedVariant] = []
    problems: list[str] = []
    for node in refs.keys() & workflow.nodes.keys():
        for ref in refs[node]:
            if ref.name not in workflow.nodes[node].variants:  # else a row was added with it since
                added, wrong = _added(workflow, workflow.nodes[node], ref, code)
                made += [added] if added is not None and not wrong else []
                problems += wrong
    return made, problems


def _path_of(spec: SweepSpec) -> str | None:
    try:
        return workflow_path(spec.workflow)
    except InputError:  # an object that was given under a name of its own
        return None


def _tie(recipe: Recipe, workflows: Mapping[str, Workflow], evaluators: Mapping[str, Callable[..., Any]]) -> str | None:
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


def _added(workflow: Workflow, node: Node, ref: VariantRef, code: Code) -> tuple[AddedVariant | None, list[str]]:
    """What a sweep adds to a node, if it does, and what is wrong with it."""
    if ref.is_own:
        if ref.name in node.variants:
            return None, []
        near = did_you_mean(ref.name, node.variants)
        return None, [f"node {node.name!r} has no variant {ref.name!r}{near} (it has: {', '.join(node.variants)})"]
    added = AddedVariant(node.name, ref.name, ref.source, ref.of, ref.params)
    try:
        made = make_variant(node, added, code.load)
    except InputError as error:
        return None, list(error.problems)
    return added, workflow.add_variant(made)


def _server_problems(spec: SweepSpec, workflow: Workflow, servers: Mapping[str, Any]) -> list[str]:
    """Declare the servers of tools that a sweep names. Returns what is wrong with them."""
    problems: list[str] = []
    for name, declared in servers.items():
        try:
            add_server(workflow, name, declared)
        except InputError as error:
            problems += [spec.located.problem(("mcp", name), text) for text in error.problems]
    return problems


def _baseline_problems(spec: SweepSpec, workflow: Workflow, vary: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        spec.located.problem(
            ("baseline", node),
            f"the baseline names node {node!r}, which is not varied{meant_or_known(node, vary)}",
        )
        for node in spec.baseline
        if node not in spec.vary and node not in vary
    ]


def _evaluators(
    spec: SweepSpec, given: Mapping[str, Callable[..., Any]], code: Code
) -> tuple[list[Evaluator], list[str]]:
    """Make the evaluators of a sweep. Returns them, and what is wrong with the others."""
    made: list[Evaluator] = []
    problems: list[str] = []
    for number, ref in enumerate(spec.evaluate):
        try:
            evaluator = make_evaluator(ref.name, ref.options, code.load, given.get(ref.name))
        except InputError as error:
            problems += [spec.located.problem(("evaluate", number), text) for text in error.problems]
            continue
        taken = {other.name for other in made}
        if evaluator.name in taken and "field" in ref.options:
            evaluator = replace(evaluator, name=f"{evaluator.name}:{ref.options['field']}")
        if evaluator.name in taken:
            text = f"two evaluators are named {evaluator.name!r}; give one another with the option 'name'"
            problems.append(spec.located.problem(("evaluate", number), text))
        made.append(evaluator)
    return made, problems
