"""How another process makes the same workflow and evaluators again: import paths, names and parameters, no objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any, Final

from wtb.authoring.code.import_paths import load
from wtb.authoring.code.resolve import workflow_at
from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.authoring.evaluation.evaluators import Evaluator
from wtb.authoring.nodes import Node, Variant
from wtb.authoring.workflow import Workflow
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, did_you_mean
from wtb.core.mappings import Options, Params
from wtb.core.serialization.codec import decode, encode

SERVERS: Final = "wtb.integrations.mcp.declaring:use_declared"  # which knows of MCP


@frozen
class AddedVariant:
    """A variant that the sweep makes: the callable at `source`, or that of the variant `of`, with parameters."""

    node: str
    name: str
    source: str | None
    of: str | None
    params: Params


@frozen
class NamedEvaluator:
    """An evaluator by built-in name or import path, its options, and the name it goes by in this sweep."""

    name: str
    options: Options
    shown: str


@frozen
class Recipe:
    """A sweep's code. workflow: its import path; None where only evaluators are wanted. params: of the sweep.

    vary: the nodes that it varies. servers: the MCP servers that it declares, as its file has them.
    """

    workflow: str | None
    variants: Sequence[AddedVariant] = ()
    evaluators: Sequence[NamedEvaluator] = ()
    params: Params | None = None
    vary: Sequence[str] = ()
    servers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> Sequence[str]:
        """The import paths of its workflow, and of what the sweep adds to it."""
        paths = (self.workflow, *(variant.source for variant in self.variants))
        return list(dict.fromkeys(path for path in paths if path is not None))

    def text(self) -> str:
        """As typed JSON. Raises StateError where a parameter cannot be written so."""
        return encode(asdict(self)).decode()

    @classmethod
    def read(cls, text: str) -> Recipe:
        data = decode(text.encode())
        return cls(
            data["workflow"],
            [AddedVariant(**one) for one in data["variants"]],
            [NamedEvaluator(**one) for one in data["evaluators"]],
            data["params"],
            data["vary"],
            data["servers"],
        )


def assemble(recipe: Recipe) -> tuple[Workflow | None, list[Evaluator]]:
    """The workflow with the sweep's own variants, and its evaluators. Raises InputError."""
    workflow = None
    if recipe.workflow is not None:
        workflow = workflow_at(recipe.workflow).copy()
        for name in workflow.in_order(dict.fromkeys((*recipe.vary, *(one.node for one in recipe.variants)))):
            workflow.varied(name)  # one after the other, as in `bind`: the variants of one may be what has the next
            for one in recipe.variants:
                if one.node == name:
                    workflow.add_variant(make_variant(workflow.nodes[name], one))
        for server, declared in recipe.servers.items():
            add_server(workflow, server, declared)
    return workflow, [named(one) for one in recipe.evaluators]


def add_server(workflow: Workflow, name: str, declared: Mapping[str, Any]) -> None:
    """Have nodes call tools of a server that a sweep declares. Raises InputError."""
    load(SERVERS)(workflow, name, declared)


def make_variant(node: Node, added: AddedVariant, resolve: Callable[[str], Any] = load) -> Variant:
    """The variant that a sweep adds to a node. resolve: imports a path. Raises InputError where that is not there."""
    if added.source is not None:
        return node.variant_type(node.name, added.name, resolve(added.source), added.params)
    if added.of is not None and added.of not in node.variants:
        near = did_you_mean(added.of, node.variants)
        raise InputError(f"node {node.name!r} has no variant {added.of!r} to derive from{near}")
    own = added.of is None and added.name in node.variants  # the workflow's own variant with other parameters
    parent = node.variants[added.name if own else added.of or node.default]
    return node.variant_type(node.name, added.name, parent.fn, {**parent.params, **added.params}, parent.description)


def named(one: NamedEvaluator, given: Callable[..., Any] | None = None) -> Evaluator:
    """An evaluator under the name that it has in a sweep. Raises InputError."""
    evaluator = make_evaluator(one.name, one.options, load, given)
    return replace(evaluator, name=one.shown or evaluator.name)
