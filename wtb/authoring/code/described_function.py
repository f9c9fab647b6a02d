"""What stands for a function that is elsewhere, and the types that can be made again from a JSON Schema."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Mapping
from typing import Any, Literal, NoReturn

from wtb.core.documents.workflows.publications import PublishedFunction, PublishedType
from wtb.core.errors import InputError
from wtb.core.mappings import JsonSchema


class DescribedFunction:
    """Stands for a function that only workers have: it has the signature and the fingerprint of that."""

    def __init__(self, name: str, described: PublishedFunction, *, returns: Any = None) -> None:
        self.__name__ = name
        self.fingerprint = described["fingerprint"]
        kinds = inspect.Parameter
        parameters = [kinds("state", kinds.POSITIONAL_ONLY), kinds("ctx", kinds.POSITIONAL_ONLY)]
        self.__annotations__ = {"return": returns}
        for key, one in described["parameters"].items():
            default = kinds.empty if one["required"] else None
            parameters.append(kinds(key, kinds.KEYWORD_ONLY, default=default))
            self.__annotations__[key] = plain_type(one["type"])
        if described["any"]:
            parameters.append(kinds("others", kinds.VAR_KEYWORD))
        self.__signature__ = inspect.Signature(parameters, return_annotation=returns)

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise InputError(f"{self.__name__!r} is code that only workers have")


def plain_type(kind: PublishedType) -> Any:
    """Return the type that was described, if it is plain; else Any, of which nothing can be said without the code."""
    return _plain_type(kind["schema"] or {}) if kind["plain"] else Any


def _plain_type(schema: JsonSchema) -> Any:
    """Return the type that a JSON Schema of a plain type was made of."""
    if "anyOf" in schema:
        return functools.reduce(operator.or_, map(_plain_type, schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return Literal[tuple(schema.get("enum", [schema.get("const")]))]
    simple = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}
    match schema.get("type"):
        case "array":
            return list[_plain_type(schema["items"])] if schema.get("items") else list  # type: ignore[misc]
        case "object":
            inner = schema.get("additionalProperties")
            return dict[str, _plain_type(inner)] if isinstance(inner, Mapping) else dict  # type: ignore[misc]
        case kind:
            return simple.get(str(kind), Any)
