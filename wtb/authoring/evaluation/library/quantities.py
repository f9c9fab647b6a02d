"""Evaluators of quantities: numbers with units, whatever units they are in."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase, evaluator
from wtb.authoring.evaluation.fields import field_of, filled_value, needs_expected
from wtb.authoring.evaluation.requirements import needs
from wtb.core.errors import InputError, describe
from wtb.core.scoring.scales import PASS_OR_FAIL

# One number and one unit, and nothing that a calculator could take for ever for, such as 9^9^9.
_NUMBER = r"[+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,3})?"
_UNIT = r"[A-Za-zµμΩ°%](?:[A-Za-z_µμΩ°%/ ]|\^-?\d(?!\^)){0,40}"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*({_UNIT})?\s*")


@needs_expected()
@needs("pint", extra="units")
@evaluator(better="higher", scale=PASS_OR_FAIL)
def quantity_close(case: ScoredCase, result: CellResult, *, field: str, abs: float = 0, rel: float = 1e-6) -> bool:
    """`abs` is in the unit of what is expected."""
    expected = _read(filled_value(case.expected, field))
    if expected is None:
        raise InputError(
            f"'expected' of {field!r} is {describe(filled_value(case.expected, field))}; expected one such as '5 km'"
        )
    quantity = _read(field_of(result, field))
    if quantity is None or not quantity.is_compatible_with(expected):
        return False
    return math.isclose(quantity.to(expected.units).magnitude, expected.magnitude, abs_tol=abs, rel_tol=rel)


def _read(written: Any) -> Any:
    """A quantity of a number, or of a text with a number and a unit; None where it is neither."""
    from pint.errors import PintError

    match = _QUANTITY.fullmatch(str(written)) if not isinstance(written, bool) else None
    if match is None:
        return None
    try:
        return _units().Quantity(float(match[1]), (match[2] or "").strip())
    # As pint answers to units that are none, and to those that are not written as units are.
    except (PintError, AssertionError, AttributeError, SyntaxError, TypeError, ValueError):
        return None


@cache
def _units() -> Any:
    from pint import UnitRegistry

    return UnitRegistry()
