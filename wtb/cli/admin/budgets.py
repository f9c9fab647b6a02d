"""Commands on budgets: what a project or session may spend, and what is spent of every budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.cli.console import Db, Format, FormatOption, Output, open_database, put, say
from wtb.core.errors import InputError
from wtb.core.texts import printable
from wtb.display.text.costs import budgets as render
from wtb.execution.runtime.budgets import budget_documents
from wtb.store.limits.budgets import set_project
from wtb.store.limits.sessions import change_quota, find_session
from wtb.store.read.queries import find_sweep

if TYPE_CHECKING:
    from wtb.store.database import Database

budget_app = typer.Typer(
    no_args_is_help=True,
    help="Limit what projects and sessions may spend.\n\nSee also: `wtb costs` shows what was spent, and for what.",
)

Project = Annotated[str | None, typer.Option("--project", metavar="NAME", help="Of this project.")]
Session = Annotated[str | None, typer.Option("--session", metavar="NAME", help="Of this session.")]
Usd = Annotated[str | None, typer.Option("--usd", metavar="AMOUNT", help="Most US dollars in all; none: no limit.")]
Tokens = Annotated[str | None, typer.Option("--tokens", metavar="N", help="Most tokens in all; none: no limit.")]
NodeRuns = Annotated[
    str | None, typer.Option("--node-runs", metavar="N", help="Most node runs of a project in all; none: no limit.")
]


def register(app: typer.Typer) -> None:
    budget_app.command("set", epilog="Examples: wtb budget set --project search --usd 10 --tokens 2000000")(set_)
    budget_app.command("list", epilog="Examples: wtb budget list  |  wtb budget list nightly --format json")(list_)
    budget_app.command(epilog="Examples: wtb budget clear --project search  |  wtb budget clear --session ann")(clear)
    app.add_typer(budget_app, name="budget")


def set_(
    project: Project = None,
    session: Session = None,
    usd: Usd = None,
    tokens: Tokens = None,
    node_runs: NodeRuns = None,
    db: Db = None,
) -> None:
    """Give a project or session budgets; those that are not named stay. Runs under way see it within a second.

    A sweep's own limits are changed with `wtb resume SWEEP --limits usd=20`.
    """
    wanted = _amounts(usd, tokens, node_runs)
    if not wanted:
        raise InputError("nothing to set; give --usd, --tokens or --node-runs (none: no limit)")
    database = open_database(db, create=True)
    _change(database, project, session, wanted)
    said = ", ".join(
        f"{kind.replace('_', ' ')} {'no limit' if most is None else f'{most:g}'}" for kind, most in wanted.items()
    )
    put(f"budget of {_whose(project, session)}: {said}")


def clear(project: Project = None, session: Session = None, db: Db = None) -> None:
    """Lift all budgets of a project or session. What was spent stays known to `wtb costs`."""
    kinds = ("usd", "tokens") if session is not None else ("usd", "tokens", "node_runs")
    _change(open_database(db), project, session, dict.fromkeys(kinds))
    put(f"{_whose(project, session)}: no budgets")


def list_(
    sweep: Annotated[
        str | None,
        typer.Argument(metavar="[SWEEP]", help="Only those that bind this sweep \\[default: all].", show_default=False),
    ] = None,
    db: Db = None,
    format: FormatOption = Format.table,
    output: Output = None,
) -> None:
    """List budgets with what is spent of each, and what attempts that are under way have reserved.

    JSON: {"budgets": [{scope, name, key, node, kind, most, spent, reserved}]}; key is the id of a session or sweep.
    """
    from wtb.cli.output import present

    database = open_database(db)
    found = budget_documents(database, None if sweep is None else find_sweep(database, sweep)["id"])
    if found or format is Format.json:
        present({"budgets": found}, render, format, output)
    else:
        say("there are no budgets; `wtb budget set --project NAME --usd 10` makes one")


def _change(database: Database, project: str | None, session: str | None, wanted: dict[str, Any]) -> None:
    if (project is None) == (session is None):
        raise InputError("name one: --project NAME or --session NAME")
    if project is not None:
        _check_project(project)
        set_project(database, project, wanted)
        return
    if "node_runs" in wanted:
        raise InputError(
            "--node-runs: a session has no budget of node runs; `wtb session change NAME --concurrency N` limits how "
            "many it may do at a time"
        )
    change_quota(database, find_session(database, str(session))["id"], wanted)


def _check_project(name: str) -> None:
    """Raises InputError for what a sweep file would refuse, too."""
    if not (0 < len(name.strip()) == len(name) <= 200 and name.isprintable()):
        raise InputError(f"--project {name!r}: expected a name of 1 to 200 printable characters")


def _whose(project: str | None, session: str | None) -> str:
    return f"project {printable(project)}" if project is not None else f"session {printable(str(session))}"


def _amounts(usd: str | None, tokens: str | None, node_runs: str | None) -> dict[str, Any]:
    """Budgets by kind, those that were given; None for `none`. Raises InputError."""
    from wtb.cli.admin.sessions import amount_of, count_of

    wanted: dict[str, Any] = {}
    readers = {"usd": (usd, amount_of), "tokens": (tokens, count_of), "node_runs": (node_runs, count_of)}
    for name, (given, read) in readers.items():
        if given is not None:
            try:
                wanted[name] = None if given.strip().lower() == "none" else read(given)
            except ValueError as error:
                raise InputError(f"--{name.replace('_', '-')} {error}; or none for no limit") from None
    return wanted
