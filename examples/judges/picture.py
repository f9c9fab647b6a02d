"""A picture of the estimates of judges and a few labels for each row, beside the human ratings of all cases."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, LEFT, RIGHT, TOP = 860, 300, 20, 64
ROW, LINE = 58, 16
COLORS = ("#2563a8", "#b4540a")


def draw(checked: Mapping[str, Any], rows: Sequence[Any], truth: Sequence[float]) -> str:
    """Draw an SVG: for each row the interval of each judge with the labels, its own mean, and the human mean.

    Args:
        checked: By judge, what `wtb judge check --format json` prints.
        rows: Of the matrix.
        truth: By row, the mean over all cases of what people said, of which the intervals know some.
    """
    height = TOP + ROW * len(rows) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="13" style="background: white">',
        "<title>What judges and some labels say of each row, beside the mean over people of all cases</title>",
        *_legend(checked),
    ]
    for tick in range(0, 11, 2):
        x = _x(tick / 10)
        parts.append(f'<path d="M{x:.1f} {TOP} V{height - 30}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 12}" text-anchor="middle">{tick / 10:g}</text>')
    for number, row in enumerate(rows):
        top = TOP + ROW * number
        name = ", ".join(f"{node}={variant}" for node, variant in row["combination"].items() if node != "answer")
        parts.append(f'<text x="{LEFT - 12}" y="{top + 32}" text-anchor="end">{escape(name)}</text>')
        for place, (judge, color) in enumerate(zip(checked, COLORS, strict=False)):
            (row_check,) = [
                checked_row
                for checked_row in checked[judge]["rows"]
                if checked_row["combination"].items() <= row["combination"].items()
            ]
            parts += _interval(row_check, top + 20 + place * LINE, color)
        x = _x(truth[number])
        parts.append(f'<path d="M{x:.1f} {top + 10} V{top + 46}" stroke="black" stroke-width="2"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend(checked: Mapping[str, Any]) -> list[str]:
    parts = ['<path d="M20 10 V26" stroke="black" stroke-width="2"/>', '<text x="30" y="23">people, all cases</text>']
    x = 180
    for judge, color in zip(checked, COLORS, strict=False):
        text = f"{judge.replace('_', ' ')} and labels, with 95%"
        parts += [
            f'<path d="M{x} 18 H{x + 30}" stroke="{color}" stroke-width="3"/>',
            f'<text x="{x + 38}" y="23">{escape(text)}</text>',
        ]
        x += 290
    parts.append('<circle cx="20" cy="44" r="4" fill="none" stroke="#555"/>')
    parts.append('<text x="30" y="49">the judge alone</text>')
    return parts


def _interval(row_check: Mapping[str, Any], y: float, color: str) -> list[str]:
    """Draw the interval of the human mean, its estimate, and the judge's own mean."""
    parts = []
    if (ends := row_check["people"]["interval"]) is not None:
        parts.append(f'<path d="M{_x(ends[0]):.1f} {y} H{_x(ends[1]):.1f}" stroke="{color}" stroke-width="3"/>')
    if (share := row_check["people"]["value"]) is not None:
        parts.append(f'<circle cx="{_x(share):.1f}" cy="{y}" r="4" fill="{color}"/>')
    if row_check["judge"] is not None:
        parts.append(f'<circle cx="{_x(row_check["judge"]):.1f}" cy="{y}" r="4" fill="none" stroke="{color}"/>')
    return parts


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)
