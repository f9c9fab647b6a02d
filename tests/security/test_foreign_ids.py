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
from wtb.core.access.roles import PERMISSIONS, Role
from wtb.hosting.api.app import make_app
from wtb.hosting.api.routes import PREFIX, ROUTES, Route
from wtb.hosting.servers.postgres import role_url
from wtb.operations.administration.tokens import create_token
from wtb.operations.context import Context
from wtb.store.database import Database
from wtb.store.tables.walls import SERVER, WORKER

_VARYING = re.compile(r'"(?:id|at|as_of|created_at|location|operation|result)": ?"[^"]*"')


@dataclass
class World:
    """Two projects, and a server that is asked about one of them by whoever belongs to the other."""

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
        made, server = Database(role_url(url, WORKER)), Database(role_url(url, SERVER))
        context = Context(made, by="ann", files=folder)
        alpha, beta = Tenant(context, folder, "quokka"), Tenant(context, folder, "zebras")
        tokens = {
            role: create_token(context, f"of-{role}", scopes=sorted(PERMISSIONS[role]), project="zebras")["token"]
            for role in Role
        }
        app = make_app(Context(server, files=folder), token=TOKEN, hosts=["127.0.0.1"])
        with answering(app) as address:
            yield World(address + PREFIX, folder, alpha, beta, tokens)
        made.close()
        server.close()


def _asked(world: World, route: Route, call: Call, value: str, session: requests.Session) -> tuple[int, str]:
    """Status and body of an answer, with what is named written as X."""
    given = call.arguments(world.beta.names, value, world.folder)
    in_path = re.findall(r"\{(\w+)\}", route.path)
    path = route.path
    for name in in_path:
        own = world.beta.names["execution" if "executions" in path else "sweep"]
        path = path.replace(f"{{{name}}}", quote(str(given.pop(name, own)), safe=""))
    for name in route.left_out:
        given.pop(name, None)
    rest: dict[str, Any] = {"params": given} if route.method == "GET" else {"json": given}
    with session.request(route.method, world.url + path, timeout=30, stream=True, **rest) as answer:
        return answer.status_code, _VARYING.sub("", answer.text.replace(value, "X"))


def test_of_every_argument_it_is_known_whether_it_names_something() -> None:
    assert tenants.unknown_arguments() == set()


@pytest.mark.parametrize("role", [Role.admin, *(pytest.param(one, marks=pytest.mark.slow) for one in [*Role][:-1])])
def test_what_is_elsewhere_is_answered_as_what_is_nowhere(world: World, role: Role) -> None:
    calls: dict[str, list[Call]] = {}
    for call in tenants.calls():
        calls.setdefault(call.name, []).append(call)
    before = tenants.rows_of(world.alpha.context.database)
    asked, seen = 0, []
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {world.tokens[role]}"
        for route in ROUTES:
            for call in calls.get(route.name, ()):
                if call.argument in route.left_out:
                    continue
                foreign = _asked(world, route, call, world.alpha.names[call.kind], session)
                nothing = _asked(world, route, call, NOTHING, session)
                asked += 1
                if foreign != nothing or any(name in foreign[1] for name in world.alpha.names.values()):
                    seen.append((route.method, route.path, call, foreign, nothing))
                needs = route.needs
                if (needs not in PERMISSIONS[role]) != (foreign[0] == 403):
                    seen.append((route.method, route.path, call, foreign, 403))
    assert not seen
    assert asked > 100
    after = tenants.rows_of(world.alpha.context.database)
    assert {name for name, rows in after.items() if rows != before[name]} <= {"tokens"}, "their last use"


@pytest.mark.parametrize("role", Role)
def test_what_pages_read_and_follow_of_elsewhere_is_as_nothing(world: World, role: Role) -> None:
    """What no operation of the registry answers by itself: figures, columns of cells, and streams."""
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {world.tokens[role]}"
        for path in ("figures", "columns", "events"):
            for kind in ("sweep", "sweep_name", "execution"):
                answers = []
                for value in (world.alpha.names[kind], NOTHING):
                    with session.get(f"{world.url}/sweeps/{value}/{path}", timeout=30, stream=True) as answer:
                        answers.append((answer.status_code, answer.text.replace(value, "X")))
                assert answers[0] == answers[1]
                assert answers[0][0] == 404
