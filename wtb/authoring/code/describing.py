"""Descriptions of workflows and evaluators as data: the facts that planning needs, without code."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, get_args, get_origin

import orjson
from typing_extensions import TypedDict

from wtb.authoring.code.fingerprint import fingerprint
from wtb.authoring.code.import_paths import load, published_evaluators, registered, workflow_at
from wtb.authoring.evaluation.adapters import adapted
from wtb.authoring.graph import graph_snapshot, type_name
from wtb.authoring.nodes import Node, Variant
from wtb.authoring.state_schema import Schema
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.documents.workflows import (
    EvaluatorDescription,
    PublicationKind,
    PublishedFunction,
    PublishedNode,
    PublishedParameter,
    PublishedShape,
    PublishedType,
    PublishedVariant,
    WorkflowDescription,
)
from wtb.core.errors import InputError, StateError, WTBError
from wtb.core.questions import Approval, modes_of
from wtb.core.scoring.scores import returns_bool
from wtb.core.serialization.codec import encode
from wtb.core.serialization.plain_json import readable, storable
from wtb.core.tree.checkpoints import is_hidden
from wtb.core.values import Json, Params

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def written_keys(fn: Callable[..., Any]) -> frozenset[str]:
    """Return the keys of mappings that a function writes out and returns; none without its source."""
    node = _parsed(fn)
    if node is None:
        return frozenset()
    if isinstance(node, ast.Lambda):
        return frozenset(_keys(node.body, {}))
    own = list(_own_nodes(node))
    assigned: dict[str, list[ast.expr]] = {}
    keys: set[str] = set()
    for inner in own:
        if isinstance(inner, ast.Assign):
            for target in inner.targets:
                if isinstance(target, ast.Name):
                    assigned.setdefault(target.id, []).append(inner.value)
    returned = [inner.value for inner in own if isinstance(inner, ast.Return) and inner.value is not None]
    for expression in returned:
        keys.update(_keys(expression, assigned))
    names = {expression.id for expression in returned if isinstance(expression, ast.Name)}
    for inner in own:  # such as `update["answer"] = ...` of a mapping that is returned
        if isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Store) and _name(inner.value) in names:
            keys.update(_texts(inner.slice))
    return frozenset(keys)


def read_keys(fn: Callable[..., Any]) -> frozenset[str]:
    """Return the keys that a function requires, as `state["key"]` or `state.key`; none without its source."""
    node = _parsed(fn)
    arguments = [] if node is None else [*node.args.posonlyargs, *node.args.args]
    if node is None or not arguments:
        return frozenset()
    state = arguments[0].arg
    keys: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Load) and _name(inner.value) == state:
            keys.update(_texts(inner.slice))
        elif isinstance(inner, ast.Attribute) and _name(inner.value) == state:
            keys.add(inner.attr)
    return frozenset(keys)


def _parsed(fn: Callable[..., Any]) -> _Function | None:
    """Return the syntax of a function."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(fn))))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    name = getattr(fn, "__name__", "")
    if name == "<lambda>":
        functions: list[_Function] = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    else:
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    # Lambdas on one line have the same source, and it cannot be determined which of them is meant.
    return functions[0] if len(functions) == 1 else None


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without functions within it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _own_nodes(child)


def _keys(expression: ast.expr | None, assigned: dict[str, list[ast.expr]]) -> Iterator[str]:
    """Yield the keys of a mapping that an expression makes; also of `Command(update={...})`."""
    match expression:
        case ast.Dict():
            for key, part in zip(expression.keys, expression.values, strict=True):
                yield from _keys(part, assigned) if key is None else _texts(key)
        case ast.IfExp():
            yield from _keys(expression.body, assigned)
            yield from _keys(expression.orelse, assigned)
        case ast.BinOp():
            yield from _keys(expression.left, assigned)
            yield from _keys(expression.right, assigned)
        case ast.Call(func=ast.Name(id="dict")):
            yield from (keyword.arg for keyword in expression.keywords if keyword.arg is not None)
        case ast.Call():
            parts = [keyword.value for keyword in expression.keywords if keyword.arg == "update"]
            yield from chain.from_iterable(_keys(part, assigned) for part in parts)
        case ast.Name(id=name):
            # Without this name: in `update = update | {"x": 1}` an expression leads back to itself.
            others = {other: parts for other, parts in assigned.items() if other != name}
            yield from chain.from_iterable(_keys(part, others) for part in assigned.get(name, ()))


def _texts(expression: ast.expr) -> Iterator[str]:
    if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        yield expression.value


def _name(expression: ast.expr) -> str | None:
    return expression.id if isinstance(expression, ast.Name) else None


_PLAIN = frozenset({Any, str, int, float, bool, type(None), list, dict})


