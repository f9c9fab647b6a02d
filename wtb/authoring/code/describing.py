"""A workflow and evaluators as data: what planning needs to know of code, and no code."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

import orjson
from typing_extensions import TypedDict

from wtb.authoring.code.fingerprint import fingerprint
from wtb.authoring.code.import_paths import load, published_evaluators, registered
from wtb.authoring.code.resolve import workflow_at
from wtb.authoring.code.sources.state_keys import read_keys, written_keys
from wtb.authoring.evaluation.adapters import adapted
from wtb.authoring.graph_snapshot import graph_snapshot, type_name
from wtb.authoring.nodes import Node, Variant
from wtb.authoring.state_schema import Schema
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.arguments.approval import Approval, modes_of
from wtb.core.documents.workflows.publications import (
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
from wtb.core.mappings import Params
from wtb.core.scoring.scales import returns_bool
from wtb.core.serialization.codec import encode
from wtb.core.serialization.plain_json import readable, storable
from wtb.core.tree.checkpoints import is_hidden
from wtb.core.values import Json

_PLAIN = frozenset({Any, str, int, float, bool, type(None), list, dict})


_LONGEST_DEFAULT = 100_000  # bytes: pages fill it in


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
        schemas: Whether to describe types, which takes pydantic: it is needed to check values, not to run nodes.

    Returns:
        What `wtb.authoring.code.described` makes a workflow of that can be planned with, and not run.
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
    """Return the keys that a case is likely to need: of its input, else of the state that no node writes first."""
    keys = [key for key in (workflow.input or workflow.schema).keys if not is_hidden(key)]
    if workflow.input is not None:
        return keys
    variants = [variant for node in workflow.nodes.values() for variant in node.variants.values()]
    written = {key for variant in variants for key in written_keys(variant.fn)}
    first = [workflow.nodes[name] for name in workflow.entries if name in workflow.nodes]
    read = {key for node in first for key in read_keys(node[node.default].fn)}
    return [key for key in keys if key not in written or key in read] or keys


def _approval(approval: Approval) -> str | dict[str, str] | list[str | dict[str, str]]:
    """Return approval modes as plain values; a single mode as it is."""
    modes = [mode if isinstance(mode, str) else dict(mode) for mode in modes_of(approval)]
    return modes if not isinstance(approval, str | Mapping) else modes[0]


def describe_evaluator(function: Callable[..., Any], *, schemas: bool = True) -> EvaluatorDescription:
    """Describe an evaluator.

    Args:
        function: It.
        schemas: Whether to describe the types of its options.

    Returns:
        What `wtb.authoring.code.described` makes an evaluator of that scores nothing.
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
    """Return what is registered in this folder. Raises InputError if the file that registers it cannot be read."""
    names: list[RegisteredName] = [{"kind": "workflow", "name": n, "path": path} for n, path in registered().items()]
    return names + [{"kind": "evaluator", "name": path, "path": path} for path in published_evaluators()]


def described_names(names: Sequence[RegisteredName]) -> list[DescribedName]:
    """Import and describe what is registered."""
    describe: Mapping[str, Callable[[RegisteredName], Any]] = {"workflow": _workflow_at, "evaluator": _evaluator_at}
    described: list[DescribedName] = []
    for one in names:
        try:
            text = orjson.dumps(describe[one["kind"]](one)).decode()
            described.append({**one, "description": text, "error": None})
        except WTBError as error:
            described.append({**one, "description": None, "error": str(error)})
    return described


def _workflow_at(registered: RegisteredName) -> WorkflowDescription:
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


def _listed(given: Any) -> Any:
    """Return a scale, or those of several metrics, as JSON has them."""
    if isinstance(given, Mapping):
        return {key: _listed(value) for key, value in given.items()}
    return list(given) if isinstance(given, tuple) else given


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
    params, shown = _params(variant.params)
    return {"function": _variant_function(variant, node.code(variant), schemas), "params": params, "shown": shown}


def _variant_function(variant: Variant, code: Any, schemas: bool) -> PublishedFunction:
    """Describe the function of a variant with what the kind of its node says are its parameters."""
    try:
        known, takes_any = variant.parameters
    except (InputError, TypeError, ValueError):  # a runnable, or what is not written in Python
        return {"fingerprint": fingerprint(code), "parameters": {}, "any": False}
    return _described(variant.fn, code, known.values(), takes_any, schemas)


def _params(given: Params) -> tuple[dict[str, str], dict[str, str]]:
    """Return values as typed JSON, and those that cannot be stored as Python shows them."""
    params, shown = {}, {}
    for name, value in given.items():
        try:
            params[name] = encode(value).decode()
        except StateError:
            shown[name] = storable(repr(value))
    return params, shown


def _function(function: Callable[..., Any], code: Any, schemas: bool) -> PublishedFunction:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some that are not written in Python have none
        return {"fingerprint": fingerprint(code), "parameters": {}, "any": True}
    named = [one for one in parameters if one.kind is one.KEYWORD_ONLY]
    return _described(function, code, named, any(one.kind is one.VAR_KEYWORD for one in parameters), schemas)


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
            one.name: _parameter(one, _type(hints.get(one.name, Any), schemas), has_default=schemas)
            for one in parameters
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
    import pydantic  # which takes its time to import

    try:
        return pydantic.TypeAdapter(annotation).json_schema()
    except (pydantic.PydanticUserError, NameError, TypeError):  # a type that JSON Schema, or pydantic, does not have
        return None


def _is_plain(annotation: Any) -> bool:
    """Whether values of a type are JSON as it is: tuples, models and dates are made of it, and take code to make."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (typing.Union, types.UnionType) or origin is list:
        return all(map(_is_plain, args))
    if origin is dict:
        return args[0] is str and _is_plain(args[1])
    if origin is Literal:
        return all(isinstance(one, str | int | None) for one in args)
    try:
        return annotation in _PLAIN
    except TypeError:  # what cannot be hashed
        return False
