"""Labels of people as files: CSV or JSON lines, one label a line, which names its cell and who gave it."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from wtb.analysis.judges.check import Label
from wtb.core.errors import InputError, describe, did_you_mean
from wtb.core.values import Json
from wtb.planning.case_files import READERS, Wrong

MOST_BYTES = 100_000_000
_OWN = ("case", "repeat", "rater", "label", "asked", "probability")
_ASKED = ("random", "disagreement")
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
            problems += [f"{place}: {text}" for text in error.problems]
    if problems:
        raise InputError(*problems)
    if not labels:
        raise InputError(f"{file}: no labels; expected at least one")
    return list(labels.values())


def append_labels(file: Path, rows: Sequence[Mapping[str, Json]]) -> int:
    """Add lines to a file of labels, which begins with them where it is not there. All rows have the same keys.

    Returns:
        The size that the file had, so that what was added can be taken back.

    Raises:
        InputError: The file cannot be written, or its header lacks a column.
    """
    try:
        with file.open("a+", encoding="utf-8", newline="") as opened:
            size = opened.tell()
            opened.seek(0)
            text = opened.read()
            added = "" if not text or text.endswith("\n") else "\n"
            if file.suffix == ".jsonl":
                opened.write(added + "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
                return size
            columns = next(csv.reader(text.lstrip("\ufeff").splitlines()), list(rows[0]))
            if missing := [key for key in rows[0] if key not in columns]:
                raise InputError(f"{file}: no column {missing[0]!r}; expected it in the header")
            writer = csv.DictWriter(opened, columns, lineterminator="\n")
            opened.write(added)
            if not text:
                writer.writeheader()
            writer.writerows(rows)
            return size
    except OSError as error:
        raise InputError(f"{file}: cannot be written ({error.strerror}); expected a file of labels") from None


def take_back(file: Path, size: int) -> None:
    """Cut a file of labels to the size that it had before lines were added. One that was not there goes."""
    if not size:
        file.unlink()
        return
    with file.open("r+b") as opened:
        opened.truncate(size)


def rows_of(file: Path) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """The rows of a CSV or JSON lines file with their places. Raises InputError."""
    try:
        if file.stat().st_size > MOST_BYTES:
            raise InputError(f"{file}: more than {MOST_BYTES:,} bytes; expected a smaller file")
        if file.suffix == ".jsonl":
            yield from ((place, _object(place, row)) for place, row in READERS[".jsonl"](file))
            return
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
    known = [*_OWN, *(choices[0] if choices else ())]
    if unknown := [key for key in row if key not in known]:
        raise InputError(f"unknown column {unknown[0]!r}{did_you_mean(unknown[0], known)}")
    case = str(row.get("case") or "")
    if case not in cases:
        raise InputError(f"the sweep has no case {case!r}{did_you_mean(case, cases)}")
    return Label(
        _combination(row, choices, nodes),
        cases[case],
        _repeat(row.get("repeat")),
        str(row.get("rater") or SOMEBODY),
        _value(row.get("label")),
        drawn=_is_drawn(row.get("asked")),
    )


def _is_drawn(asked: object) -> bool:
    if asked not in (None, "", *_ASKED):
        raise InputError(f"'asked' is {describe(asked)}; expected one of {', '.join(_ASKED)}")
    return asked != "disagreement"


def _combination(row: Mapping[str, Json], choices: Sequence[Mapping[str, str]], nodes: Sequence[str]) -> int:
    if missing := [node for node in nodes if not row.get(node)]:
        raise InputError(f"no {missing[0]!r}; expected the variant of each node by which rows differ")
    chosen = {node: str(row[node]) for node in choices[0] if row.get(node)}
    for number, one in enumerate(choices):
        if chosen.items() <= one.items():
            return number
    raise InputError(f"the sweep has no row {', '.join(f'{node}={variant}' for node, variant in chosen.items())}")


def _repeat(given: object) -> int:
    text = "0" if given in (None, "") else str(given)
    if not text.isdecimal() or len(text) > 9:
        raise InputError(f"'repeat' is {describe(given)}; expected a whole number of at least 0")
    return int(text)


def _value(given: object) -> float:
    try:
        value = float(str(given)) if not isinstance(given, bool) else float(given)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"'label' is {describe(given)}; expected a number on the scale of the metric")
    return value


def _check_on_scale(value: float, ends: tuple[float, float] | None) -> None:
    if ends is not None and not ends[0] <= value <= ends[1]:
        raise InputError(
            f"'label' is {value:g}; expected a number on the scale of the metric, {ends[0]:g} to {ends[1]:g}"
        )
