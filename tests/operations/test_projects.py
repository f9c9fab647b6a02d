"""Projects: a user of one project cannot detect anything of another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.support import tenants
from tests.support.bench import in_memory, make_bench
from tests.support.prose import sentence
from tests.support.tenants import NOTHING, Call, Tenant, limited_to
from wtb import start
from wtb.core.errors import ConflictError, InputError, NotFound
from wtb.core.ids import DEFAULT_PROJECT
from wtb.features.access.operations import create_token
from wtb.operations.budgets import list_budgets
from wtb.operations.context import Context
from wtb.operations.identity import Identity, Method
from wtb.operations.projects import create_project, describe_project, list_projects
from wtb.operations.registry import OPERATIONS, Permission
from wtb.operations.sessions import create_session, describe_session, list_sessions
from wtb.store.access.sessions import check_open, named_session
from wtb.store.database import DEFAULT_SESSION, Database
from wtb.store.read import queries
from wtb.store.tables.schema import values
from wtb.store.transactions import Scope


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tenants")


@pytest.fixture(scope="module")
def alpha(folder: Path) -> Iterator[Tenant]:
    database = in_memory()
    yield Tenant(Context(database, by="ann", files=folder), folder, "quokka")
    database.close()


@pytest.fixture(scope="module")
def beta(alpha: Tenant, folder: Path) -> Tenant:
    return Tenant(alpha.context, folder, "zebras")


@pytest.fixture
def context() -> Iterator[Context]:
    database = in_memory()
    yield Context(database, by="ann")
    database.close()


def as_beta(alpha: Tenant, operation: str) -> Context:
    return alpha.context.acting_as(limited_to("zebras"), OPERATIONS[operation].needs)


def test_what_belongs_to_another_project_is_as_if_it_did_not_exist(alpha: Tenant, beta: Tenant, folder: Path) -> None:
    before = tenants.rows_of(alpha.context.database)
    calls = tenants.calls()
    assert len(calls) > 100
    for call in calls:
        context = as_beta(alpha, call.name)
        foreign = call.outcome(context, beta.names, alpha.names[call.kind], folder)
        nothing = call.outcome(context, beta.names, NOTHING, folder)
        assert foreign == nothing, call
    assert tenants.rows_of(alpha.context.database) == before


def test_a_digest_alone_gives_no_value(alpha: Tenant, folder: Path) -> None:
    """Values and files are stored once for all projects: not even the owner of one reads it by its digest."""
    with alpha.context.database.read() as connection:
        digest = connection.scalars(sa.select(values.c.digest)).first()
    assert digest is not None
    calls = [*tenants.calls(), Call("files.read", "path", "digest"), Call("cases.erase", "case", "digest")]
    for call in calls:
        context = alpha.context.acting_as(limited_to("quokka"), OPERATIONS[call.name].needs)
        outcome, nothing = (call.outcome(context, alpha.names, target, folder) for target in (digest, NOTHING))
        assert outcome == nothing, call


def test_lists_and_sums_are_of_what_belongs_to_the_project(alpha: Tenant, beta: Tenant) -> None:
    start(
        tenants.plain(), {"x": 1}, db=beta.context, create_only=True, sweep="zebras.ru", session=beta.names["session"]
    )
    names = tenants.lists()
    assert {
        "sweeps.list",
        "questions.list",
        "costs.show",
        "sessions.list",
        "schedules.list",
        "budgets.list",
        "tokens.list",
    } <= set(names)
    for name in names:
        listing = OPERATIONS[name].function(as_beta(alpha, name))
        text = str(listing.look() if name == "sweeps.watch" else listing)
        assert not [own_name for own_name in alpha.names.values() if own_name in text], (name, text)
        if name not in ("costs.show", "sweeps.watch", "workflows.list"):  # code is of no project
            assert "zebras" in text, name


def test_a_token_is_not_made_for_more_than_its_maker_may_do(context: Context) -> None:
    create_project(context, "alpha")
    may = {Permission.administer: frozenset({"beta"}), Permission.read: frozenset({"beta"})}
    create_project(context, "beta")
    beta = context.acting_as(Identity("bob", Method.token, may), Permission.administer)
    assert create_token(beta, "mine")["project"] == "beta", "the only project of its maker"
    with pytest.raises(InputError, match=sentence("would exceed your own permissions")):
        create_token(beta, "more", scopes=["submit"])
    for elsewhere in ("alpha", NOTHING):
        with pytest.raises(InputError, match=r"a token with permission read there would exceed your own permissions"):
            create_token(beta, "other", project=elsewhere)


def test_projects_are_made_listed_and_shown(context: Context) -> None:
    assert [project["name"] for project in list_projects(context)] == [DEFAULT_PROJECT]
    project = create_project(context, "search")
    assert (project["created_by"], project["sessions"], project["sweeps"]) == ("ann", 0, 0)
    with pytest.raises(ConflictError, match=sentence("there is a project {} already", "'search'")):
        create_project(context, "search")
    create_session(context, "ann", project="search")
    assert describe_project(context, "search")["sessions"] == 1
    assert describe_session(context, "ann")["session"]["project"] == "search"
    with pytest.raises(
        NotFound, match=sentence("there is no project {}", "'serch'") + sentence("; did you mean '{}'", "search")
    ):
        create_session(context, "bob", project="serch")
    for bad in ("", " a", "a\n", "x" * 201):
        with pytest.raises(InputError):
            create_project(context, bad)


def test_a_sweep_is_of_the_project_of_its_session(context: Context, tmp_path: Path) -> None:
    create_project(context, "search")
    create_session(context, "ann", project="search")
    sweep = make_bench(context.database, tmp_path, tenants.asking(), session="ann")
    assert sweep.row.project == "search"
    with pytest.raises(
        InputError, match=sentence("the sweep is of project {}, and its session of project {}", "'other'", "'search'")
    ):
        make_bench(context.database, tmp_path, tenants.asking(), session="ann", project="other")
    assert make_bench(context.database, tmp_path, tenants.asking()).row.project == DEFAULT_PROJECT
    named = make_bench(context.database, tmp_path, tenants.asking(), project="new")
    assert named.row.project == "new", "sessions of the default project are open to all"
    assert "new" in [project["name"] for project in list_projects(context)]


def test_whoever_is_limited_to_a_project_submits_to_it_alone(alpha: Tenant, beta: Tenant, tmp_path: Path) -> None:
    database = as_beta(alpha, "sweeps.submit").database
    for session in ("quokka.se", NOTHING):
        with pytest.raises(NotFound, match=f"there is no session '{session}'"):
            make_bench(database, tmp_path, tenants.asking(), session=session)
    sweep = make_bench(database, tmp_path, tenants.asking(), session="zebras.se")
    assert sweep.row.project == "zebras"


def test_whoever_is_limited_to_a_project_needs_to_name_no_session(context: Context, tmp_path: Path) -> None:
    for name in ("search", "Ads & more", "third"):
        create_project(context, name)
    session_by_project = {}
    for project in ("search", "Ads & more"):
        database = context.database.within(Scope(frozenset({project})))
        check_open(database, DEFAULT_SESSION)
        assert named_session(database) == DEFAULT_SESSION, "there is none yet"
        benches = [make_bench(database, tmp_path, tenants.asking()) for _ in range(2)]
        assert {bench.row.project for bench in benches} == {project}
        (session,) = {bench.row.session for bench in benches}
        assert named_session(database) == session
        session_by_project[project] = session
    assert session_by_project["search"] == "search"
    assert re.fullmatch(r"project-[0-9a-f]{12}", session_by_project["Ads & more"])
    assert make_bench(context.database, tmp_path, tenants.asking()).row.session == DEFAULT_SESSION


def test_a_name_that_is_taken_elsewhere_is_not_that_of_the_session(context: Context, tmp_path: Path) -> None:
    create_project(context, "search")
    create_session(context, "search")
    database = context.database.within(Scope(frozenset({"search"})))
    sweep = make_bench(database, tmp_path, tenants.asking())
    assert sweep.row.project == "search"
    assert re.fullmatch(r"search-[0-9a-f]{12}", sweep.row.session)


def test_whoever_may_submit_in_several_projects_names_one(context: Context, tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        create_project(context, name)
    database = context.database.within(Scope(frozenset({"one", "two"})))
    with pytest.raises(
        InputError, match=r"you may submit in several projects \(one, two\); name one of them as `project`"
    ):
        make_bench(database, tmp_path, tenants.asking())
    assert make_bench(database, tmp_path, tenants.asking(), project="two").row.project == "two"
    with pytest.raises(NotFound, match=sentence("there is no project {}", "'three'")):
        make_bench(database, tmp_path, tenants.asking(), project="three")


def test_what_is_submitted_with_a_token_is_bound_by_its_budget(context: Context, tmp_path: Path) -> None:
    create_project(context, "search")
    create_session(context, "ann", project="search")
    token = create_token(context, "nightly", scopes=["submit"], project="search", budget={"node_runs": 1})
    may = {Permission.submit: frozenset({"search"})}
    limited = context.acting_as(Identity("nightly", Method.token, may, token["name"]), Permission.submit)
    bench = make_bench(limited.database, tmp_path, tenants.asking(), session="ann")
    bench.run()
    assert (bench.row.status, bench.row.token) == ("paused", "nightly")
    assert sentence("budget of {} {} reached", "token", "'nightly'") in str(bench.row.reason)
    (budget,) = list_budgets(context)
    assert (budget["scope"], budget["name"], budget["spent"]) == ("token", "nightly", 1)


def test_sessions_of_others_are_not_counted(alpha: Tenant, beta: Tenant) -> None:
    assert [session["name"] for session in list_sessions(as_beta(alpha, "sessions.list"))] == ["zebras.se"]
    assert len(list_sessions(alpha.context)) == 3


def test_a_database_limited_to_nothing_has_nothing(alpha: Tenant, beta: Tenant) -> None:
    nobody = Identity("eve", Method.token, {Permission.read: frozenset()})
    database: Database = alpha.context.acting_as(nobody, Permission.read).database
    assert queries.list_sweeps(database) == []
