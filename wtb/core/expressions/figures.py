"""Safe expressions: comparisons of named figures, as they stand in gates and in `best`.

    ndcg.mean >= 0.25 and cost_usd.total < 2
    max("exact match".mean) - baseline.f1.mean > 0.01

Names, numbers, + - * /, comparisons, and, or, not, parentheses, min(NAME) and max(NAME). Nothing else is read, and
nothing is ever executed. What a name stands for is asked of the caller, who may say that it cannot be told; then what
rests on it cannot be told either. Conditions over a state are read by the same parser, in other words: `conditions`.

Figures that differ by rounding only are equal: the mean of three scores of 0.7 is at least 0.7. Rounding is up to
ROUNDING of the largest figure that is compared, or that was added or subtracted on the way.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from wtb.core.errors import describe

MAX_LENGTH = 1_000
MAX_DEPTH = 50
LARGEST = 1e300
ROUNDING = 1e-9
_COMPARE: Mapping[type[ast.cmpop], Callable[[float], bool]] = {  # by the difference, 0 where it is rounding
    ast.Lt: lambda difference: difference < 0,
    ast.LtE: lambda difference: difference <= 0,
    ast.Gt: lambda difference: difference > 0,
    ast.GtE: lambda difference: difference >= 0,
    ast.Eq: lambda difference: difference == 0,
    ast.NotEq: lambda difference: difference != 0,
}
_ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_OVER = ("min", "max")
_EXPECTED = "a comparison such as 'ndcg.mean >= 0.25'"


class CannotTell(Exception):
    """What a name stands for is not known; the message says why."""


@dataclass(frozen=True)
class Name:
    """A figure: the parts of `ndcg.mean`, and whether it is the least or most over all combinations."""

    parts: tuple[str, ...]
    over: str = ""

    def __str__(self) -> str:
        path = ".".join(part if part.isidentifier() else f'"{part}"' for part in self.parts)
        return f"{self.over}({path})" if self.over else path


@dataclass(frozen=True)
class Answer:
    """holds: None where it cannot be told, and `because` says why. values: of the names, by how they are written."""

    holds: bool | None
    values: Mapping[str, float | None]
    because: str = ""


LookUp = Callable[[Name], float]


@dataclass(frozen=True)
class Condition:
    """An expression that is true or false."""

    text: str
    names: tuple[Name, ...]
    _tree: ast.expr = field(repr=False, compare=False)

    def answer(self, look_up: LookUp) -> Answer:
        """Whether it holds. look_up: gives the figure of a name, or raises CannotTell."""
        values: dict[str, float | None] = {}
        reasons: dict[str, None] = {}
        for name in self.names:
            try:
                values[str(name)] = float(look_up(name))
            except CannotTell as error:
                values[str(name)] = None
                reasons[str(error)] = None
        try:
            holds = _truth(self._tree, values)
        except ZeroDivisionError:
            return Answer(None, values, "it divides by zero")
        except OverflowError:
            return Answer(None, values, "it is too large")
        return Answer(holds, values, "; ".join(reasons) if holds is None else "")


def parse_condition(text: str) -> Condition:
    """Read an expression. Raises ValueError with what was found and what is expected."""
    tree = parsed(text, _EXPECTED)
    names: dict[Name, None] = {}
    _check_truth(tree, names)
    if not names:
        raise ValueError(f"{describe(text)} names no figure; expected {_EXPECTED}")
    return Condition(text.strip(), tuple(names), tree)


def parsed(text: str, wanted: str) -> ast.expr:
    """An expression as a tree, whatever it says. Raises ValueError where it is none, too long or too deep."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"{len(text):,} characters; expected at most {MAX_LENGTH:,}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{describe(text)} cannot be read; expected {wanted}") from None
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):  # whatever walks the tree later recurses
        level = [inner for node in level for inner in ast.iter_child_nodes(node)]
    if level:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    return tree


