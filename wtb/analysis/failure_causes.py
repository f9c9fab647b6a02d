"""Causes of the failed cells of a sweep, whether a retry could help, and what failures cost."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from wtb.core.failures import Failure
from wtb.store.database import Database
from wtb.store.read import aggregates, evidence, queries
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.matrix import RowDocument
    from wtb.core.documents.shared_types import FailedCase, FailureCause

TOP = 5  # causes that a matrix and a status tell
SHORTEST = 6  # characters of a text to search by
_Key = tuple[Any, ...]  # node, type, and message without what varies
# Order matters: addresses and hashes go before numbers, which would split them into several stand-ins.
_VARYING = [
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4,}){1,4}\b"), "…"),
    (re.compile(r"(?:\b[bru]|(?<!\w))(?:'[^']*'|\"[^\"]*\")(?!\w)"), "'…'"),  # not what is between two apostrophes
    (re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"), "…"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "N"),
]
_STAND_IN = re.compile(r"…|'…'|N|\s*\n\s*")  # what stands for what varies, and ends of lines
# The same input gives these again: the first whatever happens, the others where no model is asked.
_OF_CODE = {
    "AttributeError", "ImportError", "IndentationError", "ModuleNotFoundError", "NameError", "NotImplementedError",
    "SyntaxError", "TypeError", "UnboundLocalError",
}  # fmt: skip
_OF_VALUES = {
    "ArithmeticError", "AssertionError", "FileNotFoundError", "IndexError", "IsADirectoryError", "JSONDecodeError",
    "KeyError", "LookupError", "NotADirectoryError", "OverflowError", "RecursionError", "UnicodeDecodeError",
    "UnicodeEncodeError", "UnicodeError", "ValidationError", "ValueError", "ZeroDivisionError",
}  # fmt: skip
_HELPED = {"timeout", "killed", "disk", "provider", "budget", "running"}  # kinds that another try may end otherwise


def causes(database: Database, sweep: SweepRow, limit: int = TOP, *, cases: int = 0) -> tuple[list[FailureCause], int]:
    """Return the most frequent causes of failed cells, and the number of further causes.

    Each has cells (of these, set_aside), node, type, message, combinations (numbers), retry (whether trying again could
    help) and an example: its case, its execution and the command that shows it. Messages that differ only in numbers,
    addresses and quoted texts are one cause; the example's is given as it is. With `cases`, each lists so many of its
    first cases, too.
    """
    groups: dict[_Key, FailureCause] = {}
    numbers: dict[_Key, int] = {}  # of the case of the example
    rows = evidence.failed_cells(database, sweep.id)
    asks = bool(rows) and _asks_models(database, sweep.id)
    for combination, status, node, kind, type_, final, message, count, execution, case in rows:
        failure = Failure(kind or "error", type_ or "", message or "", final=bool(final), node=node)
        key = (node, type_, alike(message or ""))
        numbers.setdefault(key, case)
        group = groups.setdefault(
            key,
            {
                "cells": 0,
                "set_aside": 0,
                "node": node,
                "type": type_,
                "message": message,
                "retry": may_help(failure, asks_models=asks),
                "combinations": [],
                "example": {"case": "", "execution": execution, "command": f"wtb show {execution}"},
            },
        )
        group["cells"] += count
        group["set_aside"] += count if status == "set_aside" else 0
        group["combinations"] = sorted({*group["combinations"], combination})
    top = sorted(groups, key=lambda key: -groups[key]["cells"])[:limit]
    names = queries.case_rows(database, sweep.id, {numbers[key] for key in top})
    for key in top:
        groups[key]["example"]["case"] = names[numbers[key]].id
    if cases and top:
        _list_cases(database, sweep, {key: groups[key] for key in top}, cases)
    return [groups[key] for key in top], len(groups) - len(top)


def _list_cases(database: Database, sweep: SweepRow, groups: dict[_Key, FailureCause], limit: int) -> None:
    """Add the first cases of each cause, and a text by which all of its cells are found."""
    listed: dict[_Key, dict[int, FailedCase]] = {key: {} for key in groups}
    for node, type_, message, number, count, execution in evidence.failed_cases(database, sweep.id):
        # The key must be built exactly as in `causes`, or failed cases would not find their group.
        cases = listed.get((node, type_, alike(message or "")))
        if cases is None or (len(cases) == limit and number not in cases):
            continue
        case = cases.setdefault(number, {"case": "", "cells": 0, "execution": execution})
        case["cells"] += count
    names = queries.case_rows(database, sweep.id, {number for cases in listed.values() for number in cases})
    for key, cases in listed.items():
        groups[key]["cases"] = [{**case, "case": names[number].id} for number, case in cases.items()]
        groups[key]["text"] = constant_part(groups[key]["message"] or "")


def execution_may_be_helped(database: Database, row: ExecutionRow) -> bool:
    """Return whether trying an execution that failed again could end otherwise."""
    asks = _asks_models(database, row.sweep_id)
    return row.failure is not None and may_help(Failure(**row.failure), asks_models=asks)


def _asks_models(database: Database, sweep_id: str) -> bool:
    """Return whether anything of a sweep has asked a model: only that has a price, or tokens."""
    totals = aggregates.node_run_totals(database, sweep_id)
    return any(totals.spent) or any(totals.forks)


def may_help(failure: Failure, *, asks_models: bool) -> bool:
    """Return whether trying again could end otherwise.

    Args:
        failure: What failed.
        asks_models: True if the sweep has asked any model, whose answers vary.
    """
    if failure.kind in _HELPED:
        return True
    if failure.final or failure.kind != "error" or failure.type in _OF_CODE:
        return False
    return asks_models or failure.type not in _OF_VALUES


def constant_part(message: str) -> str | None:
    """Return the longest part that all messages of a cause share; None if it is too short to search for."""
    longest = max((part.strip() for part in _STAND_IN.split(alike(message))), key=len)
    return longest if len(longest) >= SHORTEST else None


# Sweeps with many failures repeat few messages, and four regular expressions for each cell would dominate.
@lru_cache(10_000)
def alike(message: str) -> str:
    """Return a message without the parts that vary from case to case."""
    for pattern, stand_in in _VARYING:
        message = pattern.sub(stand_in, message)
    return message


def failed_attempts_usd(
    database: Database, sweep_id: str, choices: Sequence[Mapping[str, str]]
) -> tuple[list[float], list[float]]:
    """Return US dollars of each combination's failed attempts, as if each of its cells had run alone.

    Returns:
        The costs of attempts that failed, and of innocent ones, which ended because of another attempt.
    """
    failed, innocent = [0.0] * len(choices), [0.0] * len(choices)
    for group, node, variant, lost, usd in aggregates.failed_attempts_usd(database, sweep_id):
        costs = innocent if lost else failed
        for number in json.loads(group):
            # An execution may stand at a node for combinations that choose other variants of it, too.
            if choices[number].get(node, variant) == variant:
                costs[number] += usd
    return failed, innocent


def add_costs(row: RowDocument, succeeded_usd: float | None, failed_usd: float) -> None:
    """Set the costs of a row: of a succeeded cell, of all failed ones, and of both for each success."""
    row["cost_usd"] = succeeded_usd
    row["cost_failed_usd"] = failed_usd
    row["cost_per_success_usd"] = None if succeeded_usd is None else succeeded_usd + failed_usd / row["succeeded"]
