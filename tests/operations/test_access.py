"""Users, teams and roles: permissions follow from the roles of a user and the user's teams."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.support.prose import sentence
from wtb.core.errors import ConflictError, InputError, NotFound
from wtb.core.roles import PERMISSIONS, Permission, Role
from wtb.features.access.audit import list_audit
from wtb.features.access.operations import (
    change_team,
    create_team,
    create_token,
    create_user,
    grant_access,
    list_access,
    list_teams,
    list_users,
    remove_team,
    remove_user,
    revoke_access,
)
from wtb.hosting.api.identities import Identities
from wtb.operations.context import Context
from wtb.operations.identity import Identity, Method, allowed, identity_of_user
from wtb.operations.projects import create_project
from wtb.operations.registry import OPERATIONS
from wtb.operations.sessions import create_session
from wtb.store.database import Database


@pytest.fixture
def context(database: Database) -> Context:
    root = Context(database, by="root")
    for name in ("ann", "bob"):
        create_user(root, name)
    create_team(root, "core")
    for name in ("search", "ranking"):
        create_project(root, name)
    return root


def identity(context: Context, user: str = "ann") -> Identity:
    cookie_identity = identity_of_user(context.database, user, Method.cookie)
    assert cookie_identity is not None
    return cookie_identity


def test_roles_of_a_user_and_of_their_teams_add_up(context: Context) -> None:
    assert identity(context).may == {}
    grant_access(context, "runner", user="ann", project="search")
    assert identity(context).may == {scope: {"search"} for scope in ("read", "submit", "steer")}
    grant_access(context, "approver", team="core", project="ranking")
    change_team(context, "core", add=["ann", "bob"])
    assert identity(context).may["read"] == {"search", "ranking"}
    assert identity(context).may["answer"] == identity(context, "bob").may["answer"] == {"ranking"}
    grant_access(context, "viewer", user="ann")
    assert identity(context).may["read"] is None
    assert identity(context).allows(Permission.read, "made later")
    assert not identity(context).allows(Permission.submit, "ranking")


def test_a_role_takes_the_place_of_the_one_before_until_it_is_removed(context: Context) -> None:
    grant_access(context, "admin", user="ann", project="search")
    grant_access(context, "viewer", user="ann", project="search")
    assert identity(context).may == {"read": {"search"}}
    assert [(grant["user"], grant["role"]) for grant in list_access(context)] == [("ann", "viewer")]
    assert revoke_access(context, user="ann", project="search")["role"] == "viewer"
    assert identity(context).may == {}
    with pytest.raises(NotFound, match="user 'ann' has no role in project 'search'"):
        revoke_access(context, user="ann", project="search")


def test_who_leaves_a_team_leaves_its_roles_and_who_is_removed_all_of_them(context: Context) -> None:
    grant_access(context, "runner", team="core")
    change_team(context, "core", add=["ann", "bob"])
    change_team(context, "core", remove=["bob"])
    assert identity(context, "bob").may == {}
    assert [user["teams"] for user in list_users(context)] == [["core"], []]
    grant_access(context, "viewer", user="ann")
    remove_user(context, "ann")
    assert identity_of_user(context.database, "ann", Method.cookie) is None
    assert [team["members"] for team in list_teams(context)] == [[]]
    assert [grant["team"] for grant in list_access(context)] == ["core"]


def test_a_team_that_is_removed_leaves_no_role_and_its_members_stay(context: Context) -> None:
    grant_access(context, "runner", team="core")
    grant_access(context, "viewer", user="bob")
    change_team(context, "core", add=["ann", "bob"])
    assert remove_team(context, "core")["members"] == ["ann", "bob"]
    assert list_teams(context) == []
    assert [grant["user"] for grant in list_access(context)] == ["bob"]
    assert identity(context).may == {}
    assert [user["teams"] for user in list_users(context)] == [[], []]
    with pytest.raises(NotFound, match=sentence("there is no {} {}", "team", "'core'")):
        remove_team(context, "core")


def test_an_admin_of_a_project_gives_roles_in_it_alone(context: Context) -> None:
    grant_access(context, "admin", user="ann", project="search")
    grant_access(context, "viewer", user="bob", project="ranking")
    ann = context.acting_as(identity(context), Permission.administer)
    assert grant_access(ann, "maintainer", user="bob")["project"] == "search", "their only one"
    for elsewhere in ("ranking", "nowhere"):
        with pytest.raises(InputError, match=sentence("which you do not have")):
            grant_access(ann, "viewer", user="bob", project=elsewhere)
        with pytest.raises(NotFound, match=sentence("has no role in {}", "project")):
            revoke_access(ann, user="bob", project=elsewhere)
    assert {grant["project"] for grant in list_access(ann)} == {"search"}
    for name in ("users.create", "teams.change", "garbage.collect", "projects.create"):
        assert OPERATIONS[name].everywhere
        assert sentence("limited to projects") in str(identity(context).refusal(Permission.administer, everywhere=True))


@pytest.mark.parametrize("role", Role)
def test_each_role_may_ask_for_what_its_permissions_say(role: Role) -> None:
    who = Identity("ann", Method.cookie, allowed([("search", role)]))
    for operation in OPERATIONS.values():
        refused = who.refusal(operation.needs, everywhere=operation.everywhere) is not None
        assert refused == (operation.needs not in PERMISSIONS[role] or operation.everywhere)


def test_a_token_of_a_user_is_good_for_what_they_may_do_at_the_time(context: Context) -> None:
    user_token = create_token(context, "laptop", scopes=["read", "administer"], user="ann")["token"]
    bound = create_token(context, "ci", scopes=["read", "submit"], user="ann", project="search")["token"]

    def identify(token: str) -> Identity | None:
        return asyncio.run(Identities(context, "the operator's").find(f"Bearer {token}"))

    def may(token: str) -> dict[str, Any]:
        who = identify(token)
        assert who is not None
        assert who.name == "ann"
        return dict(who.may)

    assert may(user_token) == may(bound) == {}
    grant_access(context, "maintainer", user="ann")
    assert may(user_token) == {"read": None}
    assert may(bound) == {scope: {"search"} for scope in ("read", "submit")}
    remove_user(context, "ann")
    assert identify(user_token) is identify(bound) is None


def test_what_is_done_by_a_token_that_somebody_else_made_names_both(context: Context) -> None:
    create_user(context, "boss")
    for user in ("ann", "boss"):
        grant_access(context, "admin", user=user, project="search")
    identities = Identities(context, "the operator's")

    def acting(token: str) -> Context:
        who = asyncio.run(identities.find(f"Bearer {token}"))
        assert who is not None
        return context.acting_as(who, Permission.administer)

    def by(token: str) -> str:
        return acting(token).by

    of_boss = create_token(context, "boss", scopes=["administer"], user="boss")["token"]
    for_ann = create_token(acting(of_boss), "for-ann", scopes=["administer"], user="ann", project="search")
    assert by(of_boss) == f"boss, by a token that {context.by} made"
    assert by(for_ann["token"]) == "ann, by a token that boss made"
    for_boss = create_token(acting(of_boss), "for-boss", scopes=["administer"], user="boss", project="search")
    assert by(for_boss["token"]) == by(of_boss)
    own = create_token(replace(context, by="ann"), "own", scopes=["administer"], user="ann", project="search")
    assert by(own["token"]) == "ann"
    nobody = create_token(context, "ci", scopes=["administer"])
    assert by(nobody["token"]) == "ci"

    create_session(acting(for_ann["token"]), "made-by-it", project="search")
    (noted,) = [row for row in list_audit(context, by="ann") if row["operation"] == "sessions.create"]
    assert noted["by"] == by(for_ann["token"])
    cookie = asyncio.run(identities.sign_in(acting(for_ann["token"]).identity, "POST", None))
    signed_in = asyncio.run(identities.find_signed_in(cookie))
    assert signed_in is not None
    assert signed_in.attribution == by(for_ann["token"])


def test_an_attribution_fits_whatever_the_names_are() -> None:
    who = Identity("n" * 200, Method.token, {}, user="n" * 200, made_by="m" * 255)
    assert who.attribution is not None
    assert len(who.attribution) <= 200
    assert who.attribution.startswith("n" * 84)


def test_what_is_wrong_with_a_role_is_told(context: Context, subtests: pytest.Subtests) -> None:
    near = sentence("; did you mean '{}'", "viewer"), sentence("; did you mean '{}'", "ann")
    wrong: list[tuple[str, dict[str, str], str]] = [
        ("vewer", {"user": "ann"}, sentence("there is no role {}", "'vewer'") + near[0]),
        ("viewer", {}, sentence("a role needs one holder")),
        ("viewer", {"user": "ann", "team": "core"}, sentence("expected a user or a team")),
        ("viewer", {"user": "amn"}, sentence("there is no user {}", "'amn'") + near[1]),
        ("viewer", {"team": "cote"}, sentence("there is no {} {}", "team", "'cote'")),
        ("viewer", {"user": "ann", "project": "serch"}, sentence("there is no project {}", "'serch'")),
    ]
    for role, arguments, words in wrong:
        with subtests.test(role, **arguments), pytest.raises(InputError, match=words.replace("?", r"\?")):
            grant_access(context, role, **arguments)
    assert list_access(context) == []


def test_names_of_users_and_teams_are_checked_and_given_once(context: Context) -> None:
    for bad in ("", "a b", "a\n", "x" * 201):
        with pytest.raises(InputError):
            create_user(context, bad)
    with pytest.raises(ConflictError, match=sentence("there is a {} {} already", "user", "'ann'")):
        create_user(context, "ann")
    with pytest.raises(ConflictError, match=sentence("there is a {} {} already", "team", "'core'")):
        create_team(context, "core")
    with pytest.raises(NotFound, match=sentence("there is no user {}", "'eve'")):
        create_token(context, "hers", user="eve")
