"""Every JSON document that a command of a test prints is held against its schema, which has to know all its keys."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema_rs
import pytest
from jsonschema.exceptions import best_match

from scripts.schemas.json_schemas import document_schema
from wtb.core.documents.catalog import DOCUMENTS

LINES = ("watch", "log")  # commands that print a document a line


@functools.cache
def closed_schema(name: str) -> dict[str, Any]:
    """The schema of a document of a name, with no room for keys that it does not name."""
    schema: dict[str, Any] = closed(document_schema(name))
    return schema


@functools.cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    """Return the validator that explains why a document of a name does not fit."""
    return jsonschema.Draft202012Validator(closed_schema(name))


@functools.cache
def quick_validator(name: str) -> jsonschema_rs.Draft202012Validator:
    """Return the validator that is a hundred times as fast and explains nothing: events may be of seventy kinds."""
    return jsonschema_rs.Draft202012Validator(closed_schema(name))


def check(name: str, document: Any) -> None:
    """Hold a document, or an event, against its schema. Raises ValidationError."""
    if not quick_validator(name).is_valid(document):
        validator(name).validate(document)


def closed(schema: Any) -> Any:
    """Return a schema in which no object has keys besides those that it names."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    keys = {key: closed(value) for key, value in schema.items()}
    return {**keys, "additionalProperties": False} if isinstance(schema.get("properties"), dict) else keys


def check_printed(folder: Path, args: Sequence[str], code: int, stdout: str) -> None:
    """Hold what a command printed, or wrote to its --output, against its schemas; fails where it fits none."""
    names = _names(args)
    if code not in (0, 1) or not names or not _is_json(args):
        return
    file = next((after for option, after in itertools.pairwise(args) if option in ("-o", "--output")), None)
    text = stdout
    if file is not None and list(args[:2]) != ["admin", "export"]:
        text = Path(folder, file).read_text("utf-8") if Path(folder, file).is_file() else ""
    for document in text.splitlines() if args[0] in LINES and "--summary" not in args else [text]:
        if document.strip():
            _check(names, json.loads(document), args)


def _is_json(args: Sequence[str]) -> bool:
    return any(arg in ("json", "--format=json") for arg in args) or (args[0] == "scheduler" and "--once" in args)


def _names(args: Sequence[str]) -> list[str]:
    """The documents that a command may print: those of as many of its first words as a document has."""
    for words in (list(args[:3]), list(args[:2]), list(args[:1])):
        commands = {name: [command.split() for command in document.commands] for name, document in DOCUMENTS.items()}
        names = [name for name, of in commands.items() if any(command[: len(words)] == words for command in of)]
        if names:
            return names
    return []


def _check(names: Sequence[str], document: Any, args: Sequence[str]) -> None:
    if any(quick_validator(name).is_valid(document) for name in names):
        return
    problems = []
    for name in names:
        errors = list(validator(name).iter_errors(document))
        worst = best_match(errors)
        where = "/".join(map(str, worst.absolute_path))
        problems.append((len(errors), f"{name}: {where}: {worst.message}"))
    pytest.fail(f"wtb {' '.join(args)} printed what no schema knows:\n{min(problems)[1]}", pytrace=False)


def whole_matrix(matrix: dict[str, Any]) -> dict[str, Any]:
    """Return a matrix with all its keys, where a test gives those that it is about."""
    unknown = ("combination", "winner", "rival", "lead", "lead_ci", "p", "cases_needed", "differ_at_most", "because")
    best: dict[str, Any] = {**dict.fromkeys(unknown), "clear": False, "candidates": [], "unranked": []}
    best |= dict.fromkeys(("cases", "n_pairs", "tried"), 0)
    metric = dict.fromkeys(("low", "high", "on_failure", "interval"))
    metric = {"compare": "mean", "declared": True, "failed": 0, **metric}
    nothing = dict.fromkeys(("as_of", "primary", "choice", "clusters", "slices", "noise"))
    counts = {"scores_failed": 0, "edited_left_out": 0}
    return {
        "figures": "final",
        **nothing,
        "primary_named": False,
        "front": {},
        "warnings": [],
        **counts,
        "failures": {"causes": [], "more": 0},
        "provider": {"lost": 0, "share": 0.0, "attempts": 0, "scores": 0, "answered_after_failure": 0},
        **matrix,
        "best": {name: {**best, **row} for name, row in matrix.get("best", {}).items()},
        "metrics": {name: {**metric, **summary} for name, summary in matrix.get("metrics", {}).items()},
    }
