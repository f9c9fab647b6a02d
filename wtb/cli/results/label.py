"""Commands on what people say of answers: label draw, label answer, label import, label export."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_context, put, say
from wtb.cli.output import put_as
from wtb.core.errors import InputError
from wtb.core.scoring.judgement import CASES_DRAWN
from wtb.core.texts import plural
from wtb.display.text import labels as labels_text
from wtb.operations.results import label_files, labelling

if TYPE_CHECKING:
    from wtb.analysis.judges.check import LabelItem, LabelQueue

_Give = Callable[["LabelItem", float | None], object]


_Rater = Annotated[str | None, typer.Option("--rater", help="Who labels \\[default: you].")]
_Metric = Annotated[
    str | None, typer.Option("--metric", help="The scores they are for \\[default: those that decide].")
]
_Field = Annotated[
    str | None, typer.Option("--field", help="What is labelled, of the final state \\[default: the judge's].")
]
_Cases = Annotated[int, typer.Option("--cases", help="How many cases are drawn.")]
_Again = Annotated[bool, typer.Option("--again", help="Ask for what other raters disagree about.")]
_File = Annotated[Path, typer.Argument(metavar="FILE", help="The file, CSV or .jsonl.")]


def draw(
    ref: options.Sweep,
    rater: _Rater = None,
    metric: _Metric = None,
    field: _Field = None,
    cases: _Cases = CASES_DRAWN,
    again: _Again = False,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Show the answers to label, drawn at random and without their rows.

    It keeps nothing: the same rater is shown the same answers until they are labelled.

    See also: `wtb label answer` asks for their labels.

    Example: wtb label draw nightly --rater ana --format json
    """
    context = open_context(db)
    queue = labelling.draw_labels(context, ref, rater=rater, metric=metric, field=field, cases=cases, again=again)
    items = [labels_text.item(item, place, len(queue.items)) for place, item in enumerate(queue.items, 1)]
    put_as(asdict(queue), "\n".join([labels_text.rubric(queue), *items, ""]), format, output)


def answer(
    ref: options.Sweep,
    rater: _Rater = None,
    metric: _Metric = None,
    field: _Field = None,
    cases: _Cases = CASES_DRAWN,
    again: _Again = False,
    db: options.Db = None,
) -> None:
    """Label answers that were drawn at random, or take labels back.

    It shows them without their rows. Type a label and Enter; s skips, b takes the last label back, ? shows the rubric,
    q ends. Each label is kept at once, and whoever starts again goes on where they stopped.

    See also: `wtb judge check` holds a judge against the labels; `wtb serve` has a page for labelling.

    Example: wtb label answer nightly --rater ana
    """
    context = open_context(db)
    queue = labelling.draw_labels(context, ref, rater=rater, metric=metric, field=field, cases=cases, again=again)

    def give(item: LabelItem, value: float | None) -> None:
        labelling.give_label(
            context, queue.sweep, item.case, item.id, value,
            rater=rater, metric=metric, field=field, cases=cases, again=again,
        )  # fmt: skip

    labelled = _ask(queue, give)
    put(f"{plural(labelled, 'answer')} labelled, {len(queue.items) - labelled} left")


def import_(
    ref: options.Sweep,
    labels: _File,
    metric: _Metric = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Take labels of a sweep from a file.

    Example: wtb label import nightly labels.csv --metric helpful
    """
    read = labelling.import_labels(open_context(db), ref, labels=labels, metric=metric)
    put_as(asdict(read), f"{plural(read.labels, 'label')} for {read.metric} from {labels}\n", format, output)


def export(
    ref: options.Sweep,
    file: _File,
    metric: _Metric = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Export the labels of a sweep.

    Example: wtb label export nightly labels.csv
    """
    kept = labelling.list_labels(open_context(db), ref, metric=metric)
    if len({label.metric for label in kept}) > 1:
        raise InputError("there are labels for several metrics; expected --metric with one of them")
    label_files.write_labels(file, [label_files.line_of(label) for label in kept])
    put_as({"labels": len(kept)}, f"{plural(len(kept), 'label')} written to {file}\n", format, output)


LABEL = {"draw": draw, "answer": answer, "import": import_, "export": export}


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
