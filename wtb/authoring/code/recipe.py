"""Recipes by which other processes make the same workflow and evaluators, and drafts, whose code is not imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Protocol

from wtb.authoring.code.import_paths import load, workflow_at
from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.authoring.evaluation.evaluators import Evaluator
from wtb.authoring.nodes import Node, Variant
from wtb.authoring.workflow import Workflow
from wtb.core.errors import InputError, did_you_mean, nearest_names
from wtb.core.frozen import frozen
from wtb.core.serialization.codec import decode, encode
from wtb.core.values import Options, Params

# Imported by path, because the layers forbid an import.
SERVERS: Final = "wtb.integrations.mcp:use_declared"


@frozen
class AddedVariant:
    """A variant that a sweep makes: the callable at `source`, or that of the variant `of`, with parameters."""

    node: str
    name: str
    source: str | None
    of: str | None
    params: Params


@frozen
class NamedEvaluator:
    """An evaluator by built-in name or import path, with its options and its name in the sweep."""

    name: str
    options: Options
    shown: str


@frozen
class Recipe:
    """The code of a sweep.

    Attributes:
        workflow: The import path of the workflow; None if only evaluators are needed.
        variants: Variants that the sweep adds.
        evaluators: The evaluators.
        params: The params that the sweep sets.
        vary: The varied nodes.
        servers: The MCP servers that the sweep declares, as in its file.
    """

    workflow: str | None
    variants: Sequence[AddedVariant] = ()
    evaluators: Sequence[NamedEvaluator] = ()
    params: Params | None = None
    vary: Sequence[str] = ()
    servers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> Sequence[str]:
        """The import paths of the workflow and of added variants."""
        paths = (self.workflow, *(variant.source for variant in self.variants))
        return list(dict.fromkeys(path for path in paths if path is not None))

    def text(self) -> str:
        """Return it as typed JSON. Raises StateError if a parameter cannot be encoded."""
        return encode(asdict(self)).decode()

    @classmethod
    def read(cls, text: str) -> Recipe:
        document = decode(text.encode())
        variants = [AddedVariant(**fields) for fields in document["variants"]]
        evaluators = [NamedEvaluator(**fields) for fields in document["evaluators"]]
        return cls(**{**document, "variants": variants, "evaluators": evaluators})


def assemble(recipe: Recipe) -> tuple[Workflow | None, list[Evaluator]]:
    """Make the workflow with the sweep's own variants, and its evaluators. Raises InputError."""
    workflow = None
    if recipe.workflow is not None:
        workflow = workflow_at(recipe.workflow).copy()
        for name in workflow.in_order(dict.fromkeys((*recipe.vary, *(variant.node for variant in recipe.variants)))):
            # In the same order as in `bind`: a variant of one node may contain the next node.
            workflow.varied(name)
            for added in recipe.variants:
                if added.node == name:
                    workflow.add_variant(make_variant(workflow.nodes[name], added))
        for server, declared in recipe.servers.items():
            add_server(workflow, server, declared)
    return workflow, [named(evaluator) for evaluator in recipe.evaluators]


def add_server(workflow: Workflow, name: str, declared: Mapping[str, Any]) -> None:
    """Let nodes call tools of a server that a sweep declares. Raises InputError."""
    load(SERVERS)(workflow, name, declared)


def make_variant(node: Node, added: AddedVariant, resolve: Callable[[str], Any] = load) -> Variant:
    """Make the variant that a sweep adds to a node. `resolve` imports a path. Raises InputError if that fails."""
    if added.source is not None:
        return node.variant_type(node.name, added.name, resolve(added.source), added.params)
    if added.of is not None and added.of not in node.variants:
        near = did_you_mean(added.of, node.variants)
        raise InputError(f"node {node.name!r} has no variant {added.of!r} to derive from{near}")
    own = added.of is None and added.name in node.variants  # the workflow's own variant with other parameters
    parent = node.variants[added.name if own else added.of or node.default]
    return node.variant_type(node.name, added.name, parent.fn, {**parent.params, **added.params}, parent.description)


def named(ref: NamedEvaluator, fn: Callable[..., Any] | None = None) -> Evaluator:
    """Make an evaluator with its name in a sweep. Raises InputError."""
    evaluator = make_evaluator(ref.name, ref.options, load, fn)
    return replace(evaluator, name=ref.shown or evaluator.name)


Place = tuple[str | int, ...]  # in a sweep file
Problem = tuple[Place | None, str]  # None for a problem without a place in the file


