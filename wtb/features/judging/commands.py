"""Commands of judges and of human labels."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_context, put, say, width
from wtb.cli.output import in_color, put_as
from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.core.scoring.scores import CALLS_AT_ONCE, CASES_DRAWN, MOST_CALLS
from wtb.core.texts import plural
from wtb.features.judging import checking, label_files, labelling, ranking, text

if TYPE_CHECKING:
    from wtb.analysis.judge_check import LabelItem, LabelQueue

CRITERIA = "It answers what was asked: correct, complete and to the point."


class JudgeProvider(StrEnum):
    """The protocols of models."""

    openai = "openai"
    anthropic = "anthropic"


class LabelScale(StrEnum):
    """The scale of labels."""

    nominal = "nominal"
    ordinal = "ordinal"
    interval = "interval"


def check(
    ref: options.Sweep,
    labels: Annotated[
        Path | None,
        typer.Option("--labels", metavar="FILE", help="Labels, CSV or .jsonl \\[default: of `wtb label answer`]."),
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="The judge's scores \\[default: those that decide].")
    ] = None,
    scale: Annotated[LabelScale, typer.Option("--scale", help="The scale of the labels.")] = LabelScale.ordinal,
    margin: Annotated[
        float | None, typer.Option("--margin", metavar="X", help="Show how many labels an interval of +- X takes.")
    ] = None,
    own: Annotated[
        list[str] | None,
        typer.Option(
            "--own", metavar="NODE=VARIANT", help="Answers of the judge's own family \\[default: by recorded calls]."
        ),
    ] = None,
    at_least: Annotated[
        float | None, typer.Option("--at-least", metavar="KAPPA", help="Exit with 1 unless they agree so far.")
    ] = None,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Compare the scores of a metric with human labels.

    Shows their agreement, the bias of the scores, and the estimated human labels of each row, with intervals. With
    --at-least, it exits with 1 if the lower end of the agreement's interval is below: use it before gates on the
    judge's scores.

    See also: `wtb matrix` shows the scores alone.

    Example: wtb judge check nightly --labels labels.csv --metric helpful
    """
    context = open_context(db)
    if at_least is not None and not -1 <= at_least <= 1:
        raise InputError(f"--at-least is {at_least:g}; expected an agreement from -1 to 1")
    agreement = checking.check_judge(
        context, ref, labels=labels, metric=metric, scale=scale.value, margin=margin, own=own or ()
    )
    put_as(asdict(agreement), text.check(agreement, width(), in_color(form.output)), form)
    if at_least is not None and (agreement.kappa.interval is None or agreement.kappa.interval[0] < at_least):
        why = f" ({agreement.kappa.because})" if agreement.kappa.because else ""
        extent = f"as far as --at-least {at_least:g}{why}"
        say(f"{agreement.metric} is not shown to agree with people {extent}: do not decide by it")
        raise typer.Exit(1)


