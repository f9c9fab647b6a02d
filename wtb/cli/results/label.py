"""The command `label`: what people say of answers, asked in the terminal, or read from a file."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_context, say
from wtb.cli.output import put_as
from wtb.core.errors import InputError
from wtb.core.scoring.judgement import CASES_DRAWN
from wtb.core.texts import plural
from wtb.display.text import labels as labels_text
from wtb.operations.results import label_files, labelling

if TYPE_CHECKING:
    from wtb.analysis.judges.check import LabelItem, LabelQueue

_Give = Callable[["LabelItem", float | None], object]


def label(
    ref: options.Sweep,
    rater: Annotated[str | None, typer.Option("--rater", help="Who labels \\[default: you].")] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="The scores they are for \\[default: those that decide].")
    ] = None,
    field: Annotated[
        str | None, typer.Option("--field", help="What is labelled, of the final state \\[default: the judge's].")
    ] = None,
    cases: Annotated[int, typer.Option("--cases", help="How many cases are drawn.")] = CASES_DRAWN,
    again: Annotated[bool, typer.Option("--again", help="Ask for what other raters disagree about.")] = False,
    take: Annotated[
        Path | None, typer.Option("--import", metavar="FILE", help="Take labels from a file, CSV or .jsonl.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Write all labels to a file, CSV or .jsonl.")
    ] = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Label answers, drawn at random and shown without their rows.

    Type a label and Enter; s skips, b takes the last label back, ? shows the rubric, q ends. Each label is kept at
    once, and whoever starts again goes on where they stopped. With --format json, what there is to label is printed.

    See also: `wtb judge check` holds a judge against the labels; `wtb serve` has a page for labelling.

    Examples: wtb label nightly --rater ana  |  wtb label nightly --export labels.csv
    """
    if take is not None and write is not None:
        raise InputError("--import and --export; expected one of them")
    context = open_context(db)
    if take is not None:
        read = labelling.import_labels(context, ref, labels=take, metric=metric)
        put_as(asdict(read), f"{plural(read.labels, 'label')} for {read.metric} from {take}\n", format, output)
        return
    if write is not None:
        kept = labelling.list_labels(context, ref, metric=metric)
        if len({one.metric for one in kept}) > 1:
            raise InputError("there are labels for several metrics; expected --metric with one of them")
        label_files.write_labels(write, [label_files.line_of(one) for one in kept])
        put_as({"labels": len(kept)}, f"{plural(len(kept), 'label')} written to {write}\n", format, output)
        return
    queue = labelling.draw_labels(context, ref, rater=rater, metric=metric, field=field, cases=cases, again=again)
    if format is options.Format.json:
        put_as(asdict(queue), "", format, output)
        return

    def give(item: LabelItem, value: float | None) -> None:
        labelling.give_label(
            context, queue.sweep, item.case, item.id, value,
            rater=rater, metric=metric, field=field, cases=cases, again=again,
        )  # fmt: skip

    given = _ask(queue, give)
    put_as({}, f"{plural(given, 'answer')} labelled, {len(queue.items) - given} left\n", format, output)


def _ask(queue: LabelQueue, give: _Give) -> int:
    """Ask for each in turn. Returns how many answers were labelled."""
    labelled: list[int] = []  # places of what was labelled
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
        if word == "b" and labelled:
            place = labelled.pop()
            give(queue.items[place], None)
        elif word == "s":
            place += 1
        elif (problem := _problem(word, queue)) is None:
            give(item, float(word))
            labelled.append(place)
            place += 1
        else:
            say(labels_text.rubric(queue) if word == "?" else problem)
    return len(labelled)


def _problem(word: str, queue: LabelQueue) -> str | None:
    """What is wrong with a label that somebody typed."""
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    wrong = labelling.problem_of(value, [float(level) for level in queue.rubric], queue.ends)
    return wrong and f"{word!r:.50} is no label; {wrong}, or s, b, ? or q"