def refused(node: ast.AST, wanted: str) -> ValueError:
    """Why a part of an expression is not read."""
    return ValueError(f"{describe(ast.unparse(node))} is not allowed here; expected {wanted}")


def _check_truth(node: ast.expr, names: dict[Name, None]) -> None:
    match node:
        case ast.BoolOp(values=parts):
            for part in parts:
                _check_truth(part, names)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            _check_truth(operand, names)
        case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(op) in _COMPARE for op in ops):
            for part in (left, *rights):
                _check_figure(part, names)
        case _:
            raise refused(node, _EXPECTED)


def _check_figure(node: ast.expr, names: dict[Name, None]) -> None:
    match node:
        case ast.Constant(value=bool()):
            raise refused(node, "a number or a name")
        case ast.Constant(value=int() | float() as value):
            if not abs(value) < LARGEST:
                raise ValueError(f"a number beyond {LARGEST:g}")
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            _check_figure(operand, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            _check_figure(left, names)
            _check_figure(right, names)
        case _:
            names[_name(node)] = None


def _name(node: ast.expr) -> Name:
    match node:
        case ast.Call(func=ast.Name(id=over), args=[inner], keywords=[]) if over in _OVER:
            return Name(_path(inner), over)
    return Name(_path(node))


def _path(node: ast.expr) -> tuple[str, ...]:
    match node:
        case ast.Name(id=part):
            return (part,)
        case ast.Attribute(value=inner, attr=part):
            return (*_path(inner), part)
        case ast.Constant(value=str() as part):
            return (part,)
    raise refused(node, "a number or a name such as ndcg.mean")


def _truth(node: ast.expr, values: Mapping[str, float | None]) -> bool | None:
    """Kleene's logic: what is not known decides nothing that the rest decides."""
    match node:
        case ast.BoolOp(op=op, values=parts):
            found = [_truth(part, values) for part in parts]
            decisive = isinstance(op, ast.Or)
            if decisive in found:
                return decisive
            return None if None in found else not decisive
        case ast.UnaryOp(operand=operand):
            inner = _truth(operand, values)
            return None if inner is None else not inner
        case ast.Compare(left=left, ops=ops, comparators=rights):
            figures = [_figure(part, values) for part in (left, *rights)]
            pairs = zip(ops, figures, figures[1:], strict=False)
            results = [None if a is None or b is None else _COMPARE[type(op)](a.less(b)) for op, a, b in pairs]
            if False in results:
                return False
            return None if None in results else True
    raise AssertionError(ast.dump(node))  # parse_condition lets nothing else through


@dataclass(frozen=True)
class _Figure:
    """A number, and how large what it was made from is, to which rounding is in proportion."""

    value: float
    size: float

    def less(self, other: _Figure) -> float:
        """The difference of two, 0 where that is no more than rounding."""
        difference = self.value - other.value
        largest = max(self.size, other.size)
        return 0.0 if math.isfinite(largest) and abs(difference) <= ROUNDING * largest else difference


def _figure(node: ast.expr, values: Mapping[str, float | None]) -> _Figure | None:
    match node:
        case ast.Constant(value=int() | float() as value):
            return _Figure(float(value), abs(float(value)))
        case ast.UnaryOp(op=op, operand=operand):
            inner = _figure(operand, values)
            return inner if inner is None or isinstance(op, ast.UAdd) else _Figure(-inner.value, inner.size)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _figure(left, values), _figure(right, values)
            return None if a is None or b is None else _calculated(op, a, b)
    known = values[str(_name(node))]
    return None if known is None else _Figure(known, abs(known))


def _calculated(op: ast.operator, a: _Figure, b: _Figure) -> _Figure:
    value = _ARITHMETIC[type(op)](a.value, b.value)
    if isinstance(op, ast.Add | ast.Sub):
        return _Figure(value, max(a.size, b.size))
    if isinstance(op, ast.Mult):
        return _Figure(value, a.size * b.size)
    return _Figure(value, max(abs(value), a.size / abs(b.value)))
