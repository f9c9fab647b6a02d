"""Conditions over a state, as breakpoints use them: safe expressions over plain values.

    len(docs) == 0 or answer.score < 0.5
    "refund" in question and not approved

Keys of the state and paths into them (docs[0].score), numbers, strings, True, False, None, lists of those, len(),
comparisons, `in`, and, or, not, + - * / // %. A path looks into mappings and lists, never at an attribute of an object.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from functools import partial
from typing import Any

from wtb.core.classes.frozen import frozen
from wtb.core.expressions.language import ARITHMETIC, COMPARISONS, Evaluate, Reader, UnknownValue, refused
from wtb.core.values import Json


@frozen
class StateCondition:
    """A condition over a state. keys: those that it names."""

    text: str
    keys: tuple[str, ...]
    _evaluate: Evaluate = field(repr=False, compare=False)

    def holds(self, state: Mapping[str, Json]) -> bool:
        """Evaluate the condition.

        Args:
            state: Plain values by key.

        Raises:
            UnknownValue: The truth is unknown; the message says why.
        """
        return bool(self._evaluate(state))


def parse_state_condition(text: str, keys: Collection[str] = ()) -> StateCondition:
    """Read a condition.

    Args:
        text: The condition.
        keys: Keys of the state. One with a dot in it, such as `sub.words`, is a key and no path.

    Raises:
        ValueError: The text is no condition; the message says what was found and what is expected.
    """
    reader = _Reader()
    evaluate = reader.read(text, _DottedKeys(keys).visit)
    return StateCondition(" ".join(text.split()) if "\n" in text else text.strip(), tuple(reader.names), evaluate)


@frozen
class _DottedKeys(ast.NodeTransformer):
    """Turns the paths that are keys into names."""

    keys: Collection[str]

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return ast.Name(name) if (name := ast.unparse(node)) in self.keys else self.generic_visit(node)


class _Reader(Reader[str]):
    """Reads conditions on a state, whose values are by key."""

    condition = "a condition such as 'len(docs) == 0'"
    operand = "keys of the state, paths into them, numbers, strings, len(), comparisons, in, and, or, not"
    subject = "key of the state"
    # `is` compares like `==`: people write `is None`, and values of a state have no identity.
    comparisons: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
        **COMPARISONS,
        ast.Is: operator.eq,
        ast.IsNot: operator.ne,
        ast.In: lambda left, right: left in right,
        ast.NotIn: lambda left, right: left not in right,
    }
    arithmetic: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
        **ARITHMETIC,
        ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod,
    }

    def term(self, node: ast.expr) -> Evaluate:
        match node:
            case ast.Constant(value=str() | int() | float() | None as constant):
                return lambda state: constant
            case ast.Name(id=key):
                self.names[key] = None
                return partial(_value, key)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                entries = [self._read(part) for part in parts]
                return lambda state: [entry(state) for entry in entries]
            case ast.Attribute(value=value, attr=name):
                inner = self._read(value)
                return lambda state: _entry(node, inner(state), name)
            case ast.Subscript(value=value, slice=place) if not isinstance(place, ast.Slice):
                inner, index = self._read(value), self._read(place)
                return lambda state: _entry(node, inner(state), index(state))
            case ast.Call(func=ast.Name(id="len"), args=[value], keywords=[]) if not isinstance(value, ast.Starred):
                inner = self._read(value)
                return lambda state: _length(value, inner(state))
        raise refused(node, self.operand)

    def number(self, value: Any, node: ast.expr) -> Any:
        if isinstance(value, int | float):
            return value
        raise UnknownValue(f"{ast.unparse(node)} is {_kind(value)}, not a number")

    def compare(self, node: ast.expr, op: ast.cmpop, left: Any, right: Any) -> bool:
        try:
            return super().compare(node, op, left, right)
        except TypeError:
            raise UnknownValue(f"{ast.unparse(node)} compares {_kind(left)} with {_kind(right)}") from None


def _value(key: str, state: Mapping[str, Json]) -> Any:
    if key not in state:
        raise UnknownValue(f"the state has no key {key!r} yet")
    return state[key]


def _entry(node: ast.expr, value: Any, place: Any) -> Any:
    """Look up an entry of a mapping, list or text. Raises UnknownValue if there is none."""
    try:
        if isinstance(value, dict) or (isinstance(value, list | str) and isinstance(place, int)):
            return value[place]
    except (KeyError, IndexError, TypeError):
        pass
    raise UnknownValue(f"there is no {ast.unparse(node)}")


def _length(node: ast.expr, value: Any) -> int:
    if isinstance(value, str | list | dict):
        return len(value)
    raise UnknownValue(f"{ast.unparse(node)} is {_kind(value)}, which has no len()")


def _kind(value: Any) -> str:
    kinds = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return kinds.get(type(value), "nothing" if value is None else type(value).__name__)
