"""Safe expressions: one reader and one logic, for languages that differ in their terms.

Comparisons, `and`, `or`, `not` and arithmetic are the same in all of them; each language defines its terms, such as
names and paths. Nothing else is read, and no text is ever executed: an expression becomes closures over these.

The logic has three values (Kleene 1938): an unknown operand does not change a result that the others decide.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Generic, TypeVar

from wtb.core.errors import describe
from wtb.core.frozen import frozen
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
    """A value is unknown, for the reason in the message."""


class UnreadableExpression(ValueError):
    """A text is no expression of its language.

    Args:
        text: The message.
        part: The part that its language does not have; None if nothing of the text can be read.
        advice: The suggested text, if there is one.
    """

    def __init__(self, text: str, part: str | None = None, advice: str = "") -> None:
        super().__init__(text)
        self._part = part
        self._advice = advice

    def note(self, text: str) -> str:
        """Return the end of a sentence about a text: the part that is not allowed, and the suggested text."""
        is_part = self._part is not None and "".join(self._part.split()) != "".join(text.split())
        return (f", without {describe(self._part)}" if is_part else "") + self._advice


class Reader(ABC, Generic[NameT]):
    """Reads one expression. A subclass is a language, with its operators and terms.

    Attributes:
        condition: A description of a whole expression, for messages.
        operand: A description of a part, for messages.
        subject: A description of a name, for messages.
        typed: Whether truth values and numbers are distinct, so that truth values are not compared and terms are no
            conditions.
        names: The names in the expression, each once, in order.
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
        """Read a term and add its names. Raises ValueError if the language does not have it."""

    def number(self, operand: Any, node: ast.expr) -> Any:
        """Return an operand of arithmetic. Raises UnknownValue if it is no number."""
        return operand

    def compare(self, node: ast.expr, op: ast.cmpop, left: Any, right: Any) -> bool:
        return bool(self.comparisons[type(op)](left, right))

    def read(self, text: str, rewrite: Callable[[ast.expr], ast.expr] = lambda tree: tree) -> Evaluate:
        """Read an expression.

        Args:
            text: At most MAX_LENGTH characters, nested at most MAX_DEPTH deep.
            rewrite: Changes the syntax tree before it is read.

        Raises:
            ValueError: It is no expression of this language; the message names what is expected.
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
            # Parsing runs nothing: the tree is only read.
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            share = _PERCENT.search(text)
            near = f"; write {share[0]} as {float(share[1]) / 100:g}" if share else ""
            text = f"{describe(text)}, which cannot be read; expected {self.condition}{near}"
            raise UnreadableExpression(text, advice=near) from None
        level: list[ast.AST] = [tree]
        for _ in range(MAX_DEPTH):  # reading and evaluating recurse, so that deep nesting would exceed Python's stack
            level = [inner for node in level for inner in ast.iter_child_nodes(node)]
        if level:
            raise ValueError(f"nested more than {MAX_DEPTH} deep")
        return tree

    def _read(self, node: ast.expr, *, logical: bool = False) -> Evaluate:
        """Read a node; it is logical if it is the whole expression, or an operand of `and`, `or` or `not`."""
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
        """Return the evaluation of an operation on numbers; division by zero and overflow make the result unknown."""
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
        """Return the evaluation of a comparison, possibly chained. An unknown operand matters only if no known part
        decides.
        """
        operands = [self._read(part) for part in (node.left, *node.comparators)]

        def compare(op: ast.cmpop, left: Any, right: Any, values: Mapping[str, Json]) -> bool:
            for side in (left, right):
                if isinstance(side, UnknownValue):
                    raise side
            return self.compare(node, op, left, right)

        def chain(values: Mapping[str, Json]) -> bool:
            # Each operand is evaluated once, although two comparisons use it. Evaluating it twice would make nested
            # chains take exponential time.
            sides = [_value_or_reason(operand, values) for operand in operands]
            pairs = zip(node.ops, sides, sides[1:], strict=False)
            return _decide(False, [partial(compare, *pair) for pair in pairs], values)

        return chain


def refused(node: ast.AST, expected: str) -> ValueError:
    """Return the error for a part of an expression that its language does not have."""
    part = ast.unparse(node)
    return UnreadableExpression(f"{describe(part)} is not allowed here; expected {expected}", part)


def _value_or_reason(evaluate: Evaluate, values: Mapping[str, Json]) -> Any:
    try:
        return evaluate(values)
    except UnknownValue as error:
        return error


def _decide(decisive: bool, operands: Sequence[Evaluate], values: Mapping[str, Json]) -> bool:
    """Evaluate `or` if True decides, `and` if False does. Raises the first UnknownValue if no operand decides."""
    unknown: UnknownValue | None = None
    for operand in operands:
        outcome = _value_or_reason(operand, values)
        if isinstance(outcome, UnknownValue):
            unknown = unknown or outcome
        elif bool(outcome) == decisive:
            return decisive
    if unknown is not None:
        raise unknown
    return not decisive


LARGEST = 1e300
ROUNDING = 1e-9


@frozen
class Name:
    """A figure: the parts of `ndcg.mean`, and `extreme`: "min" or "max" if it is that of all combinations."""

    parts: tuple[str, ...]
    extreme: str = ""

    def __str__(self) -> str:
        path = ".".join(part if part.isidentifier() else f'"{part}"' for part in self.parts)
        return f"{self.extreme}({path})" if self.extreme else path


@frozen
class Answer:
    """The truth of a condition.

    Attributes:
        holds: The truth; None if it is unknown, for the reason in `because`.
        values: The figure of each name, as written; None if it is unknown.
    """

    holds: bool | None
    values: Mapping[str, float | None]
    because: str = ""


LookUp = Callable[[Name], float]


@frozen
class Condition:
    """An expression that is true or false."""

    text: str
    names: tuple[Name, ...]
    _evaluate: Evaluate = field(repr=False, compare=False)

    def answer(self, look_up: LookUp) -> Answer:
        """Evaluate the condition.

        Args:
            look_up: Returns the figure of a name, or raises UnknownValue.
        """
        values: dict[str, float | None] = {}
        reasons: dict[str, None] = {}
        for name in self.names:
            try:
                values[str(name)] = float(look_up(name))
            except UnknownValue as error:
                values[str(name)] = None
                reasons[str(error)] = None
        try:
            return Answer(self._evaluate(values), values)
        except UnknownValue as error:
            return Answer(None, values, "; ".join(reasons) or str(error))


def parse_condition(text: str) -> Condition:
    """Read a condition. Raises ValueError that names the found and the expected text."""
    reader = _Reader()
    evaluate = reader.read(text)
    return Condition(text.strip(), tuple(reader.names), evaluate)


@frozen
class _Figure:
    """A number, and the size of the numbers from which it was computed, to which its rounding error is proportional."""

    value: float
    size: float

    def minus(self, other: _Figure) -> float:
        """Return the difference of two figures; 0 if it is no more than rounding."""
        difference = self.value - other.value
        largest = max(self.size, other.size)
        return 0.0 if math.isfinite(largest) and abs(difference) <= ROUNDING * largest else difference

    def __pos__(self) -> _Figure:
        return self

    def __neg__(self) -> _Figure:
        return _Figure(-self.value, self.size)

    def __add__(self, other: _Figure) -> _Figure:
        return _Figure(self.value + other.value, max(self.size, other.size))

    def __sub__(self, other: _Figure) -> _Figure:
        return self + -other

    def __mul__(self, other: _Figure) -> _Figure:
        return _Figure(self.value * other.value, self.size * other.size)

    def __truediv__(self, other: _Figure) -> _Figure:
        quotient = self.value / other.value
        return _Figure(quotient, max(abs(quotient), self.size / abs(other.value)))


class _Reader(Reader[Name]):
    """Reads conditions on figures, whose values are keyed by their names as written."""

    condition = "a comparison such as 'ndcg.mean >= 0.25'"
    operand = "a number or a name such as ndcg.mean"
    subject = "figure"
    typed = True

    def term(self, node: ast.expr) -> Evaluate:
        match node:
            case ast.Compare():
                raise refused(node, self.condition)
            case ast.Constant(value=bool()):
                raise refused(node, "a number or a name")
            case ast.Constant(value=int() | float() as literal):
                if not abs(literal) < LARGEST:
                    raise ValueError(f"a number beyond {LARGEST:g}")
                number = _Figure(float(literal), abs(float(literal)))
                return lambda values: number
            case ast.Call(func=ast.Name(id="min" | "max" as extreme), args=[inner], keywords=[]):
                name = Name(self._path(inner), extreme)
            case _:
                name = Name(self._path(node))
        self.names[name] = None
        return partial(_known_figure, str(name))

    def _path(self, node: ast.expr) -> tuple[str, ...]:
        """Read a dotted name as its parts; a part may be quoted."""
        match node:
            case ast.Name(id=part) | ast.Constant(value=str() as part):
                return (part,)
            case ast.Attribute(value=inner, attr=part):
                return (*self._path(inner), part)
        raise refused(node, self.operand)

    def compare(self, node: ast.expr, op: ast.cmpop, left: _Figure, right: _Figure) -> bool:
        return super().compare(node, op, left.minus(right), 0.0)


def _known_figure(name: str, values: Mapping[str, float | None]) -> _Figure:
    amount = values[name]
    if amount is None:
        raise UnknownValue(f"{name} is not known")
    return _Figure(amount, abs(amount))


@frozen
class StateCondition:
    """A condition over a state, with the keys that it names."""

    text: str
    keys: tuple[str, ...]
    _evaluate: Evaluate = field(repr=False, compare=False)

    def holds(self, state: Mapping[str, Json]) -> bool:
        """Evaluate the condition.

        Args:
            state: Plain values by key.

        Raises:
            UnknownValue: The truth is unknown; the message gives the reason.
        """
        return bool(self._evaluate(state))


def parse_state_condition(text: str, keys: Collection[str] = ()) -> StateCondition:
    """Read a condition.

    Args:
        text: The condition.
        keys: Keys of the state. A key with a dot, such as `sub.words`, is no path.

    Raises:
        ValueError: If the text is no condition; the message names the found and the expected text.
    """
    reader = _StateReader()
    evaluate = reader.read(text, _DottedKeys(keys).visit)
    return StateCondition(" ".join(text.split()) if "\n" in text else text.strip(), tuple(reader.names), evaluate)


@frozen
class _DottedKeys(ast.NodeTransformer):
    """Turns paths that are keys into names."""

    keys: Collection[str]

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return ast.Name(name) if (name := ast.unparse(node)) in self.keys else self.generic_visit(node)


class _StateReader(Reader[str]):
    """Reads conditions on a state, whose values are keyed by key."""

    condition = "a condition such as 'len(docs) == 0'"
    operand = "keys of the state, paths into them, numbers, strings, len(), comparisons, in, and, or, not"
    subject = "key of the state"
    # `is` compares like `==`, because people write `is None`, and values of a state have no identity.
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
                return partial(_read_key, key)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                entries = [self._read(part) for part in parts]
                return lambda state: [evaluate(state) for evaluate in entries]
            case ast.Attribute(value=operand, attr=name):
                inner = self._read(operand)
                return lambda state: _read_entry(node, inner(state), name)
            case ast.Subscript(value=operand, slice=place) if not isinstance(place, ast.Slice):
                inner, index = self._read(operand), self._read(place)
                return lambda state: _read_entry(node, inner(state), index(state))
            case ast.Call(func=ast.Name(id="len"), args=[operand], keywords=[]) if not isinstance(operand, ast.Starred):
                inner = self._read(operand)
                return lambda state: _length(operand, inner(state))
        raise refused(node, self.operand)

    def number(self, operand: Any, node: ast.expr) -> Any:
        if isinstance(operand, int | float):
            return operand
        raise UnknownValue(f"{ast.unparse(node)} is {_kind(operand)}, not a number")

    def compare(self, node: ast.expr, op: ast.cmpop, left: Any, right: Any) -> bool:
        try:
            return super().compare(node, op, left, right)
        except TypeError:
            raise UnknownValue(f"{ast.unparse(node)} compares {_kind(left)} with {_kind(right)}") from None


def _read_key(key: str, state: Mapping[str, Json]) -> Any:
    if key not in state:
        raise UnknownValue(f"the state has no key {key!r} yet")
    return state[key]


def _read_entry(node: ast.expr, container: Any, place: Any) -> Any:
    """Look up an entry of a mapping, list or text. Raises UnknownValue if there is none."""
    try:
        if isinstance(container, dict) or (isinstance(container, list | str) and isinstance(place, int)):
            return container[place]
    except (KeyError, IndexError, TypeError):
        pass
    raise UnknownValue(f"there is no {ast.unparse(node)}")


def _length(node: ast.expr, container: Any) -> int:
    if isinstance(container, str | list | dict):
        return len(container)
    raise UnknownValue(f"{ast.unparse(node)} is {_kind(container)}, which has no len()")


def _kind(operand: Any) -> str:
    kinds = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return kinds.get(type(operand), "nothing" if operand is None else type(operand).__name__)
