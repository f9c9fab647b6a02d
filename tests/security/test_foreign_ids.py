"""Every route of the API, with everything that another project has in every argument that may name it, as every role.

Made from the registry and from the table of routes, so that no operation is forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests

from tests.hosting.api.serving import TOKEN, answering
from tests.support import tenants
from tests.support.databases import postgres_database
from tests.support.tenants import NOTHING, Call, Tenant
from wtb.core.roles import PERMISSIONS, Role
from wtb.features.access.operations import create_token
from wtb.hosting.api.app import make_app
from wtb.hosting.api.routes import PREFIX, ROUTES, Route
from wtb.hosting.servers.postgres import role_url
from wtb.operations.context import Context
from wtb.store.database import Database
from wtb.store.tables.walls import SERVER, WORKER

_VARYING = re.compile(r'"(?:id|at|as_of|created_at|location|operation|result)": ?"[^"]*"')


@dataclass
class World:
    """Two projects, and a server to which members of one project send requests about the other."""

    url: str
    folder: Path
    alpha: Tenant
    beta: Tenant
    tokens: dict[Role, str]


@pytest.fixture(scope="module")
def world(
    postgres_url: str, postgres_admin: Any, postgres_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("foreign")
    with postgres_database(postgres_url, postgres_admin, postgres_template) as url:
        database, server = Database(role_url(url, WORKER)), Database(role_url(url, SERVER))
        context = Context(database, by="ann", files=folder)
        alpha, beta = Tenant(context, folder, "quokka"), Tenant(context, folder, "zebras")
        tokens = {
            role: create_token(context, f"of-{role}", scopes=sorted(PERMISSIONS[role]), project="zebras")["token"]
            for role in Role
        }
        app = make_app(Context(server, files=folder), token=TOKEN, hosts=["127.0.0.1"])
        with answering(app) as address:
            yield World(address + PREFIX, folder, alpha, beta, tokens)
        database.close()
        server.close()


def _request(world: World, route: Route, call: Call, target: str, session: requests.Session) -> tuple[int, str]:
    """Return the status and body of a response, with the named object written as X."""
    arguments = call.arguments(world.beta.names, target, world.folder)
    in_path = re.findall(r"\{(\w+)\}", route.path)
    path = route.path
    for name in in_path:
        own = world.beta.names["execution" if "executions" in path else "sweep"]
        path = path.replace(f"{{{name}}}", quote(str(arguments.pop(name, own)), safe=""))
    for name in route.left_out:
        arguments.pop(name, None)
    rest: dict[str, Any] = {"params": arguments} if route.method == "GET" else {"json": arguments}
    with session.request(route.method, world.url + path, timeout=30, stream=True, **rest) as answer:
        return answer.status_code, _VARYING.sub("", answer.text.replace(target, "X"))


def test_of_every_argument_it_is_known_whether_it_names_something() -> None:
    assert tenants.unknown_arguments() == set()


@pytest.mark.parametrize("role", [Role.admin, *(pytest.param(role, marks=pytest.mark.slow) for role in [*Role][:-1])])
def test_what_is_elsewhere_is_answered_as_what_is_nowhere(world: World, role: Role) -> None:
    calls: dict[str, list[Call]] = {}
    for call in tenants.calls():
        calls.setdefault(call.name, []).append(call)
    before = tenants.rows_of(world.alpha.context.database)
    count, seen = 0, []
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {world.tokens[role]}"
        for route in ROUTES:
            for call in calls.get(route.name, ()):
                if call.argument in route.left_out:
                    continue
                foreign = _request(world, route, call, world.alpha.names[call.kind], session)
                nothing = _request(world, route, call, NOTHING, session)
                count += 1
                if foreign != nothing or any(name in foreign[1] for name in world.alpha.names.values()):
                    seen.append((route.method, route.path, call, foreign, nothing))
                needs = route.needs
                if (needs not in PERMISSIONS[role]) != (foreign[0] == 403):
                    seen.append((route.method, route.path, call, foreign, 403))
    assert not seen
    assert count > 100
    after = tenants.rows_of(world.alpha.context.database)
    assert {name for name, rows in after.items() if rows != before[name]} <= {"tokens"}, "their last use"


@pytest.mark.parametrize("role", Role)
def test_what_pages_read_and_follow_of_elsewhere_is_as_nothing(world: World, role: Role) -> None:
    """Check the routes without an operation in the registry: figures, columns of cells, and streams."""
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {world.tokens[role]}"
        for path in ("figures", "columns", "events"):
            for kind in ("sweep", "sweep_name", "execution"):
                answers = []
                for target in (world.alpha.names[kind], NOTHING):
                    with session.get(f"{world.url}/sweeps/{target}/{path}", timeout=30, stream=True) as answer:
                        answers.append((answer.status_code, answer.text.replace(target, "X")))
                assert answers[0] == answers[1]
                assert answers[0][0] == 404
