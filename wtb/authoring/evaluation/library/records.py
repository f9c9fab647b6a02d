"""Evaluators of what has a structure: whether JSON and SQL mean what is expected, however they are written."""

from __future__ import annotations

import json
from typing import Any

from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase, evaluator
from wtb.authoring.evaluation.fields import json_of, json_value, needs_expected, parse_json, references_of, text_of
from wtb.authoring.evaluation.requirements import needs
from wtb.core.errors import InputError
from wtb.core.scoring.scales import PASS_OR_FAIL


@needs_expected(json_value)
@evaluator(better="higher", scale=PASS_OR_FAIL)
def json_equal(case: ScoredCase, result: CellResult, *, field: str, ignore_order: bool = False) -> bool:
    expected = json_value(case.expected, field)
    if isinstance(expected, str):
        expected = parse_json(expected)
    try:
        document = json_of(result, field)
    except ValueError:
        return False
    return _canonical(document, ignore_order) == _canonical(expected, ignore_order)


def _canonical(value: Any, ignore_order: bool) -> str:
    """A JSON value as text: whole floats as integers, and lists in one order where their order does not matter."""
    return json.dumps(_plain(value, ignore_order), sort_keys=True, separators=(",", ":"))


def _plain(value: Any, ignore_order: bool) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(part, ignore_order) for key, part in value.items()}
    if isinstance(value, list | tuple):
        items = [_plain(part, ignore_order) for part in value]
        return sorted(items, key=lambda part: json.dumps(part, sort_keys=True)) if ignore_order else items
    return int(value) if isinstance(value, float) and value.is_integer() else value


@needs_expected()
@needs("sqlglot", extra="sql")
@evaluator(better="higher", scale=PASS_OR_FAIL)
def sql_equal(case: ScoredCase, result: CellResult, *, field: str, dialect: str = "") -> bool:
    from sqlglot.errors import SqlglotError

    try:
        references = [_normalized(reference, dialect) for reference in references_of(case, field)]
    except SqlglotError as error:
        raise InputError(f"'expected' of {field!r} is no SQL: {error!s:.200}") from None
    try:
        return _normalized(text_of(result, field), dialect) in references
    except (SqlglotError, RecursionError):  # no SQL is not the SQL that is expected
        return False


def _normalized(sql: str, dialect: str) -> Any:
    """The tree of one statement, with names in one case, and conditions simplified and in one order."""
    from sqlglot import parse_one
    from sqlglot.optimizer.normalize_identifiers import normalize_identifiers
    from sqlglot.optimizer.simplify import simplify

    tree = normalize_identifiers(parse_one(sql, dialect=dialect or None), dialect=dialect or None)
    return simplify(tree, dialect=dialect or None)
