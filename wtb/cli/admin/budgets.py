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
from wtb.operations.administration import budgets as operations

if TYPE_CHECKING:
    from wtb.operations.administration.budgets import Budgets

Project = Annotated[str | None, typer.Option("--project", metavar="NAME", help="Of this project.")]
Session = Annotated[str | None, typer.Option("--session", metavar="NAME", help="Of this session.")]
Token = Annotated[
    str | None, typer.Option("--token", metavar="NAME", help="Of this token: of what is submitted with it.")
]
Usd = Annotated[str | None, typer.Option("--usd", metavar="AMOUNT", help="Limit on US dollars in all; none: no limit.")]
Tokens = Annotated[str | None, typer.Option("--tokens", metavar="N", help="Limit on tokens in all; none: no limit.")]
NodeRuns = Annotated[
    str | None,
    typer.Option("--node-runs", metavar="N", help="Limit on node runs in all, not of a session; none: no limit."),
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
    """Give a project, session or token budgets; those that are not named stay.

    Runs under way see it within a second. A sweep's own limits are changed with `wtb resume SWEEP --limits usd=20`.

    Examples: wtb budget set --project search --usd 10 --tokens 2000000
    """
    counts = read_amounts({"tokens": tokens, "node-runs": node_runs}, count_of)
    amounts = {**read_amounts({"usd": usd}, amount_of), **counts}
    limits = {name.replace("-", "_"): amount for name, amount in amounts.items()}
    if not limits:
        raise InputError("nothing to set; give --usd, --tokens or --node-runs (none: no limit)")
    backend = open_backend(db, create=True)
    budgets = backend.call(operations.set_budgets, limits, project=project, session=session, token=token)
    summary = ", ".join(
        f"{kind.replace('_', ' ')} {'no limit' if most is None else f'{most:g}'}" for kind, most in limits.items()
    )
    put(f"budget of {_whose(budgets)}: {summary}")


def clear(project: Project = None, session: Session = None, token: Token = None, db: options.Db = None) -> None:
    """Lift all budgets of a project, session or token.

    What was spent stays known to `wtb costs`.

    Examples: wtb budget clear --project search  |  wtb budget clear --session ann
    """
    lifted = open_backend(db).call(operations.clear_budgets, project=project, session=session, token=token)
    put(f"{_whose(lifted)}: no budgets")


def list_(
    sweep: Annotated[
        str | None,
        typer.Argument(metavar="[SWEEP]", help="Only those that bind this sweep \\[default: all].", show_default=False),
    ] = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """List budgets with what is spent of each, and what attempts that are under way have reserved.

    JSON: {"budgets": [{scope, name, key, node, kind, most, spent, reserved}]}; key is the id of a session or sweep.

    See also: `wtb costs` shows what was spent, and for what.

    Examples: wtb budget list  |  wtb budget list nightly --format json
    """
    nothing = "there are no budgets; `wtb budget set --project NAME --usd 10` makes one"
    found = open_backend(db).call(operations.list_budgets, sweep)
    present_all("budgets", found, costs.budgets, format, output, nothing)


def _whose(budgets: Budgets) -> str:
    names = {"project": budgets.project, "session": budgets.session, "token": budgets.token}
    ((kind, name),) = ((kind, name) for kind, name in names.items() if name is not None)
    return f"{kind} {printable(name)}"


BUDGET = {"set": set_, "list": list_, "clear": clear}
