"""Documents that notebooks show as tables, and that print as commands do."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from wtb.core.documents.comparison import ComparisonDocument, RowComparisonDocument
from wtb.display import notebook
from wtb.display.text import comparisons, row_comparison

D = TypeVar("D")


class _Comparison(dict[str, Any]):
    """A comparison of two sweeps, by the keys of its document."""

    def _repr_html_(self) -> str:
        return notebook.comparison(cast(ComparisonDocument, self))

    def __str__(self) -> str:
        return comparisons.comparison(cast(ComparisonDocument, self), notebook.WIDTH)


class _RowComparison(dict[str, Any]):
    """A comparison of two rows, by the keys of its document."""

    def _repr_html_(self) -> str:
        return notebook.two_rows(cast(RowComparisonDocument, self))

    def __str__(self) -> str:
        return row_comparison.two_rows(cast(RowComparisonDocument, self), notebook.WIDTH)


def shown_comparison(document: ComparisonDocument) -> ComparisonDocument:
    """Return a comparison that notebooks show as a table."""
    return cast(ComparisonDocument, _Comparison(document))


def shown_rows(document: RowComparisonDocument) -> RowComparisonDocument:
    """Return a comparison of two rows that notebooks show as a table."""
    return cast(RowComparisonDocument, _RowComparison(document))
