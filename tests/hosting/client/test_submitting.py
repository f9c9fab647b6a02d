"""Sweeps and inputs submitted through a server, from where their code is not, to workers that publish it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from tests.hosting.api.serving import HEADERS, TOKEN, Server
from tests.support.browser import started
from tests.support.cluster import Cluster
from tests.support.project import FLOW, Outcome, Project
from wtb.hosting.api.routes import PREFIX

SWEEP = {
    "sweep": "sent",
    "workflow": "shop",
    "cases": [{"id": "a", "input": {"x": 1}}, {"id": "b", "input": {"x": 2}}],
    "vary": {"A": "all", "B": ["default", {"name": "big", "by": 5}]},
    "evaluate": ["flow:total"],
}
CELLS = 16


@dataclass(frozen=True)
class Sending:
    """A server with a worker that publishes `shop`, and a folder that has a sweep file and its cases only."""

    cluster: Cluster
    server: Server
    laptop: Project

    def wtb(self, *args: str, check: int | None = 0) -> Outcome:
        given = {"WTB_SERVER": f"http://127.0.0.1:{self.server.port}", "WTB_TOKEN": TOKEN}
        return self.laptop.inside(*args, env=given, check=check)

    def post(self, path: str, body: Any) -> tuple[int, str | None, Any]:
        """Status, location and document of the answer to a request."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)) as connection:
            sent = {**HEADERS, "Content-Type": "application/json"}
            connection.request("POST", PREFIX + path, json.dumps(body), sent)
            with connection.getresponse() as response:
                return response.status, response.headers.get("Location"), json.load(response)


@pytest.fixture(scope="module")
def sending(module_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sending]:
    project = module_cluster.project
    project.write({"flow.py": FLOW})
    project.write({"wtb.toml": "[workflows]\nshop = 'flow:wf'\n[publish]\nevaluators = ['flow:total']\n"})
    module_cluster.start_scheduler()
    module_cluster.start_worker(concurrency=2)
    server = Server(project)
    server.start(module_cluster.env)
    laptop = Project(tmp_path_factory.mktemp("laptop"))
    laptop.write({"cases.jsonl": "\n".join(map(json.dumps, SWEEP["cases"]))})  # type: ignore[call-overload]
    laptop.write({"sweep.yaml": json.dumps({**SWEEP, "cases": "cases.jsonl"})})
    found = Sending(module_cluster, server, laptop)
    module_cluster.until(
        lambda: found.wtb("workflow", "list", "--format", "json", "--published").json["workflows"], "it is published"
    )
    yield found
    server.kill()
    laptop.close()


def test_a_sweep_file_is_planned_and_submitted_from_where_its_code_is_not(sending: Sending) -> None:
    plan = sending.wtb("plan", "sweep.yaml", "--format", "json").json
    assert (plan["cells"], plan["combinations"]) == (CELLS, CELLS / 2)
    sweep = sending.wtb("submit", "sweep.yaml").stdout.strip()
    sending.cluster.wait_completed(sweep)
    shown = sending.wtb("show", sweep, "--format", "json").json
    assert shown["cells"]["succeeded"] == CELLS
    best = sending.wtb("matrix", sweep, "--format", "json").json["rows"]
    assert len(best) == CELLS / 2


def test_it_is_what_the_code_itself_would_have_submitted(sending: Sending) -> None:
    """Graph and fingerprints are those of the code, or workers would refuse it, and comparisons call it changed."""
    project = sending.cluster.project
    project.write({"own.yaml": json.dumps({**SWEEP, "sweep": "own"})})
    ours = sending.cluster.submit("own.yaml")
    _, _, sent = sending.post("/sweeps", {"keys": SWEEP, "anyway": True})
    sending.cluster.wait_completed(ours, sent["sweep"])
    query = "SELECT workflow_id, fingerprints::text FROM sweeps WHERE id = :id"
    assert sending.cluster.query(query, id=ours) == sending.cluster.query(query, id=sent["sweep"])


