"""Walls between projects in PostgreSQL: no query of the server's role sees rows of another project.

Each test acts as `wtb_server`, on a database that the owner made; Python's own limits on projects are tested with
`tests/operations/test_projects.py`.
"""

from __future__ import annotations

import secrets
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy import make_url

from tests.support import tenants
from tests.support.bench import make_bench
from tests.support.prose import sentence
from tests.support.tenants import Call, Tenant, limited_to
from wtb.core.errors import AccessDenied, NotFound, WTBError
from wtb.features.access.operations import create_token
from wtb.hosting.servers.postgres import connect, create_database, drop_database, find_binaries, role_url
from wtb.operations.context import Context
from wtb.operations.identity import OPERATOR
from wtb.operations.projects import create_project
from wtb.operations.registry import OPERATIONS, Permission
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.tables.schema import metadata
from wtb.store.tables.walls import ALL, OPEN, POLICIES, SERVER, WORKER, projects_of, projects_setting
from wtb.store.transactions import Scope

BETA = Scope(frozenset({"zebras"}))
CALLS = tenants.calls()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("walls")


@pytest.fixture(scope="module")
def alpha(url: str, folder: Path) -> Iterator[Tenant]:
    """A tenant created by the workers' role, for which walls are open."""
    database = Database(role_url(url, WORKER))
    yield Tenant(Context(database, by="ann", files=folder), folder, "quokka")
    database.close()


@pytest.fixture(scope="module")
def beta(alpha: Tenant, folder: Path) -> Tenant:
    return Tenant(alpha.context, folder, "zebras")


@pytest.fixture(scope="module")
def server(url: str, alpha: Tenant, beta: Tenant) -> Iterator[Database]:
    database = Database(role_url(url, SERVER))
    yield database
    database.close()


def like(name: str) -> str:
    """Return a name or id that does not exist and differs in one letter, so that similar names are equally close."""
    return name[:2] + ("b" if name[2] != "b" else "c") + name[3:]


def count(database: Database, table: sa.Table) -> int:
    return database.scalar(sa.select(sa.func.count()).select_from(table)) or 0


def test_every_table_has_a_wall_or_a_reason() -> None:
    assert POLICIES.keys() | OPEN.keys() == set(metadata.tables)
    assert not POLICIES.keys() & OPEN.keys()


def test_no_role_may_do_more_than_it_has_to(url: str) -> None:
    query = "SELECT rolsuper OR rolbypassrls OR rolcreaterole OR rolreplication FROM pg_roles WHERE rolname = %s"
    for role in ("wtb", WORKER, SERVER):
        with connect(role_url(url, role)) as connection:
            assert connection.execute(query, [role]).fetchone() == (False,)
    forced = "SELECT relname FROM pg_class WHERE relrowsecurity AND relforcerowsecurity"
    with connect(url) as connection:
        assert {name for (name,) in connection.execute(forced)} == POLICIES.keys()


@pytest.mark.parametrize("role", [WORKER, SERVER])
@pytest.mark.parametrize("change", ["UPDATE audit SET by = 'nobody'", "DELETE FROM audit", "TRUNCATE audit"])
def test_what_was_noted_is_changed_by_its_owner_alone(url: str, role: str, change: str) -> None:
    with connect(role_url(url, role)) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(change)


def test_a_query_without_any_condition_gives_what_is_of_the_project(alpha: Tenant, server: Database) -> None:
    owner, limited = alpha.context.database, server.within(BETA)
    for name in POLICIES:
        table = metadata.tables[name]
        query = sa.select(table)
        everything, seen = owner.tuples(query), limited.tuples(query)
        assert set(map(repr, seen)) <= set(map(repr, everything))
        assert not [own_id for own_id in alpha.names.values() if any(own_id in repr(row) for row in seen)], name
        if name not in ("projects", "workflows"):  # both have the same graphs, and each its project
            assert len(seen) <= len(everything) // 2, f"the two have as many {name}"
    assert count(limited, metadata.tables["sweeps"]) == 2
    assert count(limited, metadata.tables["node_runs"]) > 0
    assert count(limited, metadata.tables["attempts"]) > 0


def test_a_project_that_is_called_as_all_of_them_are_sees_itself_alone(alpha: Tenant, server: Database) -> None:
    create_project(alpha.context, ALL)
    limited = server.within(Scope(frozenset({ALL})))
    seen = {name: count(limited, metadata.tables[name]) for name in POLICIES}
    assert {name for name, rows in seen.items() if rows} == {"projects"}
    assert seen["projects"] == 1
    assert projects_of(projects_setting(frozenset({ALL}))) == {ALL}