def rank(
    ref: options.Sweep,
    comparisons: Annotated[
        Path,
        typer.Option("--comparisons", metavar="FILE", help="Comparisons, CSV or .jsonl; a judge's replies are added."),
    ],
    rater: Annotated[
        str | None, typer.Option("--rater", help="The rater whose comparisons count \\[default: all].")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Compare missing pairs with this model. Needs --field.")
    ] = None,
    field: Annotated[str | None, typer.Option("--field", help="The key of the final state to compare.")] = None,
    criteria: Annotated[str, typer.Option("--criteria", help="Description of a good answer.")] = CRITERIA,
    provider: Annotated[JudgeProvider, typer.Option("--provider", help="The protocol.")] = JudgeProvider.openai,
    url: Annotated[str | None, typer.Option("--url", help="URL of another server with this protocol.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="VARIABLE", help="The environment variable that holds the key.")
    ] = None,
    most: Annotated[int, typer.Option("--most", metavar="N", help="Maximum number of calls.")] = MOST_CALLS,
    at_once: Annotated[int, typer.Option("--at-once", metavar="N", help="Calls at a time.")] = CALLS_AT_ONCE,
    per_minute: Annotated[
        float | None, typer.Option("--per-minute", metavar="N", help="Requests a minute.", min=1 / 60)
    ] = None,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Rank rows by comparisons of two at a time.

    With --model a judge is asked, in both orders, about the most informative pairs, until the best row is clear.

    See also: `wtb judge check` compares scores with human labels.

    Example: wtb judge rank nightly --comparisons pairs.jsonl --model gpt-4o-mini --field answer
    """
    context = open_context(db)
    judge = None
    if model is not None and field is not None:
        from wtb.integrations.judge import prefer
        from wtb.integrations.judge_replies import Endpoint  # what takes longer than the help should

        endpoint = Endpoint(provider.value, url, key)
        question = json.dumps([criteria, asdict(endpoint)])
        judge = ranking.Asking(
            prefer(model, criteria, endpoint, per_minute=per_minute), field, model, question, most, at_once
        )
    elif model is not None:
        raise InputError("--model compares a key of the final state; expected --field with it")
    elif field is not None:
        raise InputError("--field is given without --model; expected both, or neither")
    ranked = ranking.rank(context, ref, comparisons=comparisons, rater=rater, asking=judge)
    put_as(asdict(ranked), text.ranking(ranked, width(), in_color(form.output)), form)


JUDGE = {"check": check, "rank": rank}


_Give = Callable[["LabelItem", float | None], object]
_Metric = Annotated[
    str | None, typer.Option("--metric", help="The scores that they label \\[default: those that decide].")
]
_File = Annotated[Path, typer.Argument(metavar="FILE", help="The file, CSV or .jsonl.")]


@frozen
class _Drawn:
    """Which answers a person is asked to label; the fields are arguments of `draw_labels`."""

    rater: Annotated[str | None, typer.Option("--rater", help="The rater \\[default: you].")] = None
    metric: _Metric = None
    field: Annotated[
        str | None, typer.Option("--field", help="The labelled key of the final state \\[default: the judge's].")
    ] = None
    cases: Annotated[int, typer.Option("--cases", help="Number of cases to draw.")] = CASES_DRAWN
    again: Annotated[bool, typer.Option("--again", help="Ask for what other raters disagree about.")] = False


_DEFAULT = _Drawn()


def draw(
    ref: options.Sweep, drawn: _Drawn = _DEFAULT, db: options.Db = None, form: options.Form = options.TABLE
) -> None:
    """Show the answers to label, drawn at random and without their rows.

    It stores nothing: a rater sees the same answers until they are labelled.

    See also: `wtb label answer` asks for their labels.

    Example: wtb label draw nightly --rater ana --format json
    """
    context = open_context(db)
    queue = labelling.draw_labels(context, ref, **vars(drawn))
    item_texts = [text.item(label_item, place, len(queue.items)) for place, label_item in enumerate(queue.items, 1)]
    put_as(asdict(queue), "\n".join([text.rubric(queue), *item_texts, ""]), form)


def answer(ref: options.Sweep, drawn: _Drawn = _DEFAULT, db: options.Db = None) -> None:
    """Label answers that were drawn at random, or remove labels.

    It shows them without their rows. Type a label and Enter; s skips, b removes the last label, ? shows the rubric, q
    ends. Each label is stored at once, and you can continue later.

    See also: `wtb judge check` compares a judge with the labels; `wtb serve` has a page for labelling.

    Example: wtb label answer nightly --rater ana
    """
    context = open_context(db)
    queue = labelling.draw_labels(context, ref, **vars(drawn))

    def give(label_item: LabelItem, label: float | None) -> None:
        labelling.give_label(context, queue.sweep, label_item.case, label_item.id, label, **vars(drawn))

    labelled = _ask(queue, give)
    put(f"{plural(labelled, 'answer')} labelled, {len(queue.items) - labelled} left")


def import_(
    ref: options.Sweep,
    labels: _File,
    metric: _Metric = None,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Import labels of a sweep from a file.

    Example: wtb label import nightly labels.csv --metric helpful
    """
    read = labelling.import_labels(open_context(db), ref, labels=labels, metric=metric)
    put_as(asdict(read), f"{plural(read.labels, 'label')} for {read.metric} from {labels}\n", form)


def export(
    ref: options.Sweep, file: _File, metric: _Metric = None, db: options.Db = None, form: options.Form = options.TABLE
) -> None:
    """Export the labels of a sweep.

    Example: wtb label export nightly labels.csv
    """
    labels = labelling.list_labels(open_context(db), ref, metric=metric)
    if len({label.metric for label in labels}) > 1:
        raise InputError("there are labels for several metrics; expected --metric with one of them")
    label_files.write_labels(file, [label_files.line_of(label) for label in labels])
    put_as({"labels": len(labels)}, f"{plural(len(labels), 'label')} written to {file}\n", form)


LABEL = {"draw": draw, "answer": answer, "import": import_, "export": export}


def _ask(queue: LabelQueue, give: _Give) -> int:
    """Ask for each in turn. Returns how many answers were labelled."""
    labelled: list[int] = []  # places of what was labelled
    place, shown_place = 0, -1
    say(text.rubric(queue))
    while place < len(queue.items):
        label_item = queue.items[place]
        if shown_place != place:
            say(text.item(label_item, place + 1, len(queue.items)))
            shown_place = place
        typed = sys.stdin.readline()
        word = typed.strip()
        if not typed or word == "q":
            break
        if word == "b" and labelled:
            place = labelled.pop()
            # Each label is stored at once, so taking it back removes it from the database.
            give(queue.items[place], None)
        elif word == "s":
            place += 1
        elif (problem := _problem(word, queue)) is None:
            give(label_item, float(word))
            labelled.append(place)
            place += 1
        else:
            say(text.rubric(queue) if word == "?" else problem)
    return len(labelled)


def _problem(word: str, queue: LabelQueue) -> str | None:
    """Return the problem with a label that somebody typed; None if it is valid."""
    try:
        label = float(word)
    except ValueError:
        label = math.nan
    wrong = labelling.problem_of(label, [float(level) for level in queue.rubric], queue.ends)
    return wrong and f"{word!r:.50} is no label; {wrong}, or s, b, ? or q"
