"""`wtb serve --run` executes what is started over HTTP on its own machine, with the code as it is when a run begins."""

from __future__ import annotations

import http.client
import json
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.hosting.api.serving import HEADERS, Server
from tests.support.project import Project
from tests.support.prose import sentence
from wtb.hosting.api.routes import PREFIX

# It notes which processes import it and begin a node, and holds a node for as long as a file is there.
FLOW = """
import os
import time
from pathlib import Path
from typing import NotRequired, TypedDict

from wtb import Workflow

HERE = Path(__file__).parent
with (HERE / "imported-by").open("a") as file:
    file.write(f"{os.getpid()}\\n")


class State(TypedDict):
    x: int
    y: NotRequired[int]
    answer: NotRequired[str]


wf = Workflow("echo", state=State)


@wf.node
def times(state, ctx):
    (HERE / f"began-{state['x']}").touch()
    while (HERE / "held").exists():
        time.sleep(0.02)
    return {"y": state["x"] * FACTOR}


@wf.node
def review(state, ctx):
    if state["y"] < 100:
        return {"answer": "small"}
    return {"answer": ctx.ask(f"Send {state['y']}?", options=["yes", "no"]).choice}


wf.entry(times)
wf.edge(times, review)
"""
SETTINGS = "[workflows]\nalpha = 'flow:wf'\n[publish]\nevaluators = []\n"