def test_a_part_of_a_sweep_is_submitted_and_says_where_it_is(sending: Sending) -> None:
    part = {"case": "b", "choices": {"A": "v1"}}
    status, location, document = sending.post("/sweeps", {"keys": SWEEP, "part": part, "priority": 3, "anyway": True})
    assert (status, document["cells"]) == (201, 2)
    assert location == f"{PREFIX}/sweeps/{document['sweep']}"
    sending.cluster.wait_completed(document["sweep"])


def test_one_input_is_started(sending: Sending) -> None:
    execution = sending.wtb("start", "shop", "--set", "x=4", "--variant", "A=v2", "--format", "json").json["id"]
    sending.cluster.wait_completed(execution)
    assert sending.wtb("show", execution, "--format", "json").json["state"] == {"x": 6}


def test_a_sweep_is_planned_and_submitted_in_a_browser(sending: Sending) -> None:
    url = f"http://127.0.0.1:{sending.server.port}"
    with started() as browser:
        context = browser.new_context()
        assert context.request.post(f"{url}{PREFIX}/sign-in", data={"token": TOKEN}).ok
        page = context.new_page()
        page.goto(url)
        page.get_by_role("link", name="New sweep").click()
        page.get_by_label("Name").fill("by form")
        nodes = page.get_by_role("group", name="A", exact=True)
        for box in nodes.get_by_role("checkbox").all():
            box.check()
        page.get_by_role("group", name="Evaluators").get_by_role("checkbox").first.check()
        page.get_by_label("Cases, each").fill("not JSON")
        page.get_by_role("button", name="Plan").click()
        page.get_by_role("alert").get_by_text("cases, line 1").wait_for()
        page.get_by_label("Cases, each").fill("\n".join(map(json.dumps, SWEEP["cases"])))  # type: ignore[call-overload]
        before = sending.cluster.one("SELECT count(*) FROM sweeps")
        page.get_by_role("button", name="Plan").click()
        page.get_by_text("= 8 cells").wait_for()
        assert sending.cluster.one("SELECT count(*) FROM sweeps") == before, "a plan runs nothing"
        page.get_by_role("button", name="Submit 8 cells").click()
        page.wait_for_url("**/sweeps/*")
        sweep = page.url.rsplit("/", 1)[1]
    sending.cluster.wait_completed(sweep)
    assert sending.wtb("show", sweep, "--format", "json").json["cells"]["succeeded"] == CELLS / 2


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"workflow": "flow:nothing"}, "no worker publishes a workflow 'flow:nothing'"),
    ({"workflow": "shopp"}, "did you mean 'shop'"),
    ({"cases": "/etc/passwd.jsonl"}, "nothing is read here"),
    ({"cases": "flow:cases"}, "nothing is read here"),
    ({"cases": [{"id": "a", "input": {"x": 1}, "files": {"f": "/etc/passwd"}}]}, "a case names files"),
    ({"cases": [{"id": "a", "input": {"y": 1}}]}, "'y'"),
    ({"files_from": ["/etc"]}, "files_from"),
    ({"run": {"env": ["HOME"]}}, "set where the workers run"),
    ({"notify": ["touch /tmp/was-run"]}, "it is a command"),
    ({"notify": [{"to": "http://10.0.0.1/x", "allow_private": True}]}, "private addresses"),
    ({"vary": {"A": [{"name": "own", "with": "os:getcwd"}]}}, "nothing is imported here"),
    ({"vary": {"A": ["v9"]}}, "has no variant 'v9'"),
    ({"vary": {"A": [{"name": "own", "bye": 5}]}}, "bye"),
    ({"evaluate": ["flow:picky"]}, "what workers publish"),
    ({"evaluate": ["os:system"]}, "what workers publish"),
]


@pytest.mark.parametrize(("keys", "said"), REFUSED, ids=[said for _, said in REFUSED])
@pytest.mark.parametrize("path", ["/plans", "/sweeps"])
def test_what_names_something_of_the_servers_machine_is_refused(
    sending: Sending, path: str, keys: dict[str, Any], said: str
) -> None:
    before = sending.cluster.one("SELECT count(*) FROM sweeps")
    status, _, document = sending.post(path, {"keys": {**SWEEP, **keys}})
    assert status == 400
    assert said in document["detail"]
    assert sending.cluster.one("SELECT count(*) FROM sweeps") == before
