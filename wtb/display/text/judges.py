"""A judge held against people, and rows ranked by comparisons, in a terminal. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wtb.core.texts import plural
from wtb.display.tables import grid

if TYPE_CHECKING:
    from wtb.analysis.judges.bias import Figure
    from wtb.analysis.judges.check import JudgeCheck
    from wtb.analysis.judges.ranking import RankedRow, RowRanking
    from wtb.analysis.judges.rows import LabelledRow


def check(found: JudgeCheck, width: int, color: bool = False) -> str:
    """The agreement, and a row for each combination that has labels."""
    lines = [
        f"{found.metric} against {plural(found.labels, 'label')} of {plural(len(found.raters), 'rater')}",
        f"Agreement with labels (Cohen's kappa): {_figure(found.kappa)}",
        f"Agreement among raters (Krippendorff's alpha): {_figure(found.alpha)}",
        f"The judge's score less the label: {_figure(found.bias)}",
        f"The same, where an answer is twice as long, changes by: {_figure(found.by_length)}",
    ]
    if found.own_family is not None:
        family = ", ".join(found.own_family.families) or "as named"
        family += f", {plural(found.own_family.labels, 'label')}"
        more = _figure(found.own_family.more)
        lines.append(f"What it gives its own family ({family}) more than others with the same label: {more}")
    if found.is_weighted:
        lines.append("Cases were drawn with unequal chances, and count by one over these.")
    if found.unjudged:
        lines.append(f"Left out: {plural(found.unjudged, 'label')} of cells without a score.")
    if found.not_drawn:
        lines.append(f"Left out: {plural(found.not_drawn, 'label')} asked for since raters disagree.")
    nodes = list(found.rows[0].combination)
    levels = [[f"{one.judge:.3g}", str(one.labels), _figure(one.people)] for one in found.levels]
    headers = ["judge", "labels", "people say"]
    lines += ["", grid(headers, levels, width, right=headers, color=color).rstrip("\n")]
    if found.uses:
        headers = ["level", "judge", "people", "more often"]
        rows = [[f"{one.level:g}", f"{one.judge:.1%}", f"{one.people:.1%}", _figure(one.more)] for one in found.uses]
        lines += ["", grid(headers, rows, width, right=headers, color=color).rstrip("\n")]
    base = next((row for row in found.rows if row.difference is None), None)
    compared = ["difference"] if len(found.rows) > 1 else []
    headers = [*nodes, "labels", "cases", "judge", "people would say", *compared, "weight"]
    shown = [[row.combination[node] for node in nodes] + _row(row, compared) for row in found.rows]
    lines += ["", grid(headers, shown, width, right=set(headers[len(nodes) :]), color=color).rstrip("\n")]
    if compared and base is not None:
        lines.append(f"difference: to {', '.join(f'{node}={chosen}' for node, chosen in base.combination.items())}")
    lines += _notes(found)
    for row in found.rows:
        if row.needed is not None:
            named = ", ".join(f"{node}={variant}" for node, variant in row.combination.items())
            work = f"{plural(row.needed, 'label')} for the margin, {row.needed / _AN_HOUR:.1f} h of work"
            lines.append(f"{named or 'The row'} takes about {work}.")
    return "\n".join(lines) + "\n"


def _notes(found: JudgeCheck) -> list[str]:
    """Return what readers have to know of the intervals."""
    notes = [f"No interval: {found.why_not}."] if found.why_not else []
    if any(row.has_few_labels for row in found.rows):
        notes.append("* fewer than 100 labels: the interval may be too short")
    return notes


_AN_HOUR = 60  # labels, of short answers by one key each
_ENDED = {
    "known": "The best row is known; no more was asked.",
    "cases": "All cases were compared.",
    "most": "The next case would take more calls than --most.",
}


def ranking(found: RowRanking, width: int, color: bool = False) -> str:
    """Rows, strongest first, and what being shown first is worth."""
    lines = [
        f"{plural(found.comparisons, 'comparison')} of {plural(found.cases, 'case')} by {', '.join(found.raters)}",
        f"Of two equal rows the one shown first wins: {_figure(found.shown_first)}",
    ]
    if found.asked is not None:
        price = "unknown" if found.asked.usd is None else f"{found.asked.usd:.6g} USD"
        lines += [
            _ENDED[found.asked.ended],
            f"Calls: {found.asked.calls}, without a usable reply {found.asked.failed}; cost {price}",
        ]
    nodes = list(found.rows[0].combination)
    headers = [*nodes, "compared", "wins", "strength", "place"]
    shown = [[row.combination[node] for node in nodes] + _ranked(row) for row in found.rows]
    lines += ["", grid(headers, shown, width, right=set(headers[len(nodes) :]), color=color).rstrip("\n")]
    return "\n".join([*lines, "☆ could be the best"]) + "\n"


def _ranked(row: RankedRow) -> list[str]:
    wins = "-" if row.wins is None else f"{row.wins:.3f}"
    place = f"{row.rank[0]}" if row.rank[0] == row.rank[1] else f"{row.rank[0]} to {row.rank[1]}"
    return [str(row.comparisons), wins, _figure(row.strength), place + (" ☆" if row.could_be_best else "")]


def _row(row: LabelledRow, compared: Sequence[str]) -> list[str]:
    judge = "-" if row.judge is None else f"{row.judge:.3f}"
    mark = "*" if row.has_few_labels else ""
    more = [] if not compared else [""] if row.difference is None else [_figure(row.difference) + mark]
    return [str(row.labels), str(row.cases), judge, _figure(row.people) + mark, *more, f"{row.weight:.2f}"]


def _figure(figure: Figure) -> str:
    if figure.value is None:
        return "unknown"
    if figure.interval is None:
        return f"{figure.value:.3f} ({figure.because or 'no interval'})"
    return f"{figure.value:.3f} ({figure.interval[0]:.3f} to {figure.interval[1]:.3f})"
