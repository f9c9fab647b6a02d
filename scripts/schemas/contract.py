"""The JSON contract: one line for each key of the documents, which is committed and compared with the types.

A line has the document, its version, the key, the type of its value, and whether it is required:

    plan 1 cells integer required
    plan 1 nodes [PlanNode] required
    PlanNode - name string required

The path of a nested key leads through types: `plan` has a list of `PlanNode`, and its keys follow under that name.
Keys that all events share are in lines of `event-*`. `any` is any value, `[T]` a list, `(T,U)` a tuple, `{T}` an
object with keys of the user, and constants are written as in JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from scripts.schemas.json_schemas import ROOT, Schema

FILE = ROOT / "tests" / "core" / "json_contract.txt"
EVENTS = "event-*"
NO_VERSION = "-"  # of types, whose version is that of the documents that have them
_TYPE_NAME = re.compile(r'"[^"]*"|([A-Z]\w*)')  # strings are constants


class Key(NamedTuple):
    """The value of a key: its type as text, and whether it is always there."""

    type: str
    required: bool


class Shape(NamedTuple):
    """A document, or a type of which documents consist."""

    version: str
    keys: Mapping[str, Key]


Contract = Mapping[str, Shape]


def contract_of(schemas: Mapping[str, Schema]) -> Contract:
    """Return the contract of documents.

    Args:
        schemas: By name.

    Raises:
        ValueError: If two types have one name, or a schema has what no text of a type can express.
    """
    shapes: dict[str, Shape] = {}
    for name, schema in schemas.items():
        definitions = schema.get("$defs", {})
        shapes[name] = Shape(str(schema["version"]), _keys(schema, definitions))
        for type_name, definition in definitions.items():
            if "properties" not in definition:
                continue
            shape = Shape(NO_VERSION, _keys(definition, definitions))
            if shapes.setdefault(type_name, shape) != shape:
                raise ValueError(f"two types are called {type_name}: rename one of them")
    return shapes


def _keys(schema: Schema, definitions: Mapping[str, Schema]) -> Mapping[str, Key]:
    required = schema.get("required", ())
    return {key: Key(_type(of, definitions), key in required) for key, of in schema.get("properties", {}).items()}


def _type(schema: Schema, definitions: Mapping[str, Schema]) -> str:
    match {key: value for key, value in schema.items() if key not in ("title", "description")}:
        case {"$ref": str(ref), **rest} if not rest:
            name = ref.rpartition("/")[2]
            return name if "properties" in definitions[name] else _type(definitions[name], definitions)
        case {"anyOf": options, **rest} if not rest:
            return "|".join(_type(option, definitions) for option in options)
        case {"const": constant, "type": _, **rest} if not rest:
            return json.dumps(constant)
        case {"enum": values, "type": _, **rest} if not rest:
            return "|".join(map(json.dumps, values))
        case {"type": "array" | "object", **rest} if rest:
            return _container_type(rest, definitions)
        case {"type": str(name), **rest} if not rest:
            return name
        case {**rest} if not rest:
            return "any"
    raise ValueError(f"the contract has no text for {schema}: add it here")


def _container_type(content: Schema, definitions: Mapping[str, Schema]) -> str:
    """Return the type of an array or object from what its schema has besides `type`."""
    match content:
        case {"items": items, **rest} if not rest:
            return f"[{_type(items, definitions)}]"
        case {"prefixItems": items, "minItems": _, "maxItems": _, **rest} if not rest:
            return f"({','.join(_type(part, definitions) for part in items)})"
        case {"additionalProperties": True, **rest} if not rest:
            return "{any}"
        case {"additionalProperties": values, **rest} if not rest:
            return f"{{{_type(values, definitions)}}}"
    raise ValueError(f"the contract has no text for {content}: add it here")


def contract_text(contract: Contract) -> str:
    """Return the lines of a contract, sorted."""
    events = [name for name, shape in contract.items() if _is_event(name, shape)]
    shared = set.intersection(*(set(_lines(EVENTS, contract[name])) for name in events)) if events else set()
    lines = set(shared)
    for name, shape in contract.items():
        as_event = _lines(EVENTS if name in events else name, shape)
        lines |= {line for line, text in zip(_lines(name, shape), as_event, strict=True) if text not in shared}
    return "".join(f"{line}\n" for line in sorted(lines))


def _lines(name: str, shape: Shape) -> list[str]:
    words = {True: "required", False: "optional"}
    return [f"{name} {shape.version} {key} {of.type} {words[of.required]}" for key, of in shape.keys.items()]


def read_contract(text: str) -> Contract:
    """Return the contract from its lines."""
    keys: dict[tuple[str, str], dict[str, Key]] = {}
    for line in text.splitlines():
        name, version, key, rest = line.split(" ", 3)
        type_, _, required = rest.rpartition(" ")
        keys.setdefault((name, version), {})[key] = Key(type_, required == "required")
    shapes = {name: Shape(version, of) for (name, version), of in keys.items() if name != EVENTS}
    for name, shape in shapes.items():
        if _is_event(name, shape):
            shapes[name] = Shape(shape.version, {**keys.get((EVENTS, shape.version), {}), **shape.keys})
    return shapes


def _is_event(name: str, shape: Shape) -> bool:
    return name.startswith("event-") and "kind" in shape.keys


def contract_breaks(before: Contract, after: Contract) -> list[str]:
    """Return the breaks of the contract by documents of an unchanged version.

    A document may gain keys that are optional, and an object of anything may become a type or an object of something.

    Args:
        before: The committed contract.
        after: The contract of the types.
    """
    problems: set[str] = set()
    for name, shape in before.items():
        if shape.version != NO_VERSION and name in after and after[name].version == shape.version:
            problems |= set(_shape_breaks(name, before, after, set()))
    return sorted(problems)


def _shape_breaks(name: str, before: Contract, after: Contract, visited: set[str]) -> Iterator[str]:
    if name in visited or name not in before or name not in after:
        return  # a type without keys, or one that was renamed: then the keys that have it are named
    visited.add(name)
    old, new = before[name].keys, after[name].keys
    for key, of in new.items():
        if key not in old and of.required:
            yield f"{name} {key}: new, and required (NotRequired may be missing)"
    for key, of in old.items():
        if key not in new:
            yield f"{name} {key}: removed"
            continue
        if not _fits(of.type, new[key].type):
            yield f"{name} {key}: was {of.type}"
        if of.required != new[key].required:
            yield f"{name} {key}: was {'required' if of.required else 'optional'}"
        for match in _TYPE_NAME.finditer(of.type):
            if match[1]:
                yield from _shape_breaks(match[1], before, after, visited)


def _fits(before: str, after: str) -> bool:
    """Return whether a type is the same, but for objects of anything of which more is known."""
    narrowed = re.escape(before).replace(re.escape("{any}"), r"(\{.*\}|[A-Z]\w*)")
    return re.fullmatch(narrowed, after) is not None
