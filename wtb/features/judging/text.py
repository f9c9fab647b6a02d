"""A judge held against people, and rows ranked by comparisons, in a terminal. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wtb.core.texts import plural, printable
from wtb.display.tables import grid

if TYPE_CHECKING:
    from wtb.analysis.judge_bias import Figure
    from wtb.analysis.judge_check import JudgeCheck, LabelItem, LabelQueue
    from wtb.analysis.judge_ranking import RankedRow, RowRanking
    from wtb.analysis.judge_rows import LabelledRow


def check(agreement: JudgeCheck, width: int, color: bool = False) -> str:
    """Return the agreement, and a row for each combination that has labels."""
    lines = [
        f"{agreement.metric} against {plural(agreement.labels, 'label')} of {plural(len(agreement.raters), 'rater')}",
        f"Agreement with labels (Cohen's kappa): {_figure(agreement.kappa)}",
        f"Agreement among raters (Krippendorff's alpha): {_figure(agreement.alpha)}",
        f"The judge's score less the label: {_figure(agreement.bias)}",
        f"The same, where an answer is twice as long, changes by: {_figure(agreement.by_length)}",
    ]
    if agreement.own_family is not None:
        family = ", ".join(agreement.own_family.families) or "as named"
        family += f", {plural(agreement.own_family.labels, 'label')}"
        more = _figure(agreement.own_family.more)
        lines.append(f"Extra score for its own family ({family}) over other answers with the same label: {more}")
    if agreement.is_weighted:
        lines.append("Cases were drawn with unequal chances, and count by one over these.")
    if agreement.unjudged:
        lines.append(f"Left out: {plural(agreement.unjudged, 'label')} of cells without a score.")
    if agreement.not_drawn:
        lines.append(f"Left out: {plural(agreement.not_drawn, 'label')} asked for since raters disagree.")
    nodes = list(agreement.rows[0].combination)
    levels = [[f"{level.judge:.3g}", str(level.labels), _figure(level.people)] for level in agreement.levels]
    headers = ["judge", "labels", "mean label"]
    lines += ["", grid(headers, levels, width, right=headers, color=color).rstrip("\n")]
    if agreement.uses:
        headers = ["level", "judge", "people", "more often"]
        rows = [
            [f"{use.level:g}", f"{use.judge:.1%}", f"{use.people:.1%}", _figure(use.more)] for use in agreement.uses
        ]
        lines += ["", grid(headers, rows, width, right=headers, color=color).rstrip("\n")]
    base = next((row for row in agreement.rows if row.difference is None), None)
    compared = ["difference"] if len(agreement.rows) > 1 else []
    headers = [*nodes, "labels", "cases", "judge", "estimated labels", *compared, "weight"]
    row_cells = [[row.combination[node] for node in nodes] + _row(row, compared) for row in agreement.rows]
    lines += ["", grid(headers, row_cells, width, right=set(headers[len(nodes) :]), color=color).rstrip("\n")]
    if compared and base is not None:
        lines.append(f"difference: to {', '.join(f'{node}={variant}' for node, variant in base.combination.items())}")
    lines += _notes(agreement)
    for row in agreement.rows:
        if row.needed is not None:
            named = ", ".join(f"{node}={variant}" for node, variant in row.combination.items())
            work = f"{plural(row.needed, 'label')} for the margin, {row.needed / _AN_HOUR:.1f} h of work"
            lines.append(f"{named or 'The row'} takes about {work}.")
    return "\n".join(lines) + "\n"


def _notes(agreement: JudgeCheck) -> list[str]:
    """Return what readers have to know of the intervals."""
    notes = [f"No interval: {agreement.why_not}."] if agreement.why_not else []
    if any(row.has_few_labels for row in agreement.rows):
        notes.append("* fewer than 100 labels: the interval may be too short")
    return notes


_AN_HOUR = 60  # labels, of short answers by one key each
_ENDED = {
    "known": "The best row is known; no more was asked.",
    "cases": "All cases were compared.",
    "most": "The next case would take more calls than --most.",
}


def ranking(ranked: RowRanking, width: int, color: bool = False) -> str:
    """Rows, strongest first, and what being shown first is worth."""
    lines = [
        f"{plural(ranked.comparisons, 'comparison')} of {plural(ranked.cases, 'case')} by {', '.join(ranked.raters)}",
        f"Of two equal rows the one shown first wins: {_figure(ranked.shown_first)}",
    ]
    if ranked.asked is not None:
        price = "unknown" if ranked.asked.usd is None else f"{ranked.asked.usd:.6g} USD"
        lines += [
            _ENDED[ranked.asked.ended],
            f"Calls: {ranked.asked.calls}, without a usable reply {ranked.asked.failed}; cost {price}",
        ]
    nodes = list(ranked.rows[0].combination)
    headers = [*nodes, "compared", "wins", "strength", "place"]
    rows = [[row.combination[node] for node in nodes] + _ranked(row) for row in ranked.rows]
    lines += ["", grid(headers, rows, width, right=set(headers[len(nodes) :]), color=color).rstrip("\n")]
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


def rubric(queue: LabelQueue) -> str:
    """Explain labels, as far as their meaning is known."""
    lines = [_lines(queue.criteria)] if queue.criteria else []
    lines += [f"  {level}: {_lines(text)}" for level, text in queue.rubric.items()]
    if not queue.rubric and queue.ends:
        lines.append(f"  a number from {queue.ends[0]:g} to {queue.ends[1]:g}")
    return "\n".join([f"Label for {queue.metric}:", *lines])


def item(answer: LabelItem, number: int, count: int) -> str:
    """An answer with the input of its case."""
    return f"\n{number} of {count}\nInput\n{_indented(answer.input)}\nAnswer\n{_indented(answer.answer)}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in _lines(text).split("\n"))


def _lines(text: str) -> str:
    """Text without what a terminal would take for commands, with its lines."""
    return "\n".join(printable(line) for line in text.splitlines())
