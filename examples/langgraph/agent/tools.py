"""Tools of the agent: the shop's table and a calculator. Their errors are messages for the model."""

import ast
import csv
import difflib
import operator
from pathlib import Path
from typing import Any, Literal

from langchain_core.tools import ToolException, tool

OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def table() -> dict[str, dict[str, str]]:
    """Return the shop's items by name: price in euros, weight in grams, number in stock."""
    with Path(__file__).with_name("items.csv").open(encoding="utf-8", newline="") as file:
        return {row["item"]: row for row in csv.DictReader(file)}


def nearest(item: str) -> str | None:
    """Return the item with the most similar name, if any."""
    return next(iter(difflib.get_close_matches(item, table(), n=1, cutoff=0.75)), None)


@tool
def lookup(item: str, field: Literal["price", "weight", "stock"]) -> str:
    """Look up an item of the shop: its price in euros, its weight in grams, or how many are in stock."""
    row = table().get(item)
    if row is None:
        meant = nearest(item)
        raise ToolException(f"there is no item {item!r}" + (f"; did you mean {meant!r}?" if meant else ""))
    return row[field]


@tool
def calculate(expression: str) -> str:
    """Work out an expression of numbers, + - * / and parentheses."""
    try:
        return f"{_value(ast.parse(expression, mode='eval').body):.10g}"
    except (SyntaxError, ZeroDivisionError) as error:
        raise ToolException(f"cannot work out {expression!r}: {error}") from error


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATIONS:
            work_out: Any = OPERATIONS[type(op)]
            return float(work_out(_value(left), _value(right)))
    raise SyntaxError(f"{ast.unparse(node)!r} is not a number, nor one of + - * / between two")
