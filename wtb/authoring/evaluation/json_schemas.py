"""JSON schemas of evaluators: checked before a run, and never looked up anywhere but in themselves.

A `$ref` may lead to a place within the schema, or to one of JSON Schema's own meta-schemas, which come with the
library. Nothing is ever retrieved, neither over the network nor from a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import best_match
from jsonschema_specifications import REGISTRY
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from wtb.core.errors import InputError, describe
from wtb.core.values import Json

# Only this format: whether others are checked depends on which packages are installed.
_META = Draft202012Validator(
    Draft202012Validator.META_SCHEMA, registry=REGISTRY, format_checker=FormatChecker(formats=("regex",))
)
_REFERENCES = ("$ref", "$dynamicRef")


def check_schema(schema: object) -> None:
    """Reject a value that is no schema of draft 2020-12, or has references out of itself. Raises InputError."""
    if not isinstance(schema, Mapping):
        raise InputError(f"'schema' is {describe(schema)}; expected a mapping with a JSON schema")
    try:
        _check_shape(schema, "schema")
        _check_references(schema)
    except RecursionError:
        raise InputError("'schema' is nested too deeply; expected a flatter schema") from None


def fits(schema: Mapping[str, Json], document: object) -> bool:
    """Return whether a value fits a schema that was checked."""
    return Draft202012Validator(schema, registry=REGISTRY).is_valid(document)


def _check_shape(schema: object, name: str) -> None:
    problem = best_match(_META.iter_errors(schema))
    if problem is not None:
        at = name + problem.json_path.removeprefix("$")
        raise InputError(f"'{at}' is not a JSON schema of draft 2020-12: {problem.message[:200]}")


def _check_references(schema: Mapping[str, Json]) -> None:
    root = DRAFT202012.create_resource(schema)
    try:
        todo = [(root, REGISTRY.resolver_with_root(root))]
        seen: set[int] = set()
        while todo:
            subschema, resolver = todo.pop()
            if not isinstance(subschema.contents, Mapping) or id(subschema.contents) in seen:
                continue
            seen.add(id(subschema.contents))
            resolver = resolver.in_subresource(subschema)
            for key in _REFERENCES:
                if key in subschema.contents:
                    target = _target(key, subschema.contents[key], resolver)
                    todo.append((DRAFT202012.create_resource(target.contents), target.resolver))
            todo += [(part, resolver) for part in subschema.subresources()]
    except ValueError as error:  # of the standard library, for an address that is none
        raise InputError(f"'schema' has an '$id' that cannot be read: {error}") from None


def _target(key: str, reference: str, resolver: Any) -> Any:
    """Follow a reference. Raises InputError if its target is not in the schema, or is no schema."""
    try:
        target = resolver.lookup(reference)
    except (Unresolvable, LookupError, TypeError, ValueError):
        raise InputError(
            f"'schema' has a {key} to {describe(reference)}, which is not in it; expected one that leads to a place "
            f"in the schema, such as '#/$defs/NAME': WTB fetches nothing"
        ) from None
    _check_shape(target.contents, f"schema{reference}")
    return target
