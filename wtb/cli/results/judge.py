"""Commands on judges: judge check, judge rank."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_context, say, width
from wtb.cli.output import in_color, put_as
from wtb.core.errors import InputError
from wtb.core.scoring.judgement import CALLS_AT_ONCE, MOST_CALLS
from wtb.display.text import judges
from wtb.operations.results import asking, judging, ranking

CRITERIA = "It answers what was asked: correct, complete and to the point."


class JudgeProvider(StrEnum):
    """The protocols of models."""

    openai = "openai"
    anthropic = "anthropic"


class LabelScale(StrEnum):
    """What labels are."""

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
    scale: Annotated[LabelScale, typer.Option("--scale", help="What labels are.")] = LabelScale.ordinal,
    margin: Annotated[
        float | None, typer.Option("--margin", metavar="X", help="Say how many labels an interval of +- X takes.")
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
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Hold the scores of a metric against labels of people.

    Shows how far they agree, what the scores are off by, and what people would say of each row, with an interval.
    With --at-least, it exits with 1 where the lower end of the agreement's interval is below: put it before gates
    on the judge's scores.

    See also: `wtb matrix` shows the scores alone.

    Example: wtb judge check nightly --labels labels.csv --metric helpful
    """
    context = open_context(db)
    if at_least is not None and not -1 <= at_least <= 1:
        raise InputError(f"--at-least is {at_least:g}; expected an agreement from -1 to 1")
    found = judging.check_judge(
        context, ref, labels=labels, metric=metric, scale=scale.value, margin=margin, own=own or ()
    )
    put_as(asdict(found), judges.check(found, width(), in_color(output)), format, output)
    if at_least is not None and (found.kappa.interval is None or found.kappa.interval[0] < at_least):
        why = f" ({found.kappa.because})" if found.kappa.because else ""
        asked = f"as far as --at-least {at_least:g}{why}"
        say(f"{found.metric} is not shown to agree with people {asked}: do not decide by it")
        raise typer.Exit(1)


def rank(
    ref: options.Sweep,
    comparisons: Annotated[
        Path,
        typer.Option("--comparisons", metavar="FILE", help="Comparisons, CSV or .jsonl; a judge's replies are added."),
    ],
    rater: Annotated[str | None, typer.Option("--rater", help="Whose comparisons count \\[default: all].")] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Ask this model what the file does not have. With --field.")
    ] = None,
    field: Annotated[str | None, typer.Option("--field", help="The key of the final state that is compared.")] = None,
    criteria: Annotated[str, typer.Option("--criteria", help="What a good answer is.")] = CRITERIA,
    provider: Annotated[JudgeProvider, typer.Option("--provider", help="The protocol.")] = JudgeProvider.openai,
    url: Annotated[str | None, typer.Option("--url", help="Of another server that speaks it.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="VARIABLE", help="The environment variable that holds the key.")
    ] = None,
    most: Annotated[int, typer.Option("--most", metavar="N", help="At most so many calls.")] = MOST_CALLS,
    at_once: Annotated[int, typer.Option("--at-once", metavar="N", help="Calls at a time.")] = CALLS_AT_ONCE,
    per_minute: Annotated[
        float | None, typer.Option("--per-minute", metavar="N", help="Requests a minute.", min=1 / 60)
    ] = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Rank rows by comparisons of two at a time.

    With --model a judge is asked, in both orders, about the pairs that tell most, until the best row is known.

    See also: `wtb judge check` holds scores against labels of people.

    Example: wtb judge rank nightly --comparisons pairs.jsonl --model gpt-4o-mini --field answer
    """
    context = open_context(db)
    judge = None
    if model is not None and field is not None:
        from wtb.integrations.judges.asking import Endpoint  # what takes longer than the help should
        from wtb.integrations.judges.pairs import prefer

        endpoint = Endpoint(provider.value, url, key)
        question = json.dumps([criteria, asdict(endpoint)])
        judge = asking.Asking(
            prefer(model, criteria, endpoint, per_minute=per_minute), field, model, question, most, at_once
        )
    elif model is not None:
        raise InputError("--model compares a key of the final state; expected --field with it")
    elif field is not None:
        raise InputError("--field is what a judge compares; expected --model with it, or neither")
    found = ranking.rank(context, ref, comparisons=comparisons, rater=rater, asking=judge)
    put_as(asdict(found), judges.ranking(found, width(), in_color(output)), format, output)


JUDGE = {"check": check, "rank": rank}
