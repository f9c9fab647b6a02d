"""Files of labels: CSV or JSON lines, with one label a line, its cell and who gave it."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from wtb.analysis.judge_check import Label
from wtb.core.errors import InputError, describe, did_you_mean
from wtb.core.ids import plain_id
from wtb.core.values import Json
from wtb.planning.case_files import READERS, Wrong
from wtb.store.control.labels import GivenLabel

MOST_BYTES = 100_000_000
_OWN = ("case", "repeat", "rater", "label", "asked", "probability")
_REASONS = ("random", "disagreement")
SOMEBODY = "rater"  # where a file names nobody


def read_labels(
    file: Path, choices: Sequence[Mapping[str, str]], cases: Mapping[str, int], ends: tuple[float, float] | None = None
) -> list[Label]:
    """Read labels: `case` and `label`, `repeat` (0) and `rater`, and the variant of each node by which rows differ.

    Args:
        file: `.jsonl`, or CSV with a header.
        choices: The sweep's combinations, by number.
        cases: The numbers of its cases.
        ends: Of the scale of the metric, where it has one.

    Raises:
        InputError: The file cannot be read, or a line names no cell, a cell twice by one rater, or gives no number
            on the scale.
    """
    nodes = [node for node in choices[0] if len({row[node] for row in choices}) > 1] if choices else []
    labels: dict[tuple[int, int, int, str], Label] = {}
    problems: list[str] = []
    for place, row in rows_of(file):
        try:
            label = _label(row, choices, cases, nodes)
            _check_on_scale(label.value, ends)
            key = (label.combination, label.case, label.repeat, label.rater)
            if key in labels:
                raise InputError(f"{label.rater!r} labels the cell a second time; expected one label of each")
            labels[key] = label
        except InputError as error:
            # All lines are read before any is refused, so that a file is corrected in one go.
            problems += [f"{place}: {text}" for text in error.problems]
    if problems:
        raise InputError(*problems)
    if not labels:
        raise InputError(f"{file}: no labels; expected at least one")
    return list(labels.values())


def write_labels(file: Path, rows: Sequence[Mapping[str, Json]]) -> None:
    """Write a file of labels that `read_labels` can read, and replace what the file had. All rows have the same keys.

    Raises:
        InputError: If the file cannot be written.
    """
    try:
        with file.open("w", encoding="utf-8", newline="") as opened:
            if file.suffix == ".jsonl":
                opened.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
                return
            writer = csv.DictWriter(opened, list(rows[0]) if rows else _OWN, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise InputError(f"{file}: cannot be written ({error.strerror}); expected a file of labels") from None


def line_of(label: GivenLabel) -> Mapping[str, Json]:
    """Return a label as a line of a file."""
    return {
        "case": label.case,
        **label.combination,
        "repeat": label.repeat,
        "rater": label.rater,
        "label": label.label,
        "asked": label.asked,
        "probability": label.probability,
    }


def rows_of(file: Path) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """Yield the rows of a CSV or JSON lines file with their places. Raises InputError."""
    try:
        if file.stat().st_size > MOST_BYTES:
            raise InputError(f"{file}: more than {MOST_BYTES:,} bytes; expected a smaller file")
        if file.suffix == ".jsonl":
            yield from ((place, _object(place, row)) for place, row in READERS[".jsonl"](file))
            return
        # Spreadsheets begin CSV files with a byte order mark, which would become part of the first column's name.
        text = file.read_text("utf-8-sig")
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); expected CSV or JSON lines") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: not UTF-8; expected text in UTF-8") from None
    rows = csv.DictReader(text.splitlines(), restkey="")
    yield from ((f"{file}:{line}", row) for line, row in enumerate(rows, start=2))


def _object(place: str, row: Json | Wrong) -> Mapping[str, Json]:
    if isinstance(row, Wrong):
        raise InputError(f"{place}: {row}")
    if not isinstance(row, dict):
        raise InputError(f"{place}: {describe(row)}; expected an object such as {{'case': ..., 'label': 1}}")
    return row


def _label(
    row: Mapping[str, Json], choices: Sequence[Mapping[str, str]], cases: Mapping[str, int], nodes: Sequence[str]
) -> Label:
    columns = [*_OWN, *(choices[0] if choices else ())]
    if unknown := [key for key in row if key not in columns]:
        raise InputError(f"unknown column {unknown[0]!r}{did_you_mean(unknown[0], columns)}")
    case = str(row.get("case") or "")
    # An id may come back with spaces or in another form of Unicode than it was exported: its plain form is tried, too.
    if case not in cases:
        case = plain_id(case)
    if case not in cases:
        raise InputError(f"the sweep has no case {case!r}{did_you_mean(case, cases)}")
    return Label(
        _combination(row, choices, nodes),
        cases[case],
        _repeat(row.get("repeat")),
        str(row.get("rater") or SOMEBODY),
        _value(row.get("label")),
        drawn=_is_drawn(row.get("asked")),
        probability=_probability(row.get("probability")),
    )


def _probability(raw: object) -> float | None:
    if raw in (None, ""):
        return None
    try:
        probability = math.nan if isinstance(raw, bool) else float(str(raw))
    except ValueError:
        probability = math.nan
    if not 0 < probability <= 1:
        raise InputError(f"'probability' is {describe(raw)}; expected a number above 0 and at most 1")
    return probability


def _is_drawn(reason: object) -> bool:
    if reason not in (None, "", *_REASONS):
        raise InputError(f"'asked' is {describe(reason)}; expected one of {', '.join(_REASONS)}")
    return reason != "disagreement"


def _combination(row: Mapping[str, Json], choices: Sequence[Mapping[str, str]], nodes: Sequence[str]) -> int:
    if missing := [node for node in nodes if not row.get(node)]:
        raise InputError(f"no {missing[0]!r}; expected the variant of each node by which rows differ")
    variants = {node: str(row[node]) for node in choices[0] if row.get(node)}
    for number, choice in enumerate(choices):
        if variants.items() <= choice.items():
            return number
    raise InputError(f"the sweep has no row {', '.join(f'{node}={variant}' for node, variant in variants.items())}")


def _repeat(raw: object) -> int:
    text = "0" if raw in (None, "") else str(raw)
    if not text.isdecimal() or len(text) > 9:
        raise InputError(f"'repeat' is {describe(raw)}; expected a whole number of at least 0")
    return int(text)


def _value(raw: object) -> float:
    try:
        number = float(str(raw)) if not isinstance(raw, bool) else float(raw)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"'label' is {describe(raw)}; expected a number on the scale of the metric")
    return number


def _check_on_scale(label: float, ends: tuple[float, float] | None) -> None:
    if ends is not None and not ends[0] <= label <= ends[1]:
        raise InputError(
            f"'label' is {label:g}; expected a number on the scale of the metric, {ends[0]:g} to {ends[1]:g}"
        )
