"""A server whose worker publishes workflows, and a folder that has none of their code."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hosting.api.serving import HEADERS, TOKEN, Server
from tests.support.cluster import Cluster
from tests.support.project import FLOW, Outcome, Project
from wtb.hosting.api.routes import PREFIX

# It says which processes imported it, fails as long as one file is there, and does not end as long as another is.
REVIEWED = """
import os
import time
from pathlib import Path
from typing import NotRequired, TypedDict

from wtb import Workflow

with Path(__file__).with_name("imported-by").open("a") as file:
    file.write(f"{os.getpid()}\\n")


class State(TypedDict):
    x: int
    note: NotRequired[str]
    answer: NotRequired[str]


wf = Workflow("reviewed", state=State, metadata={"team": "search"})


@wf.node
def draft(state, *, by: int = 1, text: str = ""):
    if Path(__file__).with_name("broken").exists():
        raise ValueError("it is broken")
    while Path(__file__).with_name("held").exists():
        time.sleep(0.02)
    return {"x": state["x"] * by, **({"note": text} if text else {})}


draft.variant("double", by=2)


@wf.node
def review(state, ctx):
    if state["x"] < 100:
        return {"answer": "small"}
    return {"answer": ctx.ask(f"Send {state['x']}?", options=["yes", "no"]).choice}


wf.entry(draft)
wf.edge(draft, review)
"""

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
        environment = {"WTB_SERVER": f"http://127.0.0.1:{self.server.port}", "WTB_TOKEN": TOKEN}
        return self.laptop.inside(*args, env=environment, check=check)

    def put(self, path: str, content: bytes) -> tuple[int, Any]:
        """Status and document of the answer to a file that is sent."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)) as connection:
            connection.request("PUT", PREFIX + path, content, HEADERS)
            with connection.getresponse() as response:
                return response.status, json.load(response)

    def post(
        self, path: str, body: Any, *, key: str | None = None, server: Server | None = None
    ) -> tuple[int, str | None, Any]:
        """Status, location and document of the answer to a request. A sweep is taken although its worker is late."""
        body = {"anyway": True, **body} if path.startswith("/sweeps") and "keys" in body else body
        port = (server or self.server).port
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            sent = {**HEADERS, "Content-Type": "application/json"} | ({} if key is None else {"Idempotency-Key": key})
            connection.request("POST", PREFIX + path, json.dumps(body), sent)
            with connection.getresponse() as response:
                return response.status, response.headers.get("Location"), json.load(response)


def submitted(sending: Sending, keys: Mapping[str, Any], **more: Any) -> str:
    """Submit a sweep, and return its id when it has ended."""
    status, _, document = sending.post("/sweeps", {"keys": keys, **more})
    assert status == 201, document
    sweep = str(document["sweep"])
    sending.cluster.wait_completed(sweep)
    return sweep


def execution_of(sending: Sending, *args: str) -> str:
    """Start one input, and return its execution when it stands still."""
    execution: str = sending.wtb("start", *args, "--format", "json").json["id"]
    until_it_is(sending, execution, "paused", "waiting", "completed")
    return execution


def until_it_is(sending: Sending, execution: str, *statuses: str) -> None:
    query = "SELECT status FROM executions WHERE id = :id"
    sending.cluster.until(lambda: sending.cluster.scalar(query, id=execution) in statuses, f"it to be {statuses}")


def state_of(sending: Sending, execution: str) -> Any:
    return sending.wtb("show", execution, "--format", "json").json["state"]


@contextmanager
def publishing(cluster: Cluster, folder: Path) -> Iterator[Sending]:
    """Have a worker of a cluster publish both workflows, and a server answer beside it."""
    project = cluster.project
    project.write({"flow.py": FLOW, "reviewed.py": REVIEWED})
    workflows = "[workflows]\nshop = 'flow:wf'\nreviewed = 'reviewed:wf'\n"
    project.write({"wtb.toml": f"{workflows}[publish]\nevaluators = ['flow:total']\n"})
    cluster.start_scheduler()
    cluster.start_worker(concurrency=2)
    server = Server(project)
    server.start(cluster.env)
    laptop = Project(folder)
    laptop.write({"cases.jsonl": "\n".join(map(json.dumps, SWEEP["cases"]))})  # type: ignore[call-overload]
    laptop.write({"sweep.yaml": json.dumps({**SWEEP, "cases": "cases.jsonl"})})
    sending = Sending(cluster, server, laptop)
    cluster.until(
        lambda: sending.wtb("workflow", "list", "--format", "json", "--published").json["workflows"], "it is published"
    )
    yield sending
    server.kill()
    laptop.close()