class Running(Server):
    """`wtb serve --run` of a folder with one workflow."""

    def start(self, env: Mapping[str, str] | None = None, options: Any = ("--run",)) -> None:
        super().start(env, options)

    @property
    def folder(self) -> Path:
        return self.project.folder

    def send(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = HEADERS) -> tuple[int, Any]:
        """Return the status and the document of a response."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=100)) as connection:
            content = None if body is None else json.dumps(body)
            connection.request(method, PREFIX + path, content, {"Content-Type": "application/json", **headers})
            with connection.getresponse() as response:
                return response.status, json.load(response)

    def execute(self, x: int, wait: int = 60, workflow: str = "alpha") -> tuple[int, Any]:
        return self.send("POST", f"/executions?wait={wait}", {"workflow": workflow, "input": {"x": x}})

    def result(self, execution: str) -> tuple[int, Any]:
        return self.send("GET", f"/executions/{execution}/result?wait=60")

    def write(self, factor: int | str) -> None:
        self.project.write({"flow.py": FLOW.replace("FACTOR", str(factor))})

    @contextmanager
    def start_held(self, x: int) -> Iterator[str]:
        """Start an execution whose first node runs inside the block. Yields its id."""
        (self.folder / "held").touch()
        try:
            status, document = self.execute(x, wait=0)
            assert status == 201
            self.project.until((self.folder / f"began-{x}").exists, "it begins")
            yield document["sweep"]
        finally:
            (self.folder / "held").unlink()

    def is_stopping(self) -> bool:
        return self.running is not None and "stopping 1 run" in self.running.stderr


@pytest.fixture
def server(tmp_path: Path, prepared_url: str) -> Iterator[Running]:
    project = Project(tmp_path)
    project.url = prepared_url
    project.write({"wtb.toml": SETTINGS})
    server = Running(project)
    server.write(2)
    server.start()
    yield server
    server.kill()
    project.close()


def test_code_is_used_as_it_is_when_a_run_begins_and_imported_in_node_processes_only(server: Running) -> None:
    assert server.running is not None
    status, document = server.execute(3)
    assert (status, document["status"], document["state"]) == (201, "completed", {"x": 3, "y": 6, "answer": "small"})
    with server.start_held(4) as execution:
        server.write(3)
    assert server.result(execution)[1]["state"]["y"] == 8
    assert server.execute(4)[1]["state"]["y"] == 12
    server.write("=")
    status, problem = server.execute(4)
    assert (status, sentence("cannot be imported: {}", "SyntaxError") in problem["detail"]) == (400, True)
    server.write(5)
    assert server.execute(4)[1]["state"]["y"] == 20
    importing = set((server.folder / "imported-by").read_text().split())
    assert str(server.running.pid) not in importing
    assert server.send("GET", "/workflows")[1]["workflows"][0]["name"] == "alpha"


def test_what_is_not_registered_is_not_run(server: Running) -> None:
    for workflow in ("beta", "os:getcwd", "flow:other"):
        status, problem = server.execute(1, workflow=workflow)
        assert (status, sentence("no {} {} is registered here", "workflow", f"{workflow!r}") in problem["detail"]) == (
            400,
            True,
        )
    assert server.execute(1, workflow="flow:wf")[0] == 201  # the path of a registered one


def test_an_answer_over_http_continues_the_execution_here(server: Running) -> None:
    status, document = server.execute(100)
    assert (status, document["status"]) == (202, "waiting")
    (question,) = document["questions"]
    assert server.send("POST", f"/approvals/{question['id']}/answer", {"action": "yes"})[0] == 200
    status, document = server.result(document["execution"])
    assert (status, document["status"], document["result"]) == (200, "completed", {"answer": "yes"})


def test_executions_are_paused_resumed_retried_forked_and_cancelled_here(server: Running) -> None:
    body = {"workflow": "alpha", "input": {"x": 5}, "breakpoints": ["review"]}
    status, document = server.send("POST", "/executions?wait=60", body)
    assert (status, document["status"], document["state"]["y"]) == (202, "paused", 10)
    execution = document["execution"]
    assert server.send("POST", f"/executions/{execution}/resume", {"set": {"y": 7}})[0] == 200
    assert server.result(execution)[1]["state"] == {"x": 5, "y": 7, "answer": "small"}
    status, forked = server.send("POST", f"/executions/{execution}/fork", {"at": "times", "set": {"y": 9}})
    assert (status, server.result(forked["execution"])[1]["state"]["y"]) == (201, 9)
    created = server.send("POST", "/executions", {"workflow": "alpha", "input": {"x": 6}, "create_only": True})[1]
    assert server.result(created["sweep"])[1]["status"] == "paused"
    assert server.send("POST", f"/executions/{created['sweep']}/resume", {})[0] == 200
    assert server.result(created["sweep"])[1]["state"]["y"] == 12
    with server.start_held(8) as running:
        assert server.send("POST", f"/executions/{running}/cancel", {})[0] == 200
        assert server.result(running)[1]["status"] == "cancelled"


def test_several_run_at_once(server: Running) -> None:
    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(server.execute, range(10, 22)))
    assert [(status, document["state"]["y"]) for status, document in outcomes] == [(201, 2 * x) for x in range(10, 22)]


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_the_next_server_continues_what_this_one_leaves(server: Running, how: str) -> None:
    _, waiting = server.execute(100)
    with server.start_held(4) as execution:
        if how == "killed":
            server.kill()
        else:
            assert server.running is not None
            server.running.signal(signal.SIGINT)
            server.project.until(server.is_stopping, "it stops")
    if how == "interrupted":
        assert server.running is not None
        server.running.wait(130)
    server.start()
    assert server.result(execution)[1]["state"] == {"x": 4, "y": 8, "answer": "small"}
    question = waiting["questions"][0]["id"]
    assert server.send("POST", f"/approvals/{question}/answer", {"action": "no"})[0] == 200
    assert server.result(waiting["execution"])[1]["result"] == {"answer": "no"}


def test_an_answer_is_not_lost_with_the_server_that_took_it(server: Running) -> None:
    _, waiting = server.execute(100)
    question = waiting["questions"][0]["id"]
    assert server.send("POST", f"/approvals/{question}/answer", {"action": "yes"})[0] == 200
    server.kill()
    server.start()
    assert server.result(waiting["execution"])[1]["result"] == {"answer": "yes"}


LEVELS = [1, 1.0, "1", True, None, [1, 2], {"a": 1}, "one"]


def test_a_sweep_is_extended_by_levels_of_any_type(server: Running) -> None:
    flow = FLOW.replace("def times(state, ctx):", "def times(state, ctx, *, by: Any = 0):").replace("FACTOR", "2")
    server.project.write({"flow.py": f"from typing import Any\n{flow}"})
    sweep = {
        "sweep": "levels",
        "workflow": "alpha",
        "cases": [{"id": "a", "input": {"x": 1}}],
        "vary": {"times.by": [5]},
    }
    status, document = server.send("POST", "/sweeps", {"keys": sweep})
    assert status == 201, document
    server.result(document["sweep"])
    for path, expected in (("extend/plan", 200), ("extend", 200)):
        status, added = server.send("POST", f"/sweeps/{document['sweep']}/{path}", {"vary": {"times.by": LEVELS}})
        assert status == expected, added
        assert [row["times"] for row in added["combinations"]] == [
            *("by=1", "by=1.0", 'by="1"', "by=true", "by=null", "by=[1,2]", 'by={"a":1}', "by=one")
        ]
    typed = {"typed": {"times.by": ["1", "2"]}}
    status, added = server.send("POST", f"/sweeps/{document['sweep']}/extend/plan", typed)
    assert [row["times"] for row in added["combinations"]] == ["by=2"], "1 is there"
