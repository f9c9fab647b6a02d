"""Whether rows are within a margin of the best, by the metrics that have one: what is added to the rows of a matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from wtb.analysis.interim import View
from wtb.analysis.matrix.selection import allowed_rows, wanted_figure
from wtb.analysis.scores import ScoreTable
from wtb.analysis.statistics import Comparison, Design
from wtb.analysis.statistics.good_enough import NEEDED_WITHOUT_SCALE, Standing, lacks_scale, standings
from wtb.core.classes.frozen import frozen
from wtb.core.scoring.scales import Scale

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, WithinDocument
    from wtb.core.tree.stored_spec import Best


@frozen
class Compared:
    """The rows under one metric as they were compared.

    Attributes:
        table: Their scores.
        design: How they were compared.
        comparison: What came of it.
        scale: What no score can pass before the end.
        seen: What a look before the end may see; None at the end.
        known_standings: Returns what an earlier look showed of rows and a margin.
    """

    table: ScoreTable
    design: Design
    comparison: Comparison
    scale: Scale | None
    seen: View | None
    known_standings: Callable[[float], frozenset[tuple[int, bool]]]

    @property
    def lacks_scale(self) -> bool:
        """Whether these cases are too few to show that any row is within a margin, because there is no scale."""
        scores = self.table.scores
        return len(scores) > 1 and lacks_scale(scores, self.design, range(len(scores)))

    def standings(self, margin: float, compared_rows: Sequence[int]) -> Sequence[Standing]:
        """Return how far each row is behind the best of some. margin: the loss that does not matter."""
        scores = self.table.scores
        if self.seen is not None:
            look = self.seen.look(
                scores, self.table.cases, self.design, self.scale, margin=margin, compared_rows=compared_rows
            )
            return look.standings
        design = replace(self.design, known_standings=self.known_standings(margin))
        return standings(scores, design, margin, could_be_best=self.comparison.candidates, compared_rows=compared_rows)


def add_standings(matrix: MatrixDocument, best: Best, margins: Mapping[str, float], by: Mapping[str, Compared]) -> None:
    """Add to each row whether it is within the margins of the best of those that `best` of the sweep file allows.

    Args:
        matrix: The matrix, which is changed.
        best: That of the sweep file, empty if there is none.
        margins: By metric the loss that does not matter.
        by: The rows as they were compared, by metric.
    """
    about = wanted_figure(matrix, best)[1]
    for metric, margin in margins.items():
        allowed, _ = allowed_rows(matrix, best if metric == about else {})
        planned = [row for row in allowed if row < len(by[metric].table.scores)]
        for row, standing in zip(matrix["rows"], by[metric].standings(margin, planned), strict=False):
            behind = standing.behind
            document: WithinDocument = {
                "margin": margin,
                "shown": standing.within,
                "behind": None if behind is None else [*behind],
            }
            if standing.hangs_on:
                document["hangs_on"] = standing.hangs_on
            row["metrics"][metric]["within"] = document


def lack_scales(margins: Mapping[str, float], by: Mapping[str, Compared]) -> list[str]:
    """Return sentences about metrics without a scale, by which too few cases show that a row is within the margin.

    Args:
        margins: By metric the loss that does not matter.
        by: The rows as they were compared, by metric.
    """
    return [
        f"{metric} has no declared `scale`: that a combination is within {margin:g} of the best takes at least "
        f"{NEEDED_WITHOUT_SCALE} {'cases' if by[metric].table.units is None else 'clusters'} that all of them have"
        for metric, margin in margins.items()
        if by[metric].seen is None and by[metric].lacks_scale
    ]
