"""Commands on judges: judge check."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_context, width
from wtb.cli.output import in_color, put_as
from wtb.display.text import judges
from wtb.operations.results import judging


class LabelScale(StrEnum):
    """What labels are."""

    nominal = "nominal"
    ordinal = "ordinal"
    interval = "interval"


def check(
    ref: options.Sweep,
    labels: Annotated[Path, typer.Option("--labels", metavar="FILE", help="Labels of people, CSV or .jsonl.")],
    metric: Annotated[
        str | None, typer.Option("--metric", help="The judge's scores \\[default: those that decide].")
    ] = None,
    scale: Annotated[LabelScale, typer.Option("--scale", help="What labels are.")] = LabelScale.ordinal,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Hold the scores of a metric against labels of people.

    Shows how far they agree, what the scores are off by, and what people would say of each row, with an interval.

    See also: `wtb matrix` shows the scores alone.

    Example: wtb judge check nightly --labels labels.csv --metric helpful
    """
    context = open_context(db)
    found = judging.check_judge(context, ref, labels=labels, metric=metric, scale=scale.value)
    put_as(asdict(found), judges.check(found, width(), in_color(output)), format, output)


JUDGE = {"check": check}
