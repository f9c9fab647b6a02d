"""Flower shows the tasks of sweeps with their cases. A task with a failed cell fails, with node and error."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any

import pytest
from celery.events.state import State

from tests.support.cluster import Cluster
from wtb.hosting.servers.server import free_port
from wtb.store.runs.publishing import MOST_DESCRIBED, Task
from wtb_workers.app import make_app
from wtb_workers.task_messages import EXECUTE, SCORE, send

FLOW = """
from wtb import END, Workflow

wf = Workflow("seen")

@wf.node
def ask(state, ctx, *, hard: bool = False):
    if hard:
        raise ValueError("too hard for me")
    return {"y": state["x"]}

ask.variant("hard", hard=True)
wf.entry(ask)
wf.edge(ask, END)
"""
SWEEP = "sweep: seen\nworkflow: seen:wf\ncases: [{id: c0, input: {x: 1}}]\nvary: {ask: all}\n"


def fetch(port: int, what: str) -> dict[str, Any]:
    """Return a document of Flower's API, or an empty one until Flower responds."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/{what}")
    request.add_header("Authorization", "Basic " + base64.b64encode(b"me:secret").decode())
    with suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(request, timeout=5) as answer:
        document: dict[str, Any] = json.load(answer)
        return document
    return {}


def hears(port: int) -> bool:
    """Return whether events of a worker, such as its heartbeats, have reached Flower."""
    return any(fetch(port, "workers?status=1").values())


def test_a_task_whose_execution_failed_is_shown_as_failed_with_its_node_and_error(crew: Cluster) -> None:
    crew.project.write({"seen.py": FLOW, "seen.yaml": SWEEP})
    port = free_port()
    env = {**crew.env, "WTB_FLOWER_AUTH": "me:secret"}
    with crew.project.start("admin", "flower", "--port", str(port), env=env) as flower:
        crew.until(lambda: hears(port), "Flower to hear of the worker: it is told nothing of what was before")
        crew.wtb("submit", "seen.yaml", "--wait", check=1)
        mine = crew.until(lambda: ended(port), "the tasks to be seen")
        flower.process.terminate()
    (task,) = mine
    assert "1 of 2 cells failed; c0 ask=hard: node 'ask': ValueError: too hard for me" in task["exception"]
    assert (task["state"], task["name"], task["args"]) == ("FAILURE", "seen", "c0")


def describe_task(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> tuple[str, tuple[str, str, str]]:
    """Return the task, and the name, arguments and keyword arguments in the message of a published task."""
    app, sent = make_app("memory://"), list[tuple[str, dict[str, Any]]]()
    monkeypatch.setattr(app, "send_task", lambda name, **options: sent.append((name, options)))
    task = Task("t1", "", "s1", "triage", ["c7"], 1, {"ask": "hard", "rank": "bm25"}, None)
    send(app, "c1", [task._replace(**changes)])
    ((name, message),) = sent
    assert (message["task_id"], message["queue"]) == ("t1", "wtb.c1")
    return name, (message["shadow"], message["argsrepr"], message["kwargsrepr"])


def test_a_message_is_named_by_sweep_cases_and_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe_task(monkeypatch) == (EXECUTE, ("triage", "c7", "ask=hard rank=bm25"))
    few = [f"c{number}" for number in range(3)]
    assert describe_task(monkeypatch, cases=few, size=3, choices={})[1] == ("triage", "c0, c1, c2", "")
    many = describe_task(monkeypatch, cases=["c0", "c99"], size=MOST_DESCRIBED, choices={})[1]
    assert many == ("triage", f"c0 to c99, {MOST_DESCRIBED} executions", "")
    assert describe_task(monkeypatch, cases=[], size=0, choices={}) == (SCORE, ("score triage", "", ""))


def test_a_message_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users of a monitor may see it."""
    redact = {"patterns": {"mail": r"\S+@\S+"}}
    _, (_, cases, choices) = describe_task(
        monkeypatch, cases=["ann@example.org"], choices={"to": "bob@example.org"}, redact=redact
    )
    assert "@" not in cases + choices


def test_a_task_keeps_its_name_where_it_is_heard_to_be_sent_after_it_was_received() -> None:
    words: dict[str, Any] = {"argsrepr": "c7", "kwargsrepr": "ask=hard", "shadow": "triage"}
    with make_app("memory://") as app:
        sent = app.amqp.as_task_v2("t1", EXECUTE, ["e1"], create_sent_event=True, **words).sent_event
    seen, common = State(), {"hostname": "w0", "timestamp": 1.0, "local_received": 1.0, "clock": 1}
    seen.event({**common, "type": "task-received", "uuid": "t1", "name": "triage", "args": "c7", "kwargs": "ask=hard"})
    seen.event({**common, "type": "task-sent", **sent})
    task = seen.tasks["t1"]
    assert (task.name, task.args, task.kwargs, task.state) == ("triage", "c7", "ask=hard", "RECEIVED")


def ended(port: int) -> list[dict[str, Any]]:
    """The tasks of this sweep, once all of them are at their end and one of them has failed."""
    mine = [task for task in fetch(port, "tasks").values() if task["name"] == "seen"]
    states = {task["state"] for task in mine}
    return mine if "FAILURE" in states and states <= {"SUCCESS", "FAILURE"} else []
