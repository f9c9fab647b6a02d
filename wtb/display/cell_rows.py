"""Cells of a sweep as rows of a table: of a data frame, or of a CSV file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from wtb.core.factors.factors import label_columns, labels_of
from wtb.display.json_text import value_as_json
from wtb.display.matrix import csv

if TYPE_CHECKING:
    from wtb.core.documents.sweeps import CellDocument

# What a cell took, and the metric that says the same.
Spent = Literal["latency_s", "cost_usd", "tokens_in", "tokens_out"]
_SPENT: Final[Mapping[Spent, str | None]] = {
    "latency_s": "latency",
    "cost_usd": "cost",
    "tokens_in": None,
    "tokens_out": None,
}
_MEASURED: Final = frozenset(_SPENT.values())  # of failed cells, too: they count as they are
_CELL: Final = ("case", "repeat", "tags", "expected", "status", "error", "execution")


def cell_row(cell: CellDocument, metrics: Sequence[str], keys: Sequence[str] = ()) -> dict[str, Any]:
    """Return a cell as a row by column; the columns are the same for all cells of a sweep.

    Args:
        cell: The cell.
        metrics: The metrics of the sweep.
        keys: Keys of the final state that are columns, too.
    """
    combination, counted = cell["combination"], cell.get("counted", cell["scores"])
    row: dict[str, Any] = {**combination, **{k: v for k, v in labels_of(combination).items() if k not in combination}}
    parts = (
        ("cell", {key: cell[key] for key in _CELL}),
        ("metric", {metric: cell["scores"].get(metric) for metric in metrics}),
        ("counted", {f"{metric}.counted": counted.get(metric) for metric in metrics if metric not in _MEASURED}),
        ("spent", {key: cell[key] for key, metric in _SPENT.items() if metric not in metrics}),
        ("state", {key: cell["state"].get(key) for key in keys}),
    )
    for kind, columns in parts:
        row |= {f"{kind}.{name}" if name in row else name: value for name, value in columns.items()}
    return row


def cells_as_csv(
    cells: Iterable[CellDocument],
    variants: Mapping[str, Sequence[str]],
    metrics: Sequence[str],
    keys: Sequence[str] = (),
) -> Iterator[str]:
    """Yield cells as CSV (RFC 4180) with a header, line by line: they may be larger than memory.

    Lists and mappings are JSON. Text that a spreadsheet would run as a formula starts with an apostrophe.

    Args:
        cells: The cells.
        variants: The varied nodes of the sweep with the names of their variants.
        metrics: Its metrics.
        keys: Keys of the final state that are columns, too.
    """
    levels = label_columns([{node: name} for node, names in variants.items() for name in names])
    factors = [*variants, *(name for name in levels if name not in variants)]
    header: list[str] = []
    for cell in cells:
        row = cell_row(cell, metrics, keys)
        if not header:
            header = [*factors, *(name for name in row if name not in factors)]
            yield csv.written([header])
        yield csv.written([[_plain(row.get(name)) for name in header]])


def _plain(value: Any) -> Any:
    """A value as it stands in a field: numbers and text as they are, everything else as JSON."""
    return value if value is None or isinstance(value, str | int | float) else value_as_json(value)
