"""Options and arguments that several commands have: one declaration, so that they mean the same everywhere."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.core.units import parse_duration
from wtb.operations.registry import id_of_command

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
        help="Write to this file; - is stdout.",
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
    typer.Argument(metavar="SWEEP|EXECUTION", help="Id, its beginning, or name of a sweep or workflow (the newest)."),
]


class Format(StrEnum):
    """Formats of lists and single things."""

    table = "table"
    json = "json"


class ShownFormat(StrEnum):
    """Formats of what `wtb show`, `wtb costs` and `wtb series` show."""

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


ShowMatrix = Annotated[MatrixFormat, typer.Option("--format", "-f", help="Output format of the matrix.")]
ShowCells = Annotated[ShownFormat, typer.Option("--format", "-f", help="Output format; csv: --cells or --outputs.")]
Show = Annotated[Format, typer.Option("--format", "-f", help="Output format.")]


@frozen
class Form:
    """The form of a document: JSON or text for people, in a file or on stdout."""

    format: Show = Format.table
    output: Output = None

    @property
    def is_json(self) -> bool:
        """True if the document itself is the output."""
        return self.format is Format.json


@frozen
class MatrixForm:
    """The form of a matrix, in a file or on stdout."""

    format: ShowMatrix = MatrixFormat.table
    output: Output = None


TABLE: Final = Form()
MATRIX_TABLE: Final = MatrixForm()
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
Within = Annotated[bool, typer.Option("--within", help="Only rows shown to be within the margin of the best.")]
Sort = Annotated[
    str | None,
    typer.Option(
        "--sort", metavar="KEY", help="Order by a metric, cost, latency, number or factor; cost:desc is descending."
    ),
]
HeldOut = Annotated[bool, typer.Option("--final", help="Run the cases that 'holdout' reserves for the end.")]
MaxCells = Annotated[int | None, typer.Option("--max-cells", help="Allow more cells than the cap.")]


@frozen
class Part:
    """The cells of a sweep file that a command is for."""

    limit: Limit = None
    sample: Sample = None
    case: Case = None
    choices: Choices = None
    max_cells: MaxCells = None


WHOLE: Final = Part()
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress to stderr.")]
Limits = Annotated[
    list[str] | None,
    typer.Option("--limits", metavar="KEY=VALUE", help="Another limit: usd=5, nodes.answer.usd=1, usd=none."),
]
Concurrency = Annotated[int | None, typer.Option("--concurrency", "-c", help="Node runs at a time.")]
AllowCodeChange = Annotated[
    bool, typer.Option("--allow-code-change", help="Continue even if code or tools have changed.")
]
Breakpoints = Annotated[
    list[str] | None,
    typer.Option("--break", metavar="[before|after] NODE [if CONDITION]", help="Pause there; repeatable."),
]
Until = Annotated[str | None, typer.Option("--until", metavar="NODE", help="Pause after this node.")]
Reason = Annotated[str | None, typer.Option("--reason", help="A reason, which is stored and shown.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end, if workers run it.")]
Open = Annotated[bool, typer.Option("--open", help="Print the address of its page at the server, and open it.")]
Published = Annotated[bool, typer.Option("--published", help="Use the published workflow, not local code.")]


Margin = Annotated[
    list[str] | None,
    typer.Option(
        "--margin", metavar="METRIC=X", help="The smallest loss that matters, in the metric's unit; repeatable."
    ),
]


def time_of(text: str, option: str = "--since") -> datetime:
    """Return when `2d`, `12h` or `30m` ago was, or an ISO date or time, by this machine's clock. Raises InputError."""
    try:
        if text.strip().endswith(("s", "m", "h", "d", "w")):
            return datetime.fromtimestamp(time.time() - parse_duration(text), UTC)
        return datetime.fromisoformat(text.strip()).astimezone()
    # datetime raises the last two for times that the platform cannot represent.
    except (ValueError, OverflowError, OSError):
        raise InputError(f"{option} {text!r}: expected 30m, 12h, 2d, 1w, or a date such as 2026-01-31") from None


def read_margin(texts: list[str] | None) -> dict[str, float]:
    """`--margin METRIC=X`, given any number of times. Raises InputError."""
    margins = {}
    for text in texts or ():
        metric, _, amount = text.rpartition("=")
        try:
            margins[metric] = float(amount)
        except ValueError:
            # NaN fails the comparison below, so that both mistakes have one message.
            margins[metric] = math.nan
        if not metric or not 0 <= margins[metric] < math.inf:
            raise InputError(f"--margin {text!r}: expected METRIC=X with X at least 0, such as ndcg=0.02")
    return margins


def not_through(server: str, command: str) -> InputError:
    """Return why a command is refused where a server is named.

    Args:
        server: Its URL.
        command: The words of the command, without its arguments.
    """
    from wtb.hosting.api.routes import WITHOUT_ROUTE

    why = WITHOUT_ROUTE.get(id_of_command(command.removeprefix("wtb ")) or "")
    return InputError(
        f"this needs the database, and {server} is a server; run it on a machine with the database, or name it "
        f"with --db{'' if why is None else f'; {why}'}"
    )