class Code(Protocol):
    """A source of sweeps' code."""

    def workflow(self, name: str, problem: Callable[[str], str]) -> Workflow:
        """Return a workflow by its name or import path. `problem` formats messages of errors. Raises InputError."""

    def load(self, path: str) -> Any:
        """Return the object at an import path. Raises InputError."""


class ImportedCode:
    """Code that this process imports."""

    def workflow(self, name: str, problem: Callable[[str], str]) -> Workflow:
        return workflow_at(name, problem)

    def load(self, path: str) -> Any:
        return load(path)


IMPORTED = ImportedCode()


@frozen
class VariantDraft:
    """A variant in a sweep. `is_own` if the workflow has it; else the sweep makes it, as an `AddedVariant`."""

    name: str
    source: str | None = None
    of: str | None = None
    params: Params = field(default_factory=dict)
    is_own: bool = False


@frozen
class Draft:
    """The names of code in a sweep.

    Attributes:
        workflow: The name or import path of the workflow; None if only evaluators are needed.
        path: Its import path, if it has one.
        vary: The varied nodes, each with its variants in order; None stands for all active ones.
        forks: Variants that were made for forks, by node.
        evaluators: The evaluators, which get their names when they are made.
        params: The params of the workflow that the sweep sets.
        servers: The MCP servers that it declares.
        permitted: The import paths that evaluators may have; None for any.
        name: The registered name of the workflow, if it has one.
        is_checked: Whether the workflow was valid when the sweep was submitted. The check imports pydantic, for which
            the first node of a worker would wait; changed code is rejected by its fingerprint.
    """

    workflow: str | None
    path: str | None = None
    vary: Mapping[str, Sequence[VariantDraft] | None] = field(default_factory=dict)
    forks: Mapping[str, Sequence[VariantDraft]] = field(default_factory=dict)
    evaluators: Sequence[NamedEvaluator] = ()
    params: Params = field(default_factory=dict)
    servers: Mapping[str, Any] = field(default_factory=dict)
    permitted: Sequence[str] | None = None
    is_checked: bool = False
    name: str | None = None

    def text(self) -> str:
        """Return it as typed JSON. Raises StateError if a parameter cannot be encoded."""
        return encode(asdict(self)).decode()

    @classmethod
    def read(cls, text: str) -> Draft:
        document = decode(text.encode())

        for key in ("vary", "forks"):
            for node, drafts in document[key].items():
                document[key][node] = drafts and [VariantDraft(**fields) for fields in drafts]
        document["evaluators"] = [NamedEvaluator(**fields) for fields in document["evaluators"]]
        return cls(**document)


