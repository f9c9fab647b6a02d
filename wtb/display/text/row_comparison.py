"""Two rows of one sweep, in a terminal: which wins where, by how much, and whether that may be chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wtb.core.texts import MISSING, plural, printable
from wtb.core.tree.combinations import in_words
from wtb.display.matrix.figures import probability
from wtb.display.tables import grid

if TYPE_CHECKING:
    from wtb.core.documents.comparison import PairedRow, RowComparisonDocument
    from wtb.core.documents.matrix import WithinDocument


def two_rows(document: RowComparisonDocument, width: int) -> str:
    """All that the comparison says."""
    row, other = document["row"], document["other"]
    counts = f"{document['wins']:,} better, {document['losses']:,} worse, {document['ties']:,} the same"
    delta = f"difference {_figure(document['delta'])}{_test(document)}"
    lines = [
        f"{_name(row)} against {_name(other)} by {printable(document['metric'])} ({document['better']} is better)",
        f"{plural(document['n_pairs'], 'case')} of both: {counts}; {delta}",
    ]
    if within := document.get("within"):
        lines.append(_within(within, other))
    if document["unpaired"]:
        lines.append(f"{plural(document['unpaired'], 'case')} without a score of both are left out")
    if document["because"] is not None:
        lines.append(document["because"])
    if not document["cases"]:
        return "\n".join(lines)
    rows = [
        [printable(one["case"]), _figure(one["row"]), _figure(one["other"]), _figure(one["gain"])]
        for one in document["cases"]
    ]
    headers = ("case", f"row {row['combination']}", f"row {other['combination']}", "gain")
    table = grid(headers, rows, width, right=headers[1:])
    more = f"and {plural(document['more'], 'case')} more: --limit" if document["more"] else ""
    return "\n".join([*lines, "", table + more])


def _within(within: WithinDocument, other: PairedRow) -> str:
    behind, shown = within["behind"], within["shown"]
    most = f" (at most {_figure(behind[1])} behind)" if behind and shown is not False else ""
    least = f" (at least {_figure(behind[0])} behind)" if behind and shown is False else ""
    words = {True: "yes", False: "no", None: "not shown yet"}[shown]
    return f"within {within['margin']:g} of row {other['combination']}: {words}{most}{least}"


def _name(row: PairedRow) -> str:
    exploratory = ", exploratory" if row["exploratory"] else ""
    return f"row {row['combination']} ({printable(in_words(row['choices']))}{exploratory})"


def _test(document: RowComparisonDocument) -> str:
    interval = document["ci"]
    between = "" if interval is None else f" [{_figure(interval[0])}, {_figure(interval[1])}]"
    return between + ("" if document["p"] is None else f", p {probability(document['p'])}")


def _figure(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4g}"
