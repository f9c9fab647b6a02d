"""What people label, in a terminal. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wtb.core.texts import printable

if TYPE_CHECKING:
    from wtb.analysis.judges.check import LabelItem, LabelQueue


def rubric(queue: LabelQueue) -> str:
    """What labels mean, as far as it is known."""
    lines = [_lines(queue.criteria)] if queue.criteria else []
    lines += [f"  {level}: {_lines(text)}" for level, text in queue.rubric.items()]
    if not queue.rubric and queue.ends:
        lines.append(f"  a number from {queue.ends[0]:g} to {queue.ends[1]:g}")
    return "\n".join([f"Label for {queue.metric}:", *lines])


def item(one: LabelItem, number: int, count: int) -> str:
    """An answer with the input of its case."""
    return f"\n{number} of {count}\nInput\n{_indented(one.input)}\nAnswer\n{_indented(one.answer)}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in _lines(text).split("\n"))


def _lines(text: str) -> str:
    """Text without what a terminal would take for commands, with its lines."""
    return "\n".join(printable(line) for line in text.splitlines())