@dataclass
class Completed:
    """A draft with its code.

    Attributes:
        workflow: The workflow with the variants of the sweep; None if only evaluators are needed.
        recipe: The recipe by which a node process makes the same.
        evaluators: The evaluators, with their names.
        vary: The names of the variants of each varied node, in the order of the sweep.
        problems: The problems of the draft, with their places in the sweep file.
    """

    workflow: Workflow | None
    recipe: Recipe
    evaluators: list[Evaluator] = field(default_factory=list)
    vary: Mapping[str, Sequence[str]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def complete(
    draft: Draft,
    code: Code = IMPORTED,
    workflow: Workflow | None = None,
    evaluators: Mapping[str, Callable[..., Any]] | None = None,
    problem: Callable[[str], str] = str,
) -> Completed:
    """Find the code of a draft.

    Args:
        draft: The draft.
        code: The source of code.
        workflow: The workflow, if the caller has it.
        evaluators: Functions that the caller has, by their names in the sweep.
        problem: Formats messages about the name of the workflow.

    Returns:
        The code, with all problems at once.

    Raises:
        InputError: If there is no such workflow, or it is invalid.
    """
    if workflow is None and draft.workflow is not None:
        workflow = code.workflow(draft.workflow, problem)
    completed = Completed(None, Recipe(None))
    variants: list[AddedVariant] = []
    params: Params = draft.params
    if workflow is not None:
        if not draft.is_checked:
            workflow.validate()
        params = {**workflow.params, **draft.params}
        completed.workflow = bound = workflow.copy()
        bound.name = draft.name or bound.name
        variants = _vary(draft, bound, code, completed)
        completed.problems += [(("params",), text) for text in bound.param_problems(params)]
    _evaluate(draft, evaluators or {}, code, completed)
    named = [
        replace(ref, shown=evaluator.name)
        for ref, evaluator in zip(draft.evaluators, completed.evaluators, strict=False)
    ]
    completed.recipe = Recipe(draft.path, variants, named, params, list(completed.vary), draft.servers)
    return completed


def _vary(draft: Draft, workflow: Workflow, code: Code, completed: Completed) -> list[AddedVariant]:
    """Add the variants and servers of a sweep to a workflow. Returns the added variants."""
    names: dict[str, list[str]] = {}
    variants: list[AddedVariant] = []
    for node_name in workflow.in_order(draft.vary):
        refs, node = draft.vary[node_name], workflow.varied(node_name)
        if node is None:
            around = next((name for name in names if node_name.startswith(f"{name}.")), None)
            text = f"workflow {workflow.name!r} has no node {node_name!r}{did_you_mean(node_name, workflow.nodes)}"
            if around is not None:
                text = (
                    f"node {node_name!r} is part of the node {around!r}, which is varied, too, and then runs as one "
                    f"node: vary one of them, or give {around!r} a variant with that part changed"
                )
            completed.problems.append((("vary", node_name), text))
            continue
        if refs is None:
            names[node_name] = node.active()
            if not names[node_name]:
                text = f"every variant of node {node_name!r} is deactivated; expected at least one, or a list of names"
                completed.problems.append((("vary", node_name), text))
            continue
        for number, ref in enumerate(refs):
            added, wrong = add(workflow, node_name, ref, code)
            variants += [added] if added is not None else []
            completed.problems += [(("vary", node_name, number), text) for text in wrong]
        names[node_name] = [ref.name for ref in refs]
    # Problems are dropped: a fork whose variant can no longer be made fails by itself, and the sweep runs on.
    variants += add_for_forks(workflow, draft.forks, code)[0]
    # In the order of the sweep file, which is not the order in which variants must be added.
    completed.vary = vary = {name: names[name] for name in draft.vary if name in names}
    for name, node in () if draft.is_checked else workflow.nodes.items():
        texts = node.variant_problems(vary.get(name, [node.default]))
        completed.problems += [(("vary", name) if name in vary else None, text) for text in texts]
    for name, declared in draft.servers.items():
        try:
            add_server(workflow, name, declared)
        except InputError as error:
            completed.problems += [(("mcp", name), text) for text in error.problems]
    return variants


def add_for_forks(
    workflow: Workflow, refs: Mapping[str, Sequence[VariantDraft]], code: Code
) -> tuple[list[AddedVariant], list[str]]:
    """Add variants that were made for forks to a workflow. Returns them, and the problems of others."""
    added_variants: list[AddedVariant] = []
    problems: list[str] = []
    for node in refs.keys() & workflow.nodes.keys():
        for ref in refs[node]:
            # A combination with the variant may have been added to the sweep since.
            if ref.name not in workflow.nodes[node].variants:
                added, wrong = add(workflow, node, ref, code)
                added_variants += [added] if added is not None and not wrong else []
                problems += wrong
    return added_variants, problems


def add(workflow: Workflow, node_name: str, ref: VariantDraft, code: Code) -> tuple[AddedVariant | None, list[str]]:
    """Add a variant that a sweep makes. Returns the added variant, if any, and its problems."""
    node = workflow.nodes[node_name]
    if ref.is_own:
        if ref.name in node.variants:
            return None, []
        near, names = did_you_mean(ref.name, node.variants), nearest_names(ref.name, node.variants)
        return None, [f"node {node.name!r} has no variant {ref.name!r}{near} (it has: {names})"]
    added = AddedVariant(node.name, ref.name, ref.source, ref.of, ref.params)
    try:
        variant = make_variant(node, added, code.load)
    except InputError as error:
        return None, list(error.problems)
    return added, workflow.add_variant(variant)


def _evaluate(draft: Draft, functions: Mapping[str, Callable[..., Any]], code: Code, completed: Completed) -> None:
    """Make the evaluators of a draft, each under a name of its own."""
    for number, ref in enumerate(draft.evaluators):
        try:
            evaluator = make_evaluator(ref.name, ref.options, code.load, functions.get(ref.name))
        except InputError as error:
            completed.problems += [(("evaluate", number), text) for text in error.problems]
            continue
        names = {other.name for other in completed.evaluators}
        # One evaluator is often used for several fields, so the field completes its name.
        if evaluator.name in names and "field" in ref.options:
            evaluator = replace(evaluator, name=f"{evaluator.name}:{ref.options['field']}")
        if evaluator.name in names and draft.workflow is not None:
            text = f"two evaluators are named {evaluator.name!r}; give one another with the option 'name'"
            completed.problems.append((("evaluate", number), text))
        completed.evaluators.append(evaluator)
