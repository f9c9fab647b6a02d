"""The command label: a person labels answers in the terminal, one after another."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_context, say
from wtb.cli.output import put_as
from wtb.core.texts import plural
from wtb.display.text import labels as labels_text
from wtb.operations.results import label_files, labelling

if TYPE_CHECKING:
    from wtb.analysis.judges.check import LabelItem, LabelQueue
    from wtb.core.values import Json


def label(
    ref: options.Sweep,
    labels: Annotated[Path, typer.Option("--labels", metavar="FILE", help="Where labels go, CSV or .jsonl.")],
    rater: Annotated[str, typer.Option("--rater", help="Who labels.")],
    metric: Annotated[
        str | None, typer.Option("--metric", help="The scores they are for \\[default: those that decide].")
    ] = None,
    field: Annotated[
        str | None, typer.Option("--field", help="What is labelled, of the final state \\[default: the judge's].")
    ] = None,
    cases: Annotated[int, typer.Option("--cases", help="How many cases are drawn.")] = 100,
    again: Annotated[bool, typer.Option("--again", help="Ask for what other raters disagree about.")] = False,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Label answers, drawn at random and shown without their rows.

    Type a label and Enter; s skips, b takes the last label back, ? shows the rubric, q ends. Each label is written at
    once, and whoever starts again goes on where they stopped. With --format json, what there is to label is printed.

    See also: `wtb judge check` holds a judge against the labels.

    Examples: wtb label nightly --labels labels.csv --rater ana  |  wtb label nightly --labels l.csv --rater eva --again
    """
    context = open_context(db)
    queue = labelling.draw_labels(
        context, ref, rater=rater, labels=labels, metric=metric, field=field, cases=cases, again=again
    )
    if format is options.Format.json:
        put_as(asdict(queue), "", format, output)
        return
    given = _ask(queue, labels, rater)
    put_as(
        {},
        f"{plural(given, 'answer')} labelled, {len(queue.items) - given} left; labels are in {labels}\n",
        format,
        output,
    )


def _ask(queue: LabelQueue, file: Path, rater: str) -> int:
    """Ask for each in turn. Returns how many answers were labelled."""
    sizes: list[tuple[int, int]] = []  # of what was labelled: its place, and the size of the file before
    place, shown = 0, -1
    say(labels_text.rubric(queue))
    while place < len(queue.items):
        item = queue.items[place]
        if shown != place:
            say(labels_text.item(item, place + 1, len(queue.items)))
            shown = place
        typed = sys.stdin.readline()
        word = typed.strip()
        if not typed or word == "q":
            break
        if word == "b" and sizes:
            place, size = sizes.pop()
            label_files.take_back(file, size)
        elif word == "s":
            place += 1
        elif (problem := _problem(word, queue)) is None:
            sizes.append((place, label_files.append_labels(file, _rows(item, queue, rater, float(word)))))
            place += 1
        else:
            say(labels_text.rubric(queue) if word == "?" else problem)
    return len(sizes)


def _problem(word: str, queue: LabelQueue) -> str | None:
    """What is wrong with a label that somebody typed."""
    levels = [float(level) for level in queue.rubric]
    low, high = queue.ends or (-math.inf, math.inf)
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if value in levels if levels else math.isfinite(value) and low <= value <= high:
        return None
    wanted = f"one of {', '.join(queue.rubric)}" if levels else "a number"
    if not levels and queue.ends:
        wanted += f" from {low:g} to {high:g}"
    return f"{word!r:.50} is no label; expected {wanted}, or s, b, ? or q"


def _rows(item: LabelItem, queue: LabelQueue, rater: str, value: float) -> list[Mapping[str, Json]]:
    why: dict[str, Json] = {"asked": queue.asked, "probability": queue.probability}
    return [
        {"case": item.case, **cell.combination, "repeat": cell.repeat, "rater": rater, "label": value, **why}
        for cell in item.cells
    ]
