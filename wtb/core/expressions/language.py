"""Safe expressions: one reader and one logic, for languages that differ in their terms.

Comparisons, `and`, `or`, `not` and arithmetic are the same in all of them; terms, such as names and paths, are defined
by each language. Nothing else is read, and nothing is ever executed: an expression becomes closures over these.

The logic has three values (Kleene 1938): an operand that is unknown decides nothing that the others decide.
"""

from __future__ import annotations

import ast
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from wtb.core.errors import describe
from wtb.core.values import Json

MAX_LENGTH = 1_000
MAX_DEPTH = 50
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")

NameT = TypeVar("NameT")
Evaluate = Callable[[Mapping[str, Json]], Any]  # from values by name; raises UnknownValue

_SIGNS: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class UnknownValue(Exception):
    """A value is not known; the message says why."""


class UnreadableExpression(ValueError):
    """A text is no expression of its language.

    Args:
        text: The message.
        part: What its language does not have; None if nothing of the text can be read.
        advice: What to write instead, if that is known.
    """

    def __init__(self, text: str, part: str | None = None, advice: str = "") -> None:
        super().__init__(text)
        self._part = part
        self._advice = advice

    def note(self, text: str) -> str:
        """Return the end of a sentence about a text: the part that it must not have, and what to write instead."""
        is_part = self._part is not None and "".join(self._part.split()) != "".join(text.split())
        return (f", without {describe(self._part)}" if is_part else "") + self._advice


class Reader(ABC, Generic[NameT]):
    """Reads one expression. A subclass is a language: its operators, and what its terms are.

    condition, operand, subject: what messages expect of a whole expression, of a part, and as a name in it.
    typed: whether truth and numbers are distinct, so that no truth is compared and no term is a condition.
    names: what the expression refers to, each once, in order.
    """

    condition: str
    operand: str
    subject: str
    typed = False
    arithmetic = ARITHMETIC
    comparisons = COMPARISONS

    def __init__(self) -> None:
        self.names: dict[NameT, None] = {}

    @abstractmethod
    def term(self, node: ast.expr) -> Evaluate:
        """Read a term and add its names. Raises ValueError if it is none of this language."""

    def number(self, value: Any, node: ast.expr) -> Any:
        """An operand of arithmetic. Raises UnknownValue if it is no number."""
        return value

    def compare(self, node: ast.expr, op: ast.cmpop, left: Any, right: Any) -> bool:
        return bool(self.comparisons[type(op)](left, right))

    def read(self, text: str, rewrite: Callable[[ast.expr], ast.expr] = lambda tree: tree) -> Evaluate:
        """Read an expression.

        Args:
            text: At most MAX_LENGTH characters, nested at most MAX_DEPTH deep.
            rewrite: Changes the syntax tree before it is read.

        Raises:
            ValueError: It is no expression of this language; the message says what is expected.
        """
        evaluate = self._read(rewrite(self._parse(text)), logical=True)
        if not self.names:
            raise UnreadableExpression(f"{describe(text)} names no {self.subject}; expected {self.condition}")
        return evaluate

    def _parse(self, text: str) -> ast.expr:
        """Parse a text, within bounds on its length and nesting. Raises ValueError."""
        if len(text) > MAX_LENGTH:
            raise ValueError(f"{len(text):,} characters; expected at most {MAX_LENGTH:,}")
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            share = _PERCENT.search(text)
            near = f"; write {share[0]} as {float(share[1]) / 100:g}" if share else ""
            text = f"{describe(text)}, which cannot be read; expected {self.condition}{near}"
            raise UnreadableExpression(text, advice=near) from None
        level: list[ast.AST] = [tree]
        for _ in range(MAX_DEPTH):  # reading and evaluating recurse
            level = [inner for node in level for inner in ast.iter_child_nodes(node)]
        if level:
            raise ValueError(f"nested more than {MAX_DEPTH} deep")
        return tree

    def _read(self, node: ast.expr, *, logical: bool = False) -> Evaluate:
        """logical: the node is the whole expression, or an operand of `and`, `or` or `not`."""
        is_logical = isinstance(node, ast.BoolOp | ast.Compare) or isinstance(getattr(node, "op", None), ast.Not)
        if self.typed and logical != is_logical:
            raise refused(node, self.condition if logical else self.operand)
        match node:
            case ast.BoolOp(op=op, values=parts):
                return partial(_decide, isinstance(op, ast.Or), [self._read(part, logical=True) for part in parts])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                negated = self._read(operand, logical=True)
                return lambda values: not negated(values)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _SIGNS:
                return self._calculation(_SIGNS[type(op)], operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in self.arithmetic:
                return self._calculation(self.arithmetic[type(op)], left, right)
            case ast.Compare(ops=ops) if all(type(op) in self.comparisons for op in ops):
                return self._comparison(node)
        return self.term(node)

    def _calculation(self, function: Callable[..., Any], *parts: ast.expr) -> Evaluate:
        """An operation on numbers; division by zero and overflow make the result unknown."""
        operands = [self._read(part) for part in parts]

        def calculate(values: Mapping[str, Json]) -> Any:
            numbers = [self.number(operand(values), part) for operand, part in zip(operands, parts, strict=True)]
            try:
                return function(*numbers)
            except ZeroDivisionError:
                raise UnknownValue("it divides by zero") from None
            except OverflowError:
                raise UnknownValue("it is too large") from None

        return calculate

    def _comparison(self, node: ast.Compare) -> Evaluate:
        """A comparison, which may be chained. An unknown operand matters only if no known part decides."""
        operands = [self._read(part) for part in (node.left, *node.comparators)]

        def compare(op: ast.cmpop, left: Any, right: Any, values: Mapping[str, Json]) -> bool:
            for side in (left, right):
                if isinstance(side, UnknownValue):
                    raise side
            return self.compare(node, op, left, right)

        def chain(values: Mapping[str, Json]) -> bool:
            # Each operand is evaluated once, though two comparisons use it: nested chains would take exponential time.
            sides = [_value_or_reason(operand, values) for operand in operands]
            pairs = zip(node.ops, sides, sides[1:], strict=False)
            return _decide(False, [partial(compare, *pair) for pair in pairs], values)

        return chain


def refused(node: ast.AST, expected: str) -> ValueError:
    """The error for a part of an expression that its language does not have."""
    part = ast.unparse(node)
    return UnreadableExpression(f"{describe(part)} is not allowed here; expected {expected}", part)


def _value_or_reason(evaluate: Evaluate, values: Mapping[str, Json]) -> Any:
    try:
        return evaluate(values)
    except UnknownValue as error:
        return error


def _decide(decisive: bool, operands: Sequence[Evaluate], values: Mapping[str, Json]) -> bool:
    """`or` if True decides, `and` if False does. Raises the first UnknownValue if no operand decides."""
    unknown: UnknownValue | None = None
    for operand in operands:
        result = _value_or_reason(operand, values)
        if isinstance(result, UnknownValue):
            unknown = unknown or result
        elif bool(result) == decisive:
            return decisive
    if unknown is not None:
        raise unknown
    return not decisive