def test_a_transaction_that_does_not_say_for_whom_sees_nothing(url: str, server: Database) -> None:
    with connect(role_url(url, SERVER)) as connection:
        for name in POLICIES:
            assert connection.execute(f"SELECT count(*) FROM {name}").fetchone() == (0,), name
    nobody = server.within(Scope(frozenset()))
    assert [name for name in POLICIES if count(nobody, metadata.tables[name])] == []


def test_what_a_transaction_said_ends_with_it(url: str, alpha: Tenant, beta: Tenant) -> None:
    with connect(role_url(url, SERVER)) as connection:
        with connection.transaction():
            connection.execute("SELECT set_config('wtb.projects', '*', true)")
            assert connection.execute("SELECT count(*) FROM sweeps").fetchone() == (4,)
        assert connection.execute("SELECT count(*) FROM sweeps").fetchone() == (0,)


def test_nothing_elsewhere_can_be_changed_or_made(alpha: Tenant, server: Database) -> None:
    limited, sweeps = server.within(BETA), metadata.tables["sweeps"]
    sweep = alpha.names["sweep"]
    assert limited.execute(sweeps.update().where(sweeps.c.id == sweep).values(name="mine")) == 0
    assert limited.execute(sweeps.delete().where(sweeps.c.id == sweep)) == 0
    projects = metadata.tables["projects"]
    with pytest.raises(sa.exc.ProgrammingError, match="row-level security"):
        limited.execute(projects.insert().values(name="more", created_by="mallory"))
    with pytest.raises(sa.exc.ProgrammingError, match="row-level security"):
        limited.execute(sweeps.update().values(project="quokka"))
    with pytest.raises(sa.exc.ProgrammingError, match="must be owner"):
        limited.execute(sa.text("ALTER TABLE sweeps NO FORCE ROW LEVEL SECURITY"))


def test_operations_of_the_server_answer_and_ask_the_database_alike_whether_something_is_elsewhere_or_nowhere(
    alpha: Tenant, beta: Tenant, server: Database, folder: Path
) -> None:
    statements: list[str] = []

    def note(*event: object) -> None:
        statements.append(str(event[2]))

    def observe(call: Call, target: str) -> tuple[str, list[str]]:
        statements.clear()
        mine = context.acting_as(limited_to("zebras"), OPERATIONS[call.name].needs)
        return call.outcome(mine, beta.names, target, folder), list(statements)

    context = Context(server, files=folder)
    sa.event.listen(server.engine, "before_cursor_execute", note)
    try:
        for call in CALLS:
            name = alpha.names[call.kind]
            assert observe(call, name) == observe(call, like(name)), call
    finally:
        sa.event.remove(server.engine, "before_cursor_execute", note)
    assert len(CALLS) > 200


def test_lists_of_the_server_have_nothing_of_others(
    alpha: Tenant, beta: Tenant, server: Database, folder: Path
) -> None:
    context = Context(server, files=folder)
    for name in tenants.lists():
        listed = OPERATIONS[name].function(context.acting_as(limited_to("zebras"), OPERATIONS[name].needs))
        text = str(listed.look() if name == "sweeps.watch" else listed)
        assert not [foreign for foreign in alpha.names.values() if foreign in text], name


def test_a_budget_holds_for_a_token_of_all_projects_whose_user_is_of_one(
    beta: Tenant, server: Database, folder: Path
) -> None:
    """The wall hides such a token, and its budget, from transactions of the one project."""
    create_token(beta.context, "far", scopes=["steer"], user=beta.called("user"), budget={"usd": 1.0})
    identity = replace(limited_to("zebras"), token="far")
    acting = Context(server, files=folder).acting_as(identity, Permission.steer)
    with pytest.raises(AccessDenied, match=sentence("token {} has a budget", "'far'")):
        OPERATIONS["sweeps.resume"].function(acting, beta.names["sweep"])


