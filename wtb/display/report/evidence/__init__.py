"""The evidence of a sweep: its matrix and what stands behind it, as one document that every form of the report shows.

docs/report-json.md lists the keys. What the data cannot say is None, with the reason in words.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from wtb.analysis.effects.attribution import attribute, pairwise, unattributed
from wtb.analysis.gates import judge
from wtb.analysis.judges.people import people
from wtb.analysis.kept_matrix import kept_matrix
from wtb.analysis.matrix.build import build
from wtb.analysis.scores import Scores
from wtb.display.report.evidence.cells import cell_grid
from wtb.display.report.evidence.failures import failures
from wtb.display.report.evidence.hard_cases import worst
from wtb.display.report.evidence.history import history
from wtb.display.report.evidence.open_cases import opened
from wtb.display.report.evidence.provenance import provenance
from wtb.display.report.evidence.tree import tree
from wtb.store.database import Database
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument
    from wtb.core.documents.report import EvidenceDocument, Tested


VERSION: Final = 1


def gather(database: Database, sweep: SweepRow, *, full: bool = False) -> EvidenceDocument:
    """Everything that a report shows of a sweep, whatever its status.

    Args:
        database: Where the sweep is.
        sweep: Its row, as `find_sweep` gives it.
        full: Open every case, and cut no value of it.

    Returns:
        The evidence as plain JSON; docs/report-json.md lists its keys.
    """
    scored = Scores(database, sweep)
    matrix = kept_matrix(database, sweep) or build(database, sweep, scored)
    hardest, failed = worst(database, sweep, matrix), failures(database, sweep)
    tested = _tested(database, sweep, scored, matrix)
    found: EvidenceDocument = {
        "version": VERSION,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "matrix": matrix,
        "gates": judge(database, sweep, matrix),
        "attribution": tested["attribution"],
        "pairs": tested["pairs"],
        "tree": tree(database, sweep, matrix),
        "worst": hardest,
        "opened": opened(database, sweep, matrix, hardest, failed, full=full),
        "failures": failed,
        "provenance": provenance(database, sweep, matrix),
        "history": history(database, sweep, matrix),
    }
    if "people" in tested:
        found["people"] = tested["people"]
    if cells := cell_grid(database, sweep, matrix):
        found["cells"] = cells
    return found


def _tested(database: Database, sweep: SweepRow, scored: Scores, matrix: MatrixDocument) -> Tested:
    """What rests on tests of the whole sweep, which are run at its end only, and what people would say by then."""
    metrics = list(matrix["metrics"])
    if matrix["figures"] == "final":
        found: Tested = {
            "attribution": {metric: attribute(scored, metric) for metric in metrics},
            "pairs": {metric: pairwise(scored, metric) for metric in metrics},
        }
        if said := people(database, sweep, matrix):
            found["people"] = said
        return found
    why = matrix["as_of"]["because"] if matrix["as_of"] else "the sweep has not ended"
    return {
        "attribution": {metric: unattributed(metric, why) for metric in metrics},
        "pairs": {metric: {"rows": [], "pairs": []} for metric in metrics},
    }
