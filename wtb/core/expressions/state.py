"""Conditions over a state, as they stand in breakpoints: safe expressions over plain values.

    len(docs) == 0 or answer.score < 0.5
    "refund" in question and not approved

Keys of the state and paths into them (docs[0].score), numbers, strings, True, False, None, lists of those, len(),
comparisons, `in`, and, or, not, + - * / // %. Nothing else is read, and nothing is ever executed: a path looks into
mappings and lists, never at an attribute of an object.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from wtb.core.errors import describe
from wtb.core.expressions.figures import CannotTell, parsed, refused

_EXPECTED = "a condition such as 'len(docs) == 0'"
_WORDS = "keys of the state, paths into them, numbers, strings, len(), comparisons, in, and, or, not"


def _same(left: Any, right: Any) -> bool:
    return bool(left == right)


_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: _same,
    ast.NotEq: lambda left, right: not _same(left, right),
    ast.Is: _same,
    ast.IsNot: lambda left, right: not _same(left, right),
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclass(frozen=True)
class StateCondition:
    """A condition over a state. keys: those that it names."""

    text: str
    keys: tuple[str, ...]
    _tree: ast.expr = field(repr=False, compare=False)

    def holds(self, state: Mapping[str, Any]) -> bool:
        """Whether it holds for plain values by key. Raises CannotTell saying why that cannot be told."""
        try:
            return bool(_value(self._tree, state))
        except ZeroDivisionError:
            raise CannotTell("it divides by zero") from None
        except OverflowError:
            raise CannotTell("it is too large") from None


def parse_state_condition(text: str, known: Collection[str] = ()) -> StateCondition:
    """Read a condition. Raises ValueError with what was found and what is expected.

    known: keys of the state. One with a dot in it, such as `sub.words`, is a key and no path.
    """
    tree = _Dotted(known).visit(parsed(text, _EXPECTED))
    keys: dict[str, None] = {}
    _check(tree, keys)
    if not keys:
        raise ValueError(f"{describe(text)} names no key of the state; expected {_EXPECTED}")
    return StateCondition(" ".join(text.split()) if "\n" in text else text.strip(), tuple(keys), tree)


@dataclass(frozen=True)
class _Dotted(ast.NodeTransformer):
    """Makes names of paths that are keys."""

    known: Collection[str]

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return ast.Name(name) if (name := ast.unparse(node)) in self.known else self.generic_visit(node)


def _check(node: ast.expr, keys: dict[str, None]) -> None:
    match node:
        case ast.Constant(value=str() | int() | float() | None):
            return
        case ast.Name(id=key):
            keys[key] = None
            return
        case ast.BoolOp(values=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts):
            inner = parts
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd(), operand=operand):
            inner = [operand]
        case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(op) in _COMPARE for op in ops):
            inner = [left, *rights]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            inner = [left, right]
        case ast.Attribute(value=value):
            inner = [value]
        case ast.Subscript(value=value, slice=index) if not isinstance(index, ast.Slice):
            inner = [value, index]
        case ast.Call(func=ast.Name(id="len"), args=[value], keywords=[]) if not isinstance(value, ast.Starred):
            inner = [value]
        case _:
            raise refused(node, _WORDS)
    for part in inner:
        _check(part, keys)


def _value(node: ast.expr, state: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=key):
            if key not in state:
                raise CannotTell(f"the state has no key {key!r} yet")
            return state[key]
        case ast.BoolOp(op=op, values=parts):
            return _joined(isinstance(op, ast.Or), parts, state)
        case ast.UnaryOp(op=op, operand=operand):
            inner = _value(operand, state)
            if isinstance(op, ast.Not):
                return not inner
            return -_number(inner, operand) if isinstance(op, ast.USub) else _number(inner, operand)
        case ast.Compare(left=left, ops=ops, comparators=rights):
            found = [_value(part, state) for part in (left, *rights)]
            return all(_compared(node, op, one, other) for op, one, other in zip(ops, found, found[1:], strict=False))
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_number(_value(left, state), left), _number(_value(right, state), right))
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_value(part, state) for part in parts]
        case ast.Attribute(value=inner, attr=name):
            return _at(node, _value(inner, state), name)
        case ast.Subscript(value=inner, slice=index):
            return _at(node, _value(inner, state), _value(index, state))
        case ast.Call(args=[inner]):
            value = _value(inner, state)
            if isinstance(value, str | list | dict):
                return len(value)
            raise CannotTell(f"{ast.unparse(inner)} is {_kind(value)}, which has no len()")
    raise AssertionError(ast.dump(node))  # _check lets nothing else through


def _joined(decisive: bool, parts: list[ast.expr], state: Mapping[str, Any]) -> bool:
    """Kleene's logic: what cannot be told decides nothing that the rest decides."""
    unknown: CannotTell | None = None
    for part in parts:
        try:
            if bool(_value(part, state)) == decisive:
                return decisive
        except CannotTell as error:
            unknown = unknown or error
    if unknown is not None:
        raise unknown
    return not decisive


def _compared(node: ast.expr, op: ast.cmpop, left: Any, right: Any) -> bool:
    try:
        return _COMPARE[type(op)](left, right)
    except TypeError:
        raise CannotTell(f"{ast.unparse(node)} compares {_kind(left)} with {_kind(right)}") from None


def _number(value: Any, node: ast.expr) -> Any:
    if isinstance(value, int | float):
        return value
    raise CannotTell(f"{ast.unparse(node)} is {_kind(value)}, not a number")


def _at(node: ast.expr, value: Any, place: Any) -> Any:
    missing = CannotTell(f"there is no {ast.unparse(node)}")
    try:
        if isinstance(value, dict) or (isinstance(value, list | str) and isinstance(place, int)):
            return value[place]
    except (KeyError, IndexError, TypeError):
        raise missing from None
    raise missing


def _kind(value: Any) -> str:
    kinds = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return kinds.get(type(value), "nothing" if value is None else type(value).__name__)
