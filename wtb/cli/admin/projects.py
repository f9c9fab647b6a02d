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
    made = open_backend(db, create=True).call(operations.create_project, name)
    put(f"project {printable(made['name'])}: made")


def list_(db: options.Db = None, format: options.Show = options.Format.table, output: options.Output = None) -> None:
    """List projects with how many sessions and sweeps they have.

    JSON: {"projects": [{name, created_at, created_by, sessions, sweeps}]}.

    Examples: wtb project list  |  wtb project list --format json
    """
    nothing = "there are no projects; `wtb project create NAME` makes one"
    present_all("projects", open_backend(db).call(operations.list_projects), text.listed, format, output, nothing)


def show(
    name: Name, db: options.Db = None, format: options.Show = options.Format.table, output: options.Output = None
) -> None:
    """Show a project: how many sessions and sweeps it has.

    JSON: {name, created_at, created_by, sessions, sweeps}.

    Example: wtb project show search
    """
    present(open_backend(db).call(operations.describe_project, name), text.one, format, output)


PROJECT = {"create": create, "list": list_, "show": show}