def test_even_an_operation_that_forgets_to_ask_finds_nothing_of_others(
    alpha: Tenant, server: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Python's own limits, the walls alone hold."""
    monkeypatch.setattr(queries, "in_scope", lambda *_: ())
    limited = server.within(BETA)
    assert {row.project for row in queries.list_sweeps(limited)} == {"zebras"}
    with pytest.raises(NotFound):
        queries.find_sweep(limited, alpha.names["sweep"])
    with pytest.raises(NotFound):
        queries.find_execution(limited, alpha.names["execution"])


def test_the_server_submits_and_the_operator_sees_all(server: Database, tmp_path: Path) -> None:
    mine = Context(server).acting_as(limited_to("zebras"), Permission.submit).database
    bench = make_bench(mine, tmp_path, tenants.asking(), session="zebras.se")
    assert bench.row.project == "zebras"
    for _ in range(2):  # the first one makes the session of its project
        unnamed = make_bench(mine, tmp_path, tenants.asking())
        assert (unnamed.row.project, unnamed.row.session) == ("zebras", "zebras")
    everything = Context(server).acting_as(OPERATOR, Permission.read).database
    assert {"quokka", "zebras"} <= set(everything.scalars(sa.select(metadata.tables["projects"].c.name)))


def test_a_dump_is_restored_with_its_walls(
    url: str, alpha: Tenant, beta: Tenant, postgres_url: str, tmp_path: Path
) -> None:
    """Restore as the owner, on whom row-level security is forced, too."""
    new = create_database(postgres_url, f"wtb_restored_{secrets.token_hex(4)}")
    folder, file = find_binaries().folder, tmp_path / "dump.sql"
    try:
        if not (folder / "pg_dump").exists():
            pytest.skip("this PostgreSQL comes without pg_dump")
        plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        dump = subprocess.run([folder / "pg_dump", "--enable-row-security", "-f", file, plain], capture_output=True)
        assert dump.returncode == 0, dump.stderr
        target = make_url(new).set(drivername="postgresql").render_as_string(hide_password=False)
        load = [folder / "psql", "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-f", file, target]
        done = subprocess.run(load, capture_output=True)
        assert done.returncode == 0, done.stderr
        restored, server = Database(new), Database(role_url(new, SERVER))
        restored.prepare()  # takes up the log of the server that it was dumped from
        assert count(restored, metadata.tables["cells"]) == count(alpha.context.database, metadata.tables["cells"])
        assert {row.project for row in queries.list_sweeps(server.within(BETA))} == {"zebras"}
        restored.close()
        server.close()
    finally:
        drop_database(postgres_url, str(make_url(new).database))


def test_walls_are_built_again_by_an_upgrade(url: str, server: Database) -> None:
    with connect(url) as connection:
        connection.execute("ALTER TABLE sweeps DISABLE ROW LEVEL SECURITY")
        connection.execute("DROP POLICY server ON cells")
    owner = Database(url)
    owner.upgrade()
    owner.close()
    assert {row.project for row in queries.list_sweeps(server.within(BETA))} == {"zebras"}
    assert count(server.within(BETA), metadata.tables["cells"]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_nobody_can_tell_by_the_time_whether_something_is_elsewhere(
    alpha: Tenant, beta: Tenant, server: Database, folder: Path, call: Call
) -> None:
    """Compare 500 pairs of requests: one for an object of another project, and one for an object that does not exist.

    The median is of the pairs' ratios, because other load of the machine affects both requests of a pair alike.
    """
    context = Context(server, files=folder).acting_as(limited_to("zebras"), OPERATIONS[call.name].needs)
    foreign_id = alpha.names[call.kind]
    took: dict[str, list[int]] = {foreign_id: [], like(foreign_id): []}
    for number in range(520):
        for target in sorted(took, reverse=number % 2 == 0):
            arguments = call.arguments(beta.names, target, folder)
            began = time.perf_counter_ns()
            with suppress(WTBError):
                outcome = OPERATIONS[call.name].function(context, **arguments)
                if isinstance(outcome, Iterator):
                    next(outcome, None)
            took[target].append(time.perf_counter_ns() - began)
    pairs = list(zip(*took.values(), strict=True))[20:]
    assert abs(statistics.median(foreign / nowhere for foreign, nowhere in pairs) - 1) < 0.05


def test_what_is_asked_for_by_its_whole_id_is_found_by_the_index(url: str, server: Database) -> None:
    with connect(role_url(url, SERVER)) as connection, connection.transaction():
        connection.execute(
            "SELECT set_config('wtb.projects', 'zebras', true), set_config('enable_seqscan', 'off', true)"
        )
        plan = str(connection.execute("EXPLAIN SELECT * FROM executions WHERE id = 'x'").fetchall())
    assert "Index Cond" in plan


def test_walls_cost_workers_nothing_in_their_plans(url: str) -> None:
    with connect(role_url(url, WORKER)) as connection:
        plan = str(connection.execute("EXPLAIN SELECT * FROM node_runs WHERE sweep_id = 'x'").fetchall())
    assert "current_setting" not in plan
    assert "SubPlan" not in plan
