"""Options and arguments that several commands have: one declaration, so that they mean the same everywhere."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

Db = Annotated[
    str | None,
    typer.Option("--db", metavar="URL", help="Database \\[default: $WTB_DATABASE_URL, else sqlite:///.wtb/wtb.db]."),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        dir_okay=False,
        writable=True,
        callback=lambda path: None if path == Path("-") else path,
        help="Write to this file and not to stdout, which is -.",
    ),
]
Session = Annotated[
    str | None,
    typer.Option("--session", metavar="NAME", help="Session \\[default: the file's, else $WTB_SESSION, else default]."),
]
Broker = Annotated[
    str | None,
    typer.Option("--broker", metavar="URL", help="Broker \\[default: $WTB_BROKER_URL, else that of `wtb up` here]."),
]
Sweep = Annotated[str, typer.Argument(metavar="SWEEP", help="Id, beginning of an id, or name (the newest).")]
Execution = Annotated[
    str, typer.Argument(metavar="EXECUTION", help="Id, beginning of an id, or a workflow (its newest run).")
]
SweepOrExecution = Annotated[
    str,
    typer.Argument(
        metavar="SWEEP|EXECUTION", help="Id, beginning of an id, or name of a sweep or workflow (the newest)."
    ),
]


class Format(StrEnum):
    """Formats of lists and single things."""

    table = "table"
    json = "json"


class ShownFormat(StrEnum):
    """Formats of what `wtb show` shows."""

    table = "table"
    json = "json"
    csv = "csv"


class MatrixFormat(StrEnum):
    """Formats of a matrix."""

    table = "table"
    json = "json"
    csv = "csv"
    md = "md"
    html = "html"
    svg = "svg"


ShowMatrix = Annotated[MatrixFormat, typer.Option("--format", "-f", help="How to show the matrix.")]
ShowCells = Annotated[ShownFormat, typer.Option("--format", "-f", help="How to show it; csv: --cells or --outputs.")]
Show = Annotated[Format, typer.Option("--format", "-f", help="How to show it.")]
SweepFile = Annotated[Path, typer.Argument(metavar="FILE", help="The sweep file, YAML or JSON.")]
Limit = Annotated[int | None, typer.Option("--limit", help="Only the first N cases.")]
Sample = Annotated[int | None, typer.Option("--sample", help="Only N cases, drawn at random with the sweep's seed.")]
Case = Annotated[str | None, typer.Option("--case", help="Only the case with this id.")]
Choices = Annotated[
    list[str] | None,
    typer.Option("--combination", metavar="NODE=VARIANT", help="Only those that choose it; also NODE.PARAMETER=LEVEL."),
]
Where = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="FACTOR=LEVEL", help="Only rows with this level or variant; repeatable."),
]
Within = Annotated[bool, typer.Option("--within", help="Only rows that are shown to be within the margin of the best.")]
Sort = Annotated[
    str | None,
    typer.Option(
        "--sort", metavar="KEY", help="By a metric, cost, latency, number or a factor; cost:desc turns it round."
    ),
]
Final = Annotated[bool, typer.Option("--final", help="Run the cases that 'holdout' keeps for the end.")]
MaxCells = Annotated[int | None, typer.Option("--max-cells", help="Allow more cells than the cap.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
Limits = Annotated[
    list[str] | None,
    typer.Option("--limits", metavar="KEY=VALUE", help="Another limit: usd=5, nodes.answer.usd=1, usd=none."),
]
Concurrency = Annotated[int | None, typer.Option("--concurrency", "-c", help="Node runs at a time.")]
AllowCodeChange = Annotated[
    bool, typer.Option("--allow-code-change", help="Continue although code or tools have changed.")
]
Breakpoints = Annotated[
    list[str] | None,
    typer.Option(
        "--break", metavar="[before|after] NODE [if CONDITION]", help="Pause there; may be given several times."
    ),
]
Until = Annotated[str | None, typer.Option("--until", metavar="NODE", help="Pause after this node.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why; it is kept and shown.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end, where workers run it.")]
Open = Annotated[bool, typer.Option("--open", help="Say the address of its page at the server, and open it.")]
Published = Annotated[bool, typer.Option("--published", help="By what workers publish of it, not by the code here.")]
