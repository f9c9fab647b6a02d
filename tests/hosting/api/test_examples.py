"""The API's description, and the page that shows it: every example is a request that a server answers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest
import requests

from tests.hosting.api.serving import HEADERS, TOKEN, answering
from tests.support.bench import make_bench
from tests.support.tenants import asking, nightly
from wtb import END, Workflow
from wtb.authoring.code.describing import describe_workflow
from wtb.features.judging.labelling import draw_labels, give_label
from wtb.features.schedules import queries
from wtb.hosting.api.app import make_app
from wtb.hosting.api.reference import ANSWER, CHECKPOINT, EXECUTION, OTHER_EXECUTION, QUESTION, SCORING
from wtb.hosting.api.routes import PREFIX, ROUTES, Route
from wtb.operations.context import Context
from wtb.store.control.rescore import ask_to_score
from wtb.store.database import Database
from wtb.store.publications import Publication, publish
from wtb.store.tables.schema import approvals, executions

# What is made before others ask for it, and what is removed when nobody does any more.
FIRST = ("/projects", "/sessions", "/users", "/teams", "/baselines/{name}", "/teams/{name}/change", "/access/grant")
LAST = ("revoke", "remove", "erase", "archive", "delete")


def triage() -> Workflow:
    """One node with two variants that leaves a file."""
    wf = Workflow("triage")

    def classify(state: Any, ctx: Any, *, team: str = "billing") -> Any:
        (ctx.workspace / "answer.txt").write_text(team)
        return {"answer": team}

    node = wf.node(classify)
    node.variant("other", team="technical")
    wf.entry(node)
    wf.edge(node, END)
    return wf


def right(case: Any, result: Any) -> bool:
    return bool(result.state["answer"] == case.expected)


class World:
    """A server of a database in which there is what the examples name."""

    def __init__(self, database: Database, folder: Path, url: str) -> None:
        self.url = url
        case = {"id": "invoice", "input": {"message": "My invoice is wrong"}, "expected": "billing"}
        done = make_bench(
            database,
            folder,
            triage(),
            [case],
            {"classify": "all"},
            sweep="triage",
            evaluators={"right": right},
        )
        done.run()
        waiting = make_bench(database, folder, asking(), sweep="asked")
        waiting.run()
        first, other = (str(row["id"]) for row in done.rows(executions) if row["status"] == "completed")
        self.ids = {EXECUTION: first, OTHER_EXECUTION: other, QUESTION: str(waiting.rows(approvals)[0]["id"])}
        self.ids[CHECKPOINT] = str(done.rows(executions)[0]["head_id"])
        context = Context(database, by="bob", files=folder)
        self.ids[ANSWER] = draw_labels(context, "triage").items[0].id
        self.ids[SCORING] = ask_to_score(database, done.sweep_id, [{"exact": {}}], queue="", by="bob")
        give_label(context, "triage", "invoice", self.ids[ANSWER], 1.0)
        text = orjson.dumps(describe_workflow(triage().facts()))
        digest = hashlib.sha256(text).hexdigest()
        names = ("triage", str(done.row.spec["workflow"]))
        publish(database, "bench", [Publication("workflow", name, "flow:wf", text.decode(), digest) for name in names])
        queries.add_schedule(database, nightly("nightly", "default", folder / "sweep.yaml"))

    def real(self, value: Any) -> Any:
        """An example, with ids that there are."""
        if isinstance(value, list):
            return [self.real(part) for part in value]
        if value == "crew":  # what its session is renamed to: other examples know it as `ann`
            return "ann"
        return self.ids.get(value, value) if isinstance(value, str) else value


@pytest.fixture
def world(fresh_postgres_url: str, tmp_path: Path) -> Iterator[World]:
    database = Database(fresh_postgres_url)
    database.prepare()
    with answering(make_app(Context(database, files=tmp_path), token=TOKEN, hosts=["127.0.0.1"])) as url:
        yield World(database, tmp_path, url)
    database.close()


def examples(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield where an argument stands, its name and its example. All that must be given have one."""
    parameters = operation.get("parameters", ())
    parameters_and_keys = [
        (each["in"], each["name"], each["schema"], each.get("required", False)) for each in parameters
    ]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    schema = schemas.get(body.get("$ref", "").rpartition("/")[2], {})
    required, inside = schema.get("required", ()), schema.get("properties", {})
    parameters_and_keys += [("body", name, each, name in required) for name, each in inside.items()]
    for where, name, each, is_required in parameters_and_keys:
        examples_of_schema = each.get("examples", [])
        assert examples_of_schema or not is_required, f"{name} of {operation['summary']} has no example"
        if examples_of_schema:
            yield where, name, examples_of_schema[0]


def _order(route: Route) -> tuple[int, int]:
    """Return a sort key: operations that others depend on, then reads, then writes, and deletions last."""
    if route.method == "POST" and route.path in FIRST:
        return 0, FIRST.index(route.path)
    word = route.path.rpartition("/")[2]
    return (2 + LAST.index(word) if word in LAST and route.method == "POST" else 1), route.method == "POST"


def test_every_example_is_answered(world: World) -> None:
    """A request at the wrong moment is a conflict; nothing is unknown, missing or rejected."""
    wrong = []
    with requests.Session() as session:
        session.headers.update(HEADERS)
        described = session.get(f"{world.url}{PREFIX}/openapi.json").json()
        assert described["openapi"].startswith("3.1")
        for route in sorted(ROUTES, key=_order):
            operation = described["paths"][PREFIX + route.path][route.method.lower()]
            path, query, body = PREFIX + route.path, dict[str, Any](), dict[str, Any]()
            for where, name, example in examples(operation, described["components"]["schemas"]):
                real = world.real(example)
                if where == "path":
                    path = path.replace(f"{{{name}}}", quote(str(real), safe=""))
                else:
                    (query if where == "query" else body)[name] = real
            rest = {"params": query} if route.method == "GET" else {"json": body, "params": query}
            with session.request(route.method, world.url + path, timeout=60, **rest) as answer:
                if answer.status_code not in (200, 201, 409):
                    wrong.append((route.method, path, query, body, answer.status_code, answer.text[:300]))
    assert not wrong, "\n".join(map(str, wrong))


def test_the_page_shows_every_request_and_anybody_may_read_it(world: World) -> None:
    answer = requests.get(f"{world.url}/docs", timeout=30)
    assert answer.status_code == 200
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
    for route in ROUTES:
        assert f"<code>{route.method} {PREFIX}{route.path}</code>" in answer.text
        assert route.summary.split(":")[0].split("'")[0] in answer.text
    assert "<script" not in answer.text
    assert f"curl -H &quot;Authorization: Bearer $(cat token)&quot; {world.url}{PREFIX}/sweeps" in answer.text
    (style,) = re.findall(r'href="(/static/\S*style\.css)"', answer.text)
    assert requests.get(world.url + style, timeout=30).status_code == 200
