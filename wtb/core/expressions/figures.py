"""Safe expressions over the figures of a matrix, as gates and `best` use them.

    ndcg.mean >= 0.25 and cost_usd.total < 2
    max("exact match".mean) - baseline.f1.mean > 0.01

Names, numbers, + - * /, comparisons, and, or, not, parentheses, min(NAME) and max(NAME).

Figures that differ by rounding only are equal: the mean of three scores of 0.7 is at least 0.7. Rounding is up to
ROUNDING of the largest figure that is compared, or that was added or subtracted on the way.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial

from wtb.core.classes.frozen import frozen
from wtb.core.expressions.language import Evaluate, Reader, UnknownValue, refused

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

    holds: None if it is unknown, for the reason in `because`.
    values: the figure of each name, by how the name is written; None if it is unknown.
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
    """Read a condition. Raises ValueError saying what was found and what is expected."""
    reader = _Reader()
    evaluate = reader.read(text)
    return Condition(text.strip(), tuple(reader.names), evaluate)


@frozen
class _Figure:
    """A number, and the size of what it was made from, to which its rounding is in proportion."""

    value: float
    size: float

    def minus(self, other: _Figure) -> float:
        """The difference of two, 0 if it is no more than rounding."""
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
        value = self.value / other.value
        return _Figure(value, max(abs(value), self.size / abs(other.value)))


class _Reader(Reader[Name]):
    """Reads conditions on figures, whose values are by how their names are written."""

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
            case ast.Constant(value=int() | float() as value):
                if not abs(value) < LARGEST:
                    raise ValueError(f"a number beyond {LARGEST:g}")
                number = _Figure(float(value), abs(float(value)))
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
    value = values[name]
    if value is None:
        raise UnknownValue(f"{name} is not known")
    return _Figure(value, abs(value))
