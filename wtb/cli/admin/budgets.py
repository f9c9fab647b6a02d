"""Commands on budgets: what projects, sessions and tokens may spend, and what is spent of every budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.admin.sessions import amount_of, count_of, read_amounts
from wtb.cli.console import open_backend, put
from wtb.cli.output import present_all
from wtb.core.errors import InputError
from wtb.core.texts import printable
from wtb.display.text import costs
from wtb.operations import budgets as operations

if TYPE_CHECKING:
    from wtb.operations.budgets import Budgets

Project = Annotated[str | None, typer.Option("--project", metavar="NAME", help="Of this project.")]
Session = Annotated[str | None, typer.Option("--session", metavar="NAME", help="Of this session.")]
Token = Annotated[str | None, typer.Option("--token", metavar="NAME", help="Everything submitted with this token.")]
Usd = Annotated[str | None, typer.Option("--usd", metavar="AMOUNT", help="Limit on US dollars in all; none: no limit.")]
Tokens = Annotated[str | None, typer.Option("--tokens", metavar="N", help="Limit on tokens in all; none: no limit.")]
NodeRuns = Annotated[
    str | None,
    typer.Option("--node-runs", metavar="N", help="Limit on node runs in total; not for sessions; none: no limit."),
]


def set_(
    project: Project = None,
    session: Session = None,
    token: Token = None,
    usd: Usd = None,
    tokens: Tokens = None,
    node_runs: NodeRuns = None,
    db: options.Db = None,
) -> None:
    """Set budgets of a project, session or token; other budgets stay.

    Runs under way see it within a second. A sweep's own limits are changed with `wtb resume SWEEP --limits usd=20`.

    Examples: wtb admin budget set --project search --usd 10 --tokens 2000000
    """
    counts = read_amounts({"tokens": tokens, "node-runs": node_runs}, count_of)
    amounts = {**read_amounts({"usd": usd}, amount_of), **counts}
    limits = {name.replace("-", "_"): amount for name, amount in amounts.items()}
    if not limits:
        raise InputError("no budget is given; give --usd, --tokens or --node-runs (none: no limit)")
    backend = open_backend(db, create=True)
    budgets = backend.call(operations.set_budgets, limits, project=project, session=session, token=token)
    summary = ", ".join(
        f"{kind.replace('_', ' ')} {'no limit' if limit is None else f'{limit:g}'}" for kind, limit in limits.items()
    )
    put(f"budget of {_whose(budgets)}: {summary}")


def clear(project: Project = None, session: Session = None, token: Token = None, db: options.Db = None) -> None:
    """Remove all budgets of a project, session or token.

    `wtb costs` still counts earlier spending.

    Examples: wtb admin budget clear --project search  |  wtb admin budget clear --session ann
    """
    lifted = open_backend(db).call(operations.clear_budgets, project=project, session=session, token=token)
    put(f"{_whose(lifted)}: no budgets")


def list_(
    sweep: Annotated[
        str | None,
        typer.Argument(metavar="[SWEEP]", help="Only those that bind this sweep \\[default: all].", show_default=False),
    ] = None,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """List budgets with their spending, and the amounts that running attempts have reserved.

    JSON: {"budgets": [{scope, name, key, node, kind, most, spent, reserved}]}; key is the id of a session or sweep.

    See also: `wtb costs` shows costs by node, model or tool.

    Examples: wtb admin budget list  |  wtb admin budget list nightly --format json
    """
    nothing = "there are no budgets; `wtb admin budget set --project NAME --usd 10` makes one"
    budgets = open_backend(db).call(operations.list_budgets, sweep)
    present_all("budgets", budgets, costs.budgets, form, nothing)


def _whose(budgets: Budgets) -> str:
    names = {"project": budgets.project, "session": budgets.session, "token": budgets.token}
    # The operations reject anything but exactly one of the three.
    ((kind, name),) = ((kind, name) for kind, name in names.items() if name is not None)
    return f"{kind} {printable(name)}"


BUDGET = {"set": set_, "list": list_, "clear": clear}