_LONGEST_DEFAULT = 100_000  # bytes of a default that pages fill in


class RegisteredName(TypedDict):
    """A registered workflow, or an evaluator, whose name is its path."""

    kind: PublicationKind
    name: str
    path: str


class DescribedName(RegisteredName):
    """A registered name with the description of its code as JSON, or with the reason why it cannot be imported."""

    description: str | None
    error: str | None


def describe_workflow(workflow: WorkflowFacts, *, schemas: bool = True) -> WorkflowDescription:
    """Describe a workflow.

    Args:
        workflow: The facts of a valid workflow.
        schemas: Whether to describe types, for which pydantic is imported. Needed to check values, not to run nodes.

    Returns:
        The description, from which `wtb.authoring.code.described` makes a workflow for planning.
    """
    params, _ = _params(workflow.params)
    described: WorkflowDescription = {
        "graph": graph_snapshot(workflow),
        "state": _shape(workflow.schema, schemas),
        "input": None if workflow.input is None else _shape(workflow.input, schemas),
        "state_key": workflow.state_key,
        "closed_input": workflow.is_input_closed,
        "nodes": {name: _node(node, schemas) for name, node in workflow.nodes.items()},
        "starts": list(workflow.starts),
        "params": params,
        "max_steps": workflow.max_steps,
        "approval": _approval(workflow.approval),
        "breakpoints": list(workflow.breakpoints),
        "sent_to": sorted(workflow.sent_to),
        "is_limited": workflow.is_limited,
        "is_open": workflow.is_open,
        "tools": sorted(workflow.tools),
    }
    if schemas:
        described["inputs"] = _inputs(workflow)
    return described


def _inputs(workflow: WorkflowFacts) -> list[str]:
    """Return the keys that a case probably needs: those of the input, else those that no node writes first."""
    keys = [key for key in (workflow.input or workflow.schema).keys if not is_hidden(key)]
    if workflow.input is not None:
        return keys
    variants = [variant for node in workflow.nodes.values() for variant in node.variants.values()]
    written = {key for variant in variants for key in written_keys(variant.fn)}
    first = [workflow.nodes[name] for name in workflow.entries if name in workflow.nodes]
    read = {key for node in first for key in read_keys(node[node.default].fn)}
    return [key for key in keys if key not in written or key in read] or keys


def _approval(approval: Approval) -> str | dict[str, str] | list[str | dict[str, str]]:
    """Return approval modes as plain values; a single mode without a list."""
    modes = [mode if isinstance(mode, str) else dict(mode) for mode in modes_of(approval)]
    return modes if not isinstance(approval, str | Mapping) else modes[0]


def describe_evaluator(function: Callable[..., Any], *, schemas: bool = True) -> EvaluatorDescription:
    """Describe an evaluator.

    Args:
        function: The function.
        schemas: Whether to describe the types of its options.

    Returns:
        The description, from which `wtb.authoring.code.described` makes a stand-in.
    """
    return {
        "name": str(getattr(function, "wtb_name", None) or getattr(function, "__name__", type(function).__name__)),
        "function": _function(function, function, schemas),
        "better": getattr(function, "wtb_better", None),
        "compare": getattr(function, "wtb_compare", None),
        "timeout": getattr(function, "wtb_timeout", None),
        "scale": _listed(getattr(function, "wtb_scale", None)),
        "on_failure": _listed(getattr(function, "wtb_on_failure", None)),
        "returns_bool": returns_bool(function),
    }


def registered_names() -> list[RegisteredName]:
    """Return the registered names of this folder. Raises InputError if the file with them cannot be read."""
    names: list[RegisteredName] = [{"kind": "workflow", "name": n, "path": path} for n, path in registered().items()]
    return names + [{"kind": "evaluator", "name": path, "path": path} for path in published_evaluators()]


def described_names(names: Sequence[RegisteredName]) -> list[DescribedName]:
    """Import and describe registered code."""
    describe: Mapping[str, Callable[[RegisteredName], Any]] = {"workflow": _workflow_at, "evaluator": _evaluator_at}
    described: list[DescribedName] = []
    for registration in names:
        try:
            text = orjson.dumps(describe[registration["kind"]](registration)).decode()
            described.append({**registration, "description": text, "error": None})
        except WTBError as error:
            described.append({**registration, "description": None, "error": str(error)})
    return described


def _workflow_at(registered: RegisteredName) -> WorkflowDescription:
    # A copy, because two registered names may have the same path.
    workflow = workflow_at(registered["path"]).copy()
    workflow.name = registered["name"]
    workflow.validate()
    return describe_workflow(workflow.facts())


