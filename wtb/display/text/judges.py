"""A judge held against people, in a terminal. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wtb.core.texts import plural
from wtb.display.tables import grid

if TYPE_CHECKING:
    from wtb.analysis.judges import Figure, JudgeCheck, LabelledRow


def check(found: JudgeCheck, width: int, color: bool = False) -> str:
    """The agreement, and a row for each combination that has labels."""
    lines = [
        f"{found.metric} against {plural(found.labels, 'label')} of {plural(len(found.raters), 'rater')}",
        f"Agreement with labels (Cohen's kappa): {_figure(found.kappa)}",
        f"Agreement among raters (Krippendorff's alpha): {_figure(found.alpha)}",
        f"The judge's score less the label: {_figure(found.bias)}",
    ]
    if found.unjudged:
        lines.append(f"Left out: {plural(found.unjudged, 'label')} of cells without a score.")
    nodes = list(found.rows[0].combination)
    headers = [*nodes, "labels", "cases", "judge", "people would say", "weight"]
    shown = [[row.combination[node] for node in nodes] + _row(row) for row in found.rows]
    lines += ["", grid(headers, shown, width, right=set(headers[len(nodes) :]), color=color).rstrip("\n")]
    if any(row.has_few_labels for row in found.rows):
        lines.append("* fewer than 100 labels: the interval may be too short")
    return "\n".join(lines) + "\n"


def _row(row: LabelledRow) -> list[str]:
    judge = "-" if row.judge is None else f"{row.judge:.3f}"
    mark = "*" if row.has_few_labels else ""
    return [str(row.labels), str(row.cases), judge, _figure(row.people) + mark, f"{row.weight:.2f}"]


def _figure(figure: Figure) -> str:
    if figure.value is None:
        return "unknown"
    if figure.interval is None:
        return f"{figure.value:.3f} (no interval)"
    return f"{figure.value:.3f} ({figure.interval[0]:.3f} to {figure.interval[1]:.3f})"
