"""Commands on projects: what sessions, sweeps and access belong to."""

from __future__ import annotations

from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, put
from wtb.cli.output import present, present_all
from wtb.core.texts import printable
from wtb.display.text.admin import projects as text
from wtb.operations.administration import projects as operations

Name = Annotated[str, typer.Argument(metavar="NAME", help="The project's name.", show_default=False)]


def create(name: Name, db: options.Db = None) -> None:
    """Make a project, which sessions, sweeps and tokens belong to.

    A sweep is of the project that its file names as `project`, else of that of its session.

    Examples: wtb project create search  |  wtb session create ann --project search
    """
    project = open_backend(db, create=True).call(operations.create_project, name)
    put(f"project {printable(project['name'])}: made")


def change(
    name: Name,
    sweeps: Annotated[
        str | None, typer.Option("--sweeps", metavar="AGE", help="Remove sweeps that finished earlier; or never.")
    ] = None,
    keep: Annotated[int | None, typer.Option("--keep", help="... but not the newest N of each name.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Forget what was said before: the policy holds.")] = False,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Say how long finished sweeps of a project are kept.

    It holds in place of what \\[retention] says of `sweeps` and `keep`. The scheduler removes older ones every hour,
    and so does `wtb gc`; what is pinned or a baseline stays.

    Examples: wtb project change search --sweeps 90d --keep 3  |  wtb project change search --clear
    """
    changed = open_backend(db).call(operations.change_project, name, sweeps=sweeps, keep=keep, clear=clear)
    present(changed, text.one, format, output)


def list_(db: options.Db = None, format: options.Show = options.Format.table, output: options.Output = None) -> None:
    """List projects with how many sessions and sweeps they have.

    JSON: {"projects": [{name, created_at, created_by, retention, sessions, sweeps}]}.

    Examples: wtb project list  |  wtb project list --format json
    """
    nothing = "there are no projects; `wtb project create NAME` makes one"
    present_all("projects", open_backend(db).call(operations.list_projects), text.listed, format, output, nothing)


def show(
    name: Name, db: options.Db = None, format: options.Show = options.Format.table, output: options.Output = None
) -> None:
    """Show a project: how many sessions and sweeps it has.

    JSON: {name, created_at, created_by, retention, sessions, sweeps}.

    Example: wtb project show search
    """
    present(open_backend(db).call(operations.describe_project, name), text.one, format, output)


PROJECT = {"create": create, "change": change, "list": list_, "show": show}
