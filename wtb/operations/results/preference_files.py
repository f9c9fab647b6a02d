"""Comparisons of two rows each as files: one a line, of a case, by a person or a judge."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, describe, did_you_mean
from wtb.core.values import Json
from wtb.operations.results.label_files import SOMEBODY, rows_of

RESULTS: Mapping[str, int] = {"first": 1, "second": -1, "tie": 0}


@frozen
class Preference:
    """Which of two rows somebody preferred.

    Attributes:
        case: The id of the case.
        first: The row that was shown first, such as `reply=curt`.
        second: The other.
        preferred: `first`, `second` or `tie`.
        rater: Who said so.
        asked: Where a judge was asked: the digest of the question.
    """

    case: str
    first: str
    second: str
    preferred: str
    rater: str
    asked: str = ""


_COLUMNS = tuple(Preference.__dataclass_fields__)


def name_of(combination: Mapping[str, str], nodes: Sequence[str]) -> str:
    """A row by the variants of the nodes by which rows differ."""
    return ", ".join(f"{node}={combination[node]}" for node in nodes)


def read_preferences(file: Path) -> list[Preference]:
    """Read comparisons: `case`, `first`, `second` and `preferred`, and `rater`.

    Args:
        file: `.jsonl`, or CSV with a header.

    Raises:
        InputError: The file cannot be read, or a line is no comparison.
    """
    preferences: list[Preference] = []
    problems: list[str] = []
    for place, row in rows_of(file):
        try:
            preferences.append(_preference(row))
        except InputError as error:
            problems += [f"{place}: {text}" for text in error.problems]
    if problems:
        raise InputError(*problems)
    return preferences


def append(file: Path, new: Sequence[Preference]) -> None:
    """Write comparisons behind those that a file has, so that what was asked is not lost. Raises InputError."""
    try:
        with file.open("a", encoding="utf-8") as stream:
            stream.writelines(json.dumps(asdict(preference), ensure_ascii=False) + "\n" for preference in new)
    except OSError as error:
        raise InputError(f"{file}: cannot be written ({error.strerror}); expected a file for comparisons") from None


def _preference(row: Mapping[str, Json]) -> Preference:
    if unknown := [key for key in row if key not in _COLUMNS]:
        raise InputError(f"unknown column {unknown[0]!r}{did_you_mean(unknown[0], _COLUMNS)}")
    texts = {key: str(row.get(key) or "") for key in _COLUMNS}
    for key in ("case", "first", "second"):
        if not texts[key]:
            raise InputError(f"no {key!r}; expected a case, the row shown first and the second")
    if texts["preferred"] not in RESULTS:
        raise InputError(f"'preferred' is {describe(row.get('preferred'))}; expected first, second or tie")
    if texts["first"] == texts["second"]:
        raise InputError(f"both rows are {texts['first']!r}; expected two")
    return Preference(**{**texts, "rater": texts["rater"] or SOMEBODY})
