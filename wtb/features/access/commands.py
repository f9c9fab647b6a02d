"""Commands on who may do what: users, teams, roles, tokens, and the audit log of what was changed."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, open_context, put, put_json, say
from wtb.cli.options import time_of
from wtb.cli.output import present, present_all, put_as
from wtb.core.documents.access import AccessDocument
from wtb.core.errors import InputError
from wtb.core.texts import plural, printable
from wtb.core.units import parse_duration
from wtb.features.access import audit as audit_log
from wtb.features.access import operations as operations
from wtb.features.access import text as text

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name.", show_default=False)]
User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="Of this user.")]
Team = Annotated[str | None, typer.Option("--team", metavar="NAME", help="All members of this team.")]
Project = Annotated[str | None, typer.Option("--project", metavar="NAME", help="Only this project \\[default: all].")]
Add = Annotated[list[str] | None, typer.Option("--add", metavar="USER", help="A user to add.")]
Remove = Annotated[list[str] | None, typer.Option("--remove", metavar="USER", help="A user to remove.")]


def create_user(name: Name, db: options.Db = None) -> None:
    """Create a user, to whom you can grant roles.

    Examples: wtb admin user create ann@example.com  |  wtb admin access grant runner --user ann@example.com
    --project search
    """
    put(f"user {printable(open_backend(db, create=True).call(operations.create_user, name)['name'])}: made")


def list_users(db: options.Db = None, form: options.Form = options.TABLE) -> None:
    """List users with their teams.

    JSON: {"users": [{name, teams, created_at, created_by}]}.

    Example: wtb admin user list
    """
    nothing = "there are no users; `wtb admin user create NAME` makes one"
    present_all("users", open_backend(db).call(operations.list_users), text.listed_users, form, nothing)


def remove_user(name: Name, db: options.Db = None) -> None:
    """Remove a user with their roles and tokens; what they did stays under their name.

    Example: wtb admin user remove ann@example.com
    """
    put(f"user {printable(open_backend(db).call(operations.remove_user, name)['name'])}: removed")


def create_team(name: Name, db: options.Db = None) -> None:
    """Create a team, whose members have its roles.

    Examples: wtb admin team create core  |  wtb admin team change core --add ann@example.com
    """
    put(f"team {printable(open_backend(db, create=True).call(operations.create_team, name)['name'])}: made")


def list_teams(db: options.Db = None, form: options.Form = options.TABLE) -> None:
    """List teams with their members.

    JSON: {"teams": [{name, members, created_at, created_by}]}.

    Example: wtb admin team list
    """
    nothing = "there are no teams; `wtb admin team create NAME` makes one"
    present_all("teams", open_backend(db).call(operations.list_teams), text.listed_teams, form, nothing)


def change_team(name: Name, add: Add = None, remove: Remove = None, db: options.Db = None) -> None:
    """Add users to a team, and remove others.

    Example: wtb admin team change core --add ann@example.com --remove bob@example.com
    """
    changed = open_backend(db).call(operations.change_team, name, add=add or (), remove=remove or ())
    put(f"team {printable(changed['name'])}: {', '.join(map(printable, changed['members'])) or 'nobody'}")


def remove_team(name: Name, db: options.Db = None) -> None:
    """Remove a team with its roles; its members stay.

    Example: wtb admin team remove core
    """
    put(f"team {printable(open_backend(db).call(operations.remove_team, name)['name'])}: removed")


def grant(
    role: Annotated[
        str, typer.Argument(metavar="ROLE", help="viewer, runner, approver, maintainer or admin.", show_default=False)
    ],
    user: User = None,
    team: Team = None,
    project: Project = None,
    db: options.Db = None,
) -> None:
    """Grant a user or a team a role in a project.

    It replaces their present role in the project. docs/access.md lists the permissions of each role.

    Examples: wtb admin access grant runner --user ann --project search  |  wtb admin access grant admin --team core
    """
    backend = open_backend(db, create=True)
    put(_access_in_words(backend.call(operations.grant_access, role, user=user, team=team, project=project)))


def list_(db: options.Db = None, form: options.Form = options.TABLE) -> None:
    """List roles of users and teams.

    JSON: {"access": [{project, user, team, role, created_at, created_by}]}; a project of null is all of them.

    Example: wtb admin access list
    """
    nothing = "nobody has a role; `wtb admin access grant ROLE --user NAME --project NAME` gives one"
    present_all("access", open_backend(db).call(operations.list_access), text.access_table, form, nothing)


def revoke(user: User = None, team: Team = None, project: Project = None, db: options.Db = None) -> None:
    """Revoke a role in a project.

    Example: wtb admin access revoke --user ann --project search
    """
    revoked = open_backend(db).call(operations.revoke_access, user=user, team=team, project=project)
    put(f"{_access_in_words(revoked)} no more")


def _access_in_words(access: AccessDocument) -> str:
    holder = f"user {access['user']}" if access["user"] is not None else f"team {access['team']}"
    where = "all projects" if access["project"] is None else f"project {access['project']}"
    return printable(f"{holder}: {access['role']} in {where}")


USER = {"create": create_user, "list": list_users, "remove": remove_user}
TEAM = {"create": create_team, "list": list_teams, "change": change_team, "remove": remove_team}
ACCESS = {"grant": grant, "list": list_, "revoke": revoke}


_AMOUNT = re.compile(r"(?P<amount>\d{1,15}(?:\.\d{1,6}(?=usd))?)(?P<kind>usd|tokens|node_runs)")
TokenName = Annotated[
    str, typer.Argument(metavar="NAME", help="The token's name, which events record.", show_default=False)
]


def create_token(
    name: TokenName,
    scopes: Annotated[
        str, typer.Option("--scope", metavar="A,B", help="Its permissions: read, submit, steer, answer, administer.")
    ] = "read",
    project: Annotated[
        str | None,
        typer.Option("--project", metavar="NAME", help="The only project that it gives access to \\[default: all]."),
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="Whose roles bound it, for as long as they have them.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget", metavar="AMOUNT", help="Limit on spending of sweeps submitted with it, such as 20usd."
        ),
    ] = None,
    expires_s: Annotated[
        str | None,
        typer.Option(
            "--expires", metavar="TIME", help="Lifetime, such as 30d \\[default: unlimited].", show_default=False
        ),
    ] = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
) -> None:
    """Create an access token for `wtb serve`, and print it once.

    The database stores only its digest, so a lost token cannot be recovered.

    JSON: {token, name, state, scopes, project, user, created_at, created_by, expires_at, used_at, revoked_at}.

    See also: docs/api.md shows how to send it.

    Examples: wtb admin token create ann --project search  |  wtb admin token create nightly --scope submit
    --budget 20usd
    """
    may = [scope.strip() for scope in scopes.split(",")]
    backend, seconds = open_backend(db, create=True), _seconds(expires_s)
    token = backend.call(
        operations.create_token,
        name,
        scopes=may,
        project=project,
        user=user,
        budget=_amounts(budget),
        expires_s=seconds,
    )
    if format is options.Format.json:
        put_json(token)
        return
    put(token["token"])
    say(f"token {name}: {text.scopes(token)}; copy it now, because it is not shown again")


def list_tokens(db: options.Db = None, form: options.Form = options.TABLE) -> None:
    """List access tokens with their permissions and last use.

    JSON: {"tokens": [{name, state, scopes, project, user, created_at, created_by, expires_at, used_at, revoked_at}]}.

    Examples: wtb admin token list  |  wtb admin token list --format json
    """
    nothing = "there are no tokens; `wtb admin token create NAME` makes one"
    tokens = open_backend(db).call(operations.list_tokens)
    present_all("tokens", tokens, text.tokens_table, form, nothing)


def revoke_token(name: TokenName, db: options.Db = None) -> None:
    """Revoke an access token.

    Its open connections end within a second.

    Example: wtb admin token revoke ann
    """
    revoked = open_backend(db).call(operations.revoke_token, name)
    put(f"token {printable(revoked['name'])}: revoked")


def _amounts(budget: str | None) -> dict[str, float] | None:
    """Read amounts by kind: `20usd`, or several with commas. Raises InputError."""
    if budget is None:
        return None
    amounts: dict[str, float] = {}
    for part in budget.split(","):
        match = _AMOUNT.fullmatch(part.strip())
        if match is None:
            detail = f"{part!r:.80} is not an amount; expected one such as 20usd, 2000000tokens or 500node_runs"
            raise InputError(detail, argument="budget")
        amounts[match["kind"]] = float(match["amount"]) if match["kind"] == "usd" else int(match["amount"])
    return amounts


def _seconds(expiry: str | None) -> float | None:
    try:
        return None if expiry is None else parse_duration(expiry)
    except ValueError:
        detail = f"{expiry!r} is not a time from now on; expected one such as 12h or 30d"
        raise InputError(detail, argument="expires_s") from None


TOKEN = {"create": create_token, "list": list_tokens, "revoke": revoke_token}


def list_audit(
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Only changes by this user.")] = None,
    command: Annotated[
        str | None, typer.Option("--command", metavar="ID", help="Only this operation, such as tokens.create.")
    ] = None,
    token: Annotated[str | None, typer.Option("--token", metavar="NAME", help="Only changes by this token.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="Only newer: 30m, 12h, 2d, or an ISO date.")
    ] = None,
    before: Annotated[
        int | None, typer.Option("--before", metavar="NUMBER", help="Read on after the last number seen.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Maximum number.")] = 100,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """List changes in the audit log, newest first.

    Lists the address, access token, arguments and outcome of each. Passwords, access tokens and values of states are
    left out.

    JSON: {"audit": [{number, at, by, via, address, token, operation, arguments, outcome, result, error, ended_at}]}.

    Examples: wtb admin audit list --since 1d  |  wtb admin audit list --by ann --command sweeps.cancel --format json
    """
    after = None if since is None else time_of(since)
    rows = open_backend(db).call(
        audit_log.list_audit, by=by, command=command, token=token, since=after, before=before, limit=limit
    )
    present_all("audit", rows, text.audit_table, form, "nothing was changed")


def verify_audit(
    heads: Annotated[
        list[str] | None,
        typer.Option("--head", metavar="NUMBER:HASH", help="A head that `wtb admin audit head` printed; repeatable."),
    ] = None,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Check that no row of the audit log was changed, removed or moved.

    With a head that was kept elsewhere it is also checked that the log was not cut off or written anew before it. The
    exit code is 1 if something is wrong.

    JSON: {ok, rows, first, head, checked_heads, pruned_heads, pruned, problems}.

    Examples: wtb admin audit verify --head "$(cat head)"  |  wtb admin audit verify --format json
    """
    verification = open_backend(db).call(audit_log.verify_audit, heads or ())
    present(verification, text.verification, form)
    if not verification["ok"]:
        raise typer.Exit(1)


def print_head(db: options.Db = None, format: options.Show = options.Format.table) -> None:
    """Print the head of the audit log, its number and hash, to store elsewhere.

    With it you can prove later that no earlier row was changed.

    JSON: {number, hash, head}.

    Example: wtb admin audit head > head
    """
    log_head = open_backend(db).call(audit_log.audit_head)
    put_as(log_head, log_head["head"], options.Form(format))


def prune_audit(
    before: Annotated[
        str, typer.Option("--before", metavar="WHEN", help="Remove rows older than 365d, or than an ISO date.")
    ],
    db: options.Db = None,
) -> None:
    """Remove the oldest rows of the audit log; the log records up to which row.

    `wtb admin audit verify` distinguishes pruned rows from missing ones.

    Example: wtb admin audit prune --before 365d
    """
    pruned = audit_log.prune_audit(open_context(db), time_of(before, "--before"))
    if pruned["upto"] is None:
        say("no row is so old")
        return
    put(f"removed {plural(pruned['rows'], 'row')}, up to {pruned['upto']}")


AUDIT = {"list": list_audit, "verify": verify_audit, "head": print_head, "prune": prune_audit}
