"""What a sweep names of code, before any of it is imported, and what becomes of it where it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from wtb.authoring.code.import_paths import load
from wtb.authoring.code.recipe import AddedVariant, NamedEvaluator, Recipe, add_server, make_variant
from wtb.authoring.code.resolve import workflow_at
from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.authoring.evaluation.evaluators import Evaluator
from wtb.authoring.workflow import Workflow
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, did_you_mean, nearest_names
from wtb.core.mappings import Params
from wtb.core.serialization.codec import decode, encode

Place = tuple[str | int, ...]  # in a sweep file
Problem = tuple[Place | None, str]  # None for what no place of the file is to blame for


class Code(Protocol):
    """Where the code of sweeps comes from."""

    def workflow(self, name: str, problem: Callable[[str], str]) -> Workflow:
        """Return a workflow by its name or import path. problem: puts what is wrong into words. Raises InputError."""

    def load(self, path: str) -> Any:
        """Return what stands at an import path. Raises InputError."""


class ImportedCode:
    """Code that this process imports."""

    def workflow(self, name: str, problem: Callable[[str], str]) -> Workflow:
        return workflow_at(name, problem)

    def load(self, path: str) -> Any:
        return load(path)


IMPORTED = ImportedCode()


@frozen
class VariantDraft:
    """A variant that a sweep names. is_own: the workflow has it; else the sweep makes it, as an `AddedVariant`."""

    name: str
    source: str | None = None
    of: str | None = None
    params: Params = field(default_factory=dict)
    is_own: bool = False


@frozen
class Draft:
    """What a sweep names of code.

    Attributes:
        workflow: The name or import path of the workflow; None if only evaluators are wanted.
        path: Its import path, if it has one.
        vary: The varied nodes, each with its variants in order; None stands for all active ones.
        forks: Variants that were made for forks, by node.
        evaluators: They are named once they are made.
        params: Of the workflow, as the sweep has them.
        servers: The MCP servers that it declares.
        permitted: The import paths that evaluators may have; None for any.
        name: By which people know the workflow, if it is registered.
        is_checked: Whether the workflow was valid when the sweep was submitted. To check that takes pydantic, for which
            the first node of a worker would wait; code that has changed since is refused by its fingerprint.
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
        """Return it as typed JSON. Raises StateError if a parameter cannot be written so."""
        return encode(asdict(self)).decode()

    @classmethod
    def read(cls, text: str) -> Draft:
        data = decode(text.encode())

        def drafts(of_node: Any) -> Any:
            return None if of_node is None else [VariantDraft(**one) for one in of_node]

        return cls(
            data["workflow"],
            data["path"],
            {node: drafts(of_node) for node, of_node in data["vary"].items()},
            {node: drafts(of_node) for node, of_node in data["forks"].items()},
            [NamedEvaluator(**one) for one in data["evaluators"]],
            data["params"],
            data["servers"],
            data["permitted"],
            data["is_checked"],
            data["name"],
        )


@dataclass
class Completed:
    """A draft with its code.

    Attributes:
        workflow: The workflow with the variants of the sweep; None if only evaluators are wanted.
        recipe: How a node process makes the same.
        evaluators: They, named.
        vary: The names of the variants of each varied node, in the order of the sweep.
        problems: What is wrong with the draft, with its places in the sweep file.
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
        draft: What a sweep names.
        code: Where it comes from.
        workflow: The workflow, if it is at hand.
        evaluators: Functions that are at hand, by the names that the sweep has for them.
        problem: Puts what is wrong with the name of the workflow into words.

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
    named = [replace(ref, shown=one.name) for ref, one in zip(draft.evaluators, completed.evaluators, strict=False)]
    completed.recipe = Recipe(draft.path, variants, named, params, list(completed.vary), draft.servers)
    return completed


def _vary(draft: Draft, workflow: Workflow, code: Code, completed: Completed) -> list[AddedVariant]:
    """Give a workflow the variants and servers of a sweep. Returns the variants that the sweep adds."""
    names: dict[str, list[str]] = {}
    variants: list[AddedVariant] = []
    for node_name in workflow.in_order(draft.vary):
        wanted, node = draft.vary[node_name], workflow.varied(node_name)
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
        if wanted is None:
            names[node_name] = node.active()
            if not names[node_name]:
                text = f"every variant of node {node_name!r} is deactivated; expected at least one, or a list of names"
                completed.problems.append((("vary", node_name), text))
            continue
        for number, ref in enumerate(wanted):
            added, wrong = add(workflow, node_name, ref, code)
            variants += [added] if added is not None else []
            completed.problems += [(("vary", node_name, number), text) for text in wrong]
        names[node_name] = [ref.name for ref in wanted]
    variants += add_for_forks(workflow, draft.forks, code)[0]  # a fork whose variant cannot be made any more fails
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
    """Add variants that were made for forks to a workflow. Returns them, and what is wrong with the others."""
    added_variants: list[AddedVariant] = []
    problems: list[str] = []
    for node in refs.keys() & workflow.nodes.keys():
        for ref in refs[node]:
            if ref.name not in workflow.nodes[node].variants:  # else a row was added with it since
                added, wrong = add(workflow, node, ref, code)
                added_variants += [added] if added is not None and not wrong else []
                problems += wrong
    return added_variants, problems


def add(workflow: Workflow, node_name: str, ref: VariantDraft, code: Code) -> tuple[AddedVariant | None, list[str]]:
    """Add a variant that a sweep makes. Returns what it adds, if it does, and what is wrong with it."""
    node = workflow.nodes[node_name]
    if ref.is_own:
        if ref.name in node.variants:
            return None, []
        near, known = did_you_mean(ref.name, node.variants), nearest_names(ref.name, node.variants)
        return None, [f"node {node.name!r} has no variant {ref.name!r}{near} (it has: {known})"]
    added = AddedVariant(node.name, ref.name, ref.source, ref.of, ref.params)
    try:
        variant = make_variant(node, added, code.load)
    except InputError as error:
        return None, list(error.problems)
    return added, workflow.add_variant(variant)


def _evaluate(draft: Draft, given: Mapping[str, Callable[..., Any]], code: Code, completed: Completed) -> None:
    """Make the evaluators of a draft, each under a name of its own."""
    for number, ref in enumerate(draft.evaluators):
        try:
            evaluator = make_evaluator(ref.name, ref.options, code.load, given.get(ref.name))
        except InputError as error:
            completed.problems += [(("evaluate", number), text) for text in error.problems]
            continue
        taken = {other.name for other in completed.evaluators}
        if evaluator.name in taken and "field" in ref.options:
            evaluator = replace(evaluator, name=f"{evaluator.name}:{ref.options['field']}")
        if evaluator.name in taken and draft.workflow is not None:  # else scores of the last one stay
            text = f"two evaluators are named {evaluator.name!r}; give one another with the option 'name'"
            completed.problems.append((("evaluate", number), text))
        completed.evaluators.append(evaluator)
