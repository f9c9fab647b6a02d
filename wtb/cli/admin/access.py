"""Commands on who may do what: users, teams, and their roles in projects."""

from __future__ import annotations

from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, put
from wtb.cli.output import present_all
from wtb.core.documents.administration import AccessDocument
from wtb.core.texts import printable
from wtb.display.text.admin import access as text
from wtb.operations.administration import access as operations
from wtb.operations.administration import users

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name.", show_default=False)]
User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="Of this user.")]
Team = Annotated[str | None, typer.Option("--team", metavar="NAME", help="Of this team: of all its members.")]
Project = Annotated[str | None, typer.Option("--project", metavar="NAME", help="In this project; else in all.")]
Add = Annotated[list[str] | None, typer.Option("--add", metavar="USER", help="Who is in it from now on.")]
Remove = Annotated[list[str] | None, typer.Option("--remove", metavar="USER", help="Who is not any more.")]


def create_user(name: Name, db: options.Db = None) -> None:
    """Make a user, who may be given roles.

    Examples: wtb user create ann@example.com  |  wtb access grant runner --user ann@example.com --project search
    """
    put(f"user {printable(open_backend(db, create=True).call(users.create_user, name)['name'])}: made")


def list_users(
    db: options.Db = None, format: options.Show = options.Format.table, output: options.Output = None
) -> None:
    """List users with their teams.

    JSON: {"users": [{name, teams, created_at, created_by}]}.

    Example: wtb user list
    """
    nothing = "there are no users; `wtb user create NAME` makes one"
    present_all("users", open_backend(db).call(users.list_users), text.listed_users, format, output, nothing)


def remove_user(name: Name, db: options.Db = None) -> None:
    """Remove a user with their roles and tokens; what they did stays under their name.

    Example: wtb user remove ann@example.com
    """
    put(f"user {printable(open_backend(db).call(users.remove_user, name)['name'])}: removed")


def create_team(name: Name, db: options.Db = None) -> None:
    """Make a team, whose members have its roles.

    Examples: wtb team create core  |  wtb team change core --add ann@example.com
    """
    put(f"team {printable(open_backend(db, create=True).call(users.create_team, name)['name'])}: made")


def list_teams(
    db: options.Db = None, format: options.Show = options.Format.table, output: options.Output = None
) -> None:
    """List teams with their members.

    JSON: {"teams": [{name, members, created_at, created_by}]}.

    Example: wtb team list
    """
    nothing = "there are no teams; `wtb team create NAME` makes one"
    present_all("teams", open_backend(db).call(users.list_teams), text.listed_teams, format, output, nothing)


def change_team(name: Name, add: Add = None, remove: Remove = None, db: options.Db = None) -> None:
    """Add users to a team, and remove others.

    Example: wtb team change core --add ann@example.com --remove bob@example.com
    """
    changed = open_backend(db).call(users.change_team, name, add=add or (), remove=remove or ())
    put(f"team {printable(changed['name'])}: {', '.join(map(printable, changed['members'])) or 'nobody'}")


def remove_team(name: Name, db: options.Db = None) -> None:
    """Remove a team with its roles; its members stay.

    Example: wtb team remove core
    """
    put(f"team {printable(open_backend(db).call(users.remove_team, name)['name'])}: removed")


def grant(
    role: Annotated[
        str,
        typer.Argument(metavar="ROLE", help="viewer, runner, approver, maintainer or admin.", show_default=False),
    ],
    user: User = None,
    team: Team = None,
    project: Project = None,
    db: options.Db = None,
) -> None:
    """Give a user or a team a role in a project.

    It takes the place of the one that they have there. What a role allows is a table of docs/access.md.

    Examples: wtb access grant runner --user ann --project search  |  wtb access grant admin --team core
    """
    backend = open_backend(db, create=True)
    put(_said(backend.call(operations.grant_access, role, user=user, team=team, project=project)))


def list_(db: options.Db = None, format: options.Show = options.Format.table, output: options.Output = None) -> None:
    """List who has which role.

    JSON: {"access": [{project, user, team, role, created_at, created_by}]}; a project of null is all of them.

    Example: wtb access list
    """
    nothing = "nobody has a role; `wtb access grant ROLE --user NAME --project NAME` gives one"
    present_all("access", open_backend(db).call(operations.list_access), text.listed, format, output, nothing)


def revoke(user: User = None, team: Team = None, project: Project = None, db: options.Db = None) -> None:
    """Take back a role in a project.

    Example: wtb access revoke --user ann --project search
    """
    taken = open_backend(db).call(operations.revoke_access, user=user, team=team, project=project)
    put(f"{_said(taken)} no more")


def _said(access: AccessDocument) -> str:
    holder = f"user {access['user']}" if access["user"] is not None else f"team {access['team']}"
    where = "all projects" if access["project"] is None else f"project {access['project']}"
    return printable(f"{holder}: {access['role']} in {where}")


USER = {"create": create_user, "list": list_users, "remove": remove_user}
TEAM = {"create": create_team, "list": list_teams, "change": change_team, "remove": remove_team}
ACCESS = {"grant": grant, "list": list_, "revoke": revoke}