def _evaluator_at(registered: RegisteredName) -> EvaluatorDescription:
    path = registered["path"]
    function = adapted(path, load(path))
    if not callable(function):
        raise InputError(f"evaluator {path!r} is of type {type(function).__name__}; expected a function (case, result)")
    return describe_evaluator(function)


def _listed(scale: Any) -> Any:
    """Return a scale, or those of several metrics, as JSON."""
    if isinstance(scale, Mapping):
        return {key: _listed(bound) for key, bound in scale.items()}
    return list(scale) if isinstance(scale, tuple) else scale


def _shape(schema: Schema, schemas: bool) -> PublishedShape:
    return {
        "open": schema.open,
        "model": schema.is_model,
        "keys": {
            key.name: {
                "type": _type(key.annotation, schemas),
                "reducer": None
                if key.reducer is None
                else getattr(key.reducer, "__name__", type(key.reducer).__name__),
                "required": key.required,
            }
            for key in schema.keys.values()
        },
    }


def _node(node: Node, schemas: bool) -> PublishedNode:
    rules = node.rules
    return {
        "queue": rules.queue,
        "limit": rules.limit,
        "rate": rules.rate,
        "max_usd": rules.max_usd,
        "max_tokens": rules.max_tokens,
        "threads": rules.threads,
        "variants": {name: _variant(node, variant, schemas) for name, variant in node.variants.items()},
    }


def _variant(node: Node, variant: Variant, schemas: bool) -> PublishedVariant:
    params, texts = _params(variant.params)
    return {"function": _variant_function(variant, node.code(variant), schemas), "params": params, "shown": texts}


def _variant_function(variant: Variant, code: Any, schemas: bool) -> PublishedFunction:
    """Describe the function of a variant, with the parameters that its kind of node defines."""
    try:
        parameters, takes_any = variant.parameters
    except (InputError, TypeError, ValueError):  # a runnable, or a function that is not written in Python
        return {"fingerprint": fingerprint(code), "parameters": {}, "any": False}
    return _described(variant.fn, code, parameters.values(), takes_any, schemas)


def _params(variant_params: Params) -> tuple[dict[str, str], dict[str, str]]:
    """Return values as typed JSON, and those that cannot be stored by their repr."""
    params, texts = {}, {}
    for name, argument in variant_params.items():
        try:
            params[name] = encode(argument).decode()
        except StateError:
            texts[name] = storable(repr(argument))
    return params, texts


def _function(function: Callable[..., Any], code: Any, schemas: bool) -> PublishedFunction:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some that are not written in Python have none
        return {"fingerprint": fingerprint(code), "parameters": {}, "any": True}
    named = [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    return _described(
        function, code, named, any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters), schemas
    )


def _described(
    function: Callable[..., Any], code: Any, parameters: Iterable[inspect.Parameter], takes_any: bool, schemas: bool
) -> PublishedFunction:
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):  # of names that exist for type checkers only
        hints = {}
    return {
        "fingerprint": fingerprint(code),
        "parameters": {
            parameter.name: _parameter(parameter, _type(hints.get(parameter.name, Any), schemas), has_default=schemas)
            for parameter in parameters
        },
        "any": takes_any,
    }


def _parameter(parameter: inspect.Parameter, kind: PublishedType, *, has_default: bool) -> PublishedParameter:
    """Describe a parameter, with its default unless that cannot be stored as JSON, or is long."""
    described: PublishedParameter = {"type": kind, "required": parameter.default is parameter.empty}
    if has_default and not described["required"]:
        try:
            encoded = encode(parameter.default)
        except StateError:
            return described
        if len(encoded) <= _LONGEST_DEFAULT:
            described["default"] = readable(encoded)
    return described


def _type(annotation: Any, schemas: bool) -> PublishedType:
    if not schemas:
        return {"shown": type_name(annotation), "schema": None, "plain": False}
    return {"shown": type_name(annotation), "schema": _json_schema(annotation), "plain": _is_plain(annotation)}


def _json_schema(annotation: Any) -> dict[str, Json] | None:
    import pydantic  # slow to import

    try:
        return pydantic.TypeAdapter(annotation).json_schema()
    except (pydantic.PydanticUserError, NameError, TypeError):  # a type that JSON Schema, or pydantic, does not have
        return None


def _is_plain(annotation: Any) -> bool:
    """Return whether values of a type are plain JSON. Tuples, models and dates need code to make them from JSON."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (typing.Union, types.UnionType) or origin is list:
        return all(map(_is_plain, args))
    if origin is dict:
        return args[0] is str and _is_plain(args[1])
    if origin is Literal:
        return all(isinstance(argument, str | int | None) for argument in args)
    try:
        return annotation in _PLAIN
    except TypeError:  # what cannot be hashed
        return False
