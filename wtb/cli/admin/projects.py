"""Commands on projects: what sessions, sweeps and access belong to."""

from __future__ import annotations

from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, put
from wtb.cli.output import present, present_all
from wtb.core.texts import printable
from wtb.features.access import text as text
from wtb.operations import projects as operations

Name = Annotated[str, typer.Argument(metavar="NAME", help="The project's name.", show_default=False)]


def create(name: Name, db: options.Db = None) -> None:
    """Create a project, a group of sessions, sweeps and tokens.

    A sweep is of the project that its file names as `project`, else of that of its session.

    Examples: wtb admin project create search  |  wtb admin session create ann --project search
    """
    project = open_backend(db, create=True).call(operations.create_project, name)
    put(f"project {printable(project['name'])}: made")


def change(
    name: Name,
    sweeps: Annotated[
        str | None, typer.Option("--sweeps", metavar="AGE", help="Remove sweeps that finished earlier; or never.")
    ] = None,
    keep: Annotated[int | None, typer.Option("--keep", help="... but not the newest N of each name.")] = None,
    clear: Annotated[
        bool, typer.Option("--clear", help="Remove the project's own settings, so the system's policy applies.")
    ] = False,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Set how long finished sweeps of a project are kept.

    It replaces `sweeps` and `keep` of \\[retention] for this project. The scheduler deletes older sweeps every hour, as
    `wtb admin gc` does; pinned sweeps and baselines stay.

    Examples: wtb admin project change search --sweeps 90d --keep 3  |  wtb admin project change search --clear
    """
    changed = open_backend(db).call(operations.change_project, name, sweeps=sweeps, keep=keep, clear=clear)
    present(changed, text.project_table, form)


def list_(db: options.Db = None, form: options.Form = options.TABLE) -> None:
    """List projects with how many sessions and sweeps they have.

    JSON: {"projects": [{name, created_at, created_by, retention, sessions, sweeps}]}.

    Examples: wtb admin project list  |  wtb admin project list --format json
    """
    nothing = "there are no projects; `wtb admin project create NAME` makes one"
    present_all("projects", open_backend(db).call(operations.list_projects), text.projects_table, form, nothing)


def show(name: Name, db: options.Db = None, form: options.Form = options.TABLE) -> None:
    """Show a project: how many sessions and sweeps it has.

    JSON: {name, created_at, created_by, retention, sessions, sweeps}.

    Example: wtb admin project show search
    """
    present(open_backend(db).call(operations.describe_project, name), text.project_table, form)


PROJECT = {"create": create, "change": change, "list": list_, "show": show}
