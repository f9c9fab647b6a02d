"""Mappings from names to whatever users, their functions or Python itself put there: what WTB passes on unread.

Each is a name for a kind of mapping whose values no type of ours can describe. Where the values are known, a TypedDict,
a record or `Json` says more; `make untyped` counts what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

State: TypeAlias = Mapping[str, Any]
"""Values by key of a state, an input or a change of them, as nodes see them: of every type that can be stored."""

Params: TypeAlias = Mapping[str, Any]
"""Values of parameters of a workflow or a variant by name: of whatever types its own functions take."""

Options: TypeAlias = Mapping[str, Any]
"""Options of an evaluator by name: of whatever types its function takes, evaluators that it combines among them."""

Arguments: TypeAlias = Mapping[str, Any]
"""Arguments of a call by name, where the function may be any: an operation, a tool, a method of a model's client."""

Namespace: TypeAlias = Mapping[str, Any]
"""Objects by the names that a module, a class or an object has for them."""

JsonSchema: TypeAlias = Mapping[str, Any]
"""A JSON Schema, or a part of an OpenAPI description: keywords, which nest without an end that types could name."""

SweepKeys: TypeAlias = Mapping[str, Any]
"""The keys of a sweep file with what users wrote there, which `SweepSpec` reads and checks."""
