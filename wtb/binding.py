"""A sweep bound to code: its workflow with the sweep's own variants, its evaluators, its fingerprints."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from wtb.errors import InputError, did_you_mean, meant_or_known
from wtb.evaluation import Evaluator, make_evaluator
from wtb.fingerprint import fingerprint
from wtb.loading import load, workflow_path
from wtb.nodes import Node, Variant
from wtb.spec import SweepSpec, VariantRef
from wtb.workflow import END, Workflow


@dataclass(frozen=True)
class Bound:
    """What a process needs to run nodes of a sweep.

    vary: varied node -> names of its variants, in the order of the sweep. fingerprints: node -> variant -> code.
    """

    spec: SweepSpec
    workflow: Workflow
    vary: Mapping[str, Sequence[str]]
    evaluators: Sequence[Evaluator]
    fingerprints: Mapping[str, Mapping[str, str]]
    params: Mapping[str, Any] = field(default_factory=dict)


def bind(
    spec: SweepSpec,
    workflow: Workflow | None = None,
    evaluators: Mapping[str, Callable[..., Any]] | None = None,
) -> Bound:
    """Import what a sweep names and check that it fits. Raises InputError with all problems at once.

    workflow, evaluators: objects that Python callers gave; they need no import path.
    """
    if workflow is None:
        workflow = load_workflow(spec.workflow, lambda text: spec.located.problem(("workflow",), text))
    workflow.validate()
    bound = workflow.copy()
    problems: list[str] = []
    vary = {}
    for node_name, wanted in spec.vary.items():
        if node_name not in bound.nodes:
            near = did_you_mean(node_name, bound.nodes)
            problems.append(
                spec.located.problem(("vary", node_name), f"workflow {workflow.name!r} has no node {node_name!r}{near}")
            )
            continue
        node = bound.nodes[node_name]
        if wanted == "all":
            vary[node_name] = node.active()
            if not vary[node_name]:
                text = f"every variant of node {node_name!r} is deactivated; expected at least one, or a list of names"
                problems.append(spec.located.problem(("vary", node_name), text))
            continue
        for number, ref in enumerate(wanted):
            for text in _add_variant(node, ref):
                problems.append(spec.located.problem(("vary", node_name, number), text))
        vary[node_name] = [ref.name for ref in wanted]
    problems += _baseline_problems(spec, bound, vary)
    made, more = _evaluators(spec, evaluators or {})
    problems += more
    if problems:
        raise InputError(*problems)
    return Bound(spec, bound, vary, made, _fingerprints(bound, vary), {**workflow.params, **spec.params})


def load_workflow(name: str, problem: Callable[[str], str] = str) -> Workflow:
    """The workflow that a registered name or import path stands for. Raises InputError."""
    try:
        found = load(workflow_path(name))
    except InputError as error:
        raise InputError(*(problem(text) for text in error.problems)) from error
    if not isinstance(found, Workflow):
        raise InputError(problem(f"{name!r} is of type {type(found).__name__}; expected a wtb.Workflow"))
    return found


def _add_variant(node: Node, ref: VariantRef) -> list[str]:
    if ref.is_own:
        if ref.name in node.variants:
            return []
        near = did_you_mean(ref.name, node.variants)
        return [f"node {node.name!r} has no variant {ref.name!r}{near} (it has: {', '.join(node.variants)})"]
    if ref.of is not None and ref.of not in node.variants:
        near = did_you_mean(ref.of, node.variants)
        return [f"node {node.name!r} has no variant {ref.of!r} to derive from{near}"]
    if ref.name in node.variants and not ref.source and not ref.of:
        parent = node.variants[ref.name]  # the workflow's own variant with other parameters
    else:
        parent = node.variants[ref.of or node.default]
    if ref.source:
        try:
            made = Variant(node.name, ref.name, load(ref.source), ref.params)
        except InputError as error:
            return list(error.problems)
    else:
        made = Variant(node.name, ref.name, parent.fn, {**parent.params, **ref.params}, parent.description)
    problems = made.problems()
    if not problems:
        node.variants[ref.name] = made
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


def _evaluators(spec: SweepSpec, given: Mapping[str, Callable[..., Any]]) -> tuple[list[Evaluator], list[str]]:
    made: list[Evaluator] = []
    problems: list[str] = []
    for number, ref in enumerate(spec.evaluate):
        try:
            one = make_evaluator(ref.name, ref.options, load, given.get(ref.name))
        except InputError as error:
            problems += [spec.located.problem(("evaluate", number), text) for text in error.problems]
            continue
        taken = {other.name for other in made}
        if one.name in taken and "field" in ref.options:
            one = Evaluator(f"{one.name}:{ref.options['field']}", one.fn, one.better)
        if one.name in taken:
            text = f"two evaluators are named {one.name!r}; give one a name with @evaluator(name=...)"
            problems.append(spec.located.problem(("evaluate", number), text))
        made.append(one)
    return made, problems


def _fingerprints(workflow: Workflow, vary: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    """Code and parameters of every variant that the sweep can reach."""
    found: dict[str, dict[str, str]] = {}
    codes: dict[int, str] = {}  # variants often share their function
    for node in workflow.nodes.values():
        chosen = [node.variants[name] for name in vary.get(node.name, [node.default])]
        for variant in chosen:
            if id(variant.fn) not in codes:
                codes[id(variant.fn)] = fingerprint(variant.fn)
        found[node.name] = {variant.name: _code(variant, codes[id(variant.fn)]) for variant in chosen}
    return found


def _code(variant: Variant, code: str) -> str:
    """The fingerprint of a variant: of its function and its parameters."""
    if not variant.params:
        return code
    words = orjson.dumps(dict(variant.params), option=orjson.OPT_SORT_KEYS, default=repr)
    return hashlib.sha256(code.encode() + words).hexdigest()[:16]


def graph_snapshot(workflow: Workflow) -> dict[str, Any]:
    """The graph as data, for display and comparison; code stays code."""
    return {
        "name": workflow.name,
        "version": workflow.version,
        "description": workflow.description,
        "state": {
            key.name: {"type": _type_name(key.annotation), "reducer": _callable_name(key.reducer)}
            for key in workflow.schema.keys.values()
        },
        "entries": list(workflow.entries),
        "nodes": [_node_snapshot(node) for node in workflow.nodes.values()],
        "edges": [
            {
                "from": list(edge.sources),
                "to": "END" if edge.target == END else edge.target,
                "when": _callable_name(edge.when),
                "priority": edge.priority,
                "default": edge.default,
            }
            for edge in workflow.edges
        ],
        "branches": [
            {
                "from": branch.source,
                "by": _callable_name(branch.by),
                "to": {key: "END" if t == END else t for key, t in branch.targets.items()},
                "default": "END" if branch.default == END else branch.default,
            }
            for branch in workflow.branches
        ],
    }


def _node_snapshot(node: Node) -> dict[str, Any]:
    rules = node.rules
    return {
        "name": node.name,
        "default": node.default,
        "retries": rules.retries,
        "timeout": rules.timeout,
        "on_error": rules.on_error,
        "durable": rules.durable,
        "variants": [
            {
                "name": variant.name,
                "description": variant.description,
                "params": {name: _plain(value) for name, value in variant.params.items()},
                "active": variant.active,
            }
            for variant in node.variants.values()
        ],
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | type(None)) else repr(value)


def _type_name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _callable_name(fn: Any) -> str | None:
    return None if fn is None else getattr(fn, "__name__", type(fn).__name__)
