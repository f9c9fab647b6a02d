"""What Flower shows of sweeps: a task for each notification, failed if an execution failed, with node and error."""

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
from wtb.hosting.servers.processes import free_port
from wtb.store.runs.queue import Notification
from wtb_workers.app import make_app
from wtb_workers.notifications import EXECUTE, notify

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


def asked(port: int, what: str) -> dict[str, Any]:
    """What Flower knows; nothing as long as it does not answer."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/{what}")
    request.add_header("Authorization", "Basic " + base64.b64encode(b"me:secret").decode())
    with suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(request, timeout=5) as answer:
        found: dict[str, Any] = json.load(answer)
        return found
    return {}


def hears(port: int) -> bool:
    """Whether events of a worker, such as its heartbeats, have reached Flower."""
    return any(asked(port, "workers?status=1").values())


def test_a_task_whose_execution_failed_is_shown_as_failed_with_its_node_and_error(crew: Cluster) -> None:
    crew.project.write({"seen.py": FLOW, "seen.yaml": SWEEP})
    port = free_port()
    env = {**crew.env, "WTB_FLOWER_AUTH": "me:secret"}
    with crew.project.start("flower", "--port", str(port), env=env) as flower:
        crew.until(lambda: hears(port), "Flower to hear of the worker: it is told nothing of what was before")
        crew.wtb("submit", "seen.yaml", "--wait", check=1)
        mine = crew.until(lambda: ended(port), "the tasks to be seen")
        flower.process.terminate()
    failed = [task for task in mine if task["state"] == "FAILURE"]
    assert "node 'ask': ValueError: too hard for me" in failed[0]["exception"]
    assert {(task["name"], task["args"]) for task in mine} == {("seen", "c0")}, "sweep and case, for people"
    assert all("execution=" in task["kwargs"] for task in mine)


def test_a_message_is_named_by_sweep_case_and_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    app, sent = make_app("memory://"), list[dict[str, Any]]()
    monkeypatch.setattr(app, "send_task", lambda name, **options: sent.append(options))
    choices = {"ask": "hard", "rank": "bm25"}
    notify(app, [Notification("e1", None, "triage", "c7", choices)])
    (message,) = sent
    shown = (message["shadow"], message["argsrepr"], message["kwargsrepr"])
    assert shown == ("triage", "c7", "ask=hard rank=bm25 execution=e1")


def test_a_task_keeps_its_name_where_it_is_heard_to_be_sent_after_it_was_received() -> None:
    words: dict[str, Any] = {"argsrepr": "c7", "kwargsrepr": "ask=hard", "shadow": "triage"}
    with make_app("memory://") as app:
        sent = app.amqp.as_task_v2("t1", EXECUTE, ["e1"], create_sent_event=True, **words).sent_event
    seen, heard = State(), {"hostname": "w0", "timestamp": 1.0, "local_received": 1.0, "clock": 1}
    seen.event({**heard, "type": "task-received", "uuid": "t1", "name": "triage", "args": "c7", "kwargs": "ask=hard"})
    seen.event({**heard, "type": "task-sent", **sent})
    task = seen.tasks["t1"]
    assert (task.name, task.args, task.kwargs, task.state) == ("triage", "c7", "ask=hard", "RECEIVED")


def ended(port: int) -> list[dict[str, Any]]:
    """The tasks of this sweep, once all of them are at their end and one of them has failed."""
    mine = [task for task in asked(port, "tasks").values() if task["name"] == "seen"]
    states = {task["state"] for task in mine}
    return mine if "FAILURE" in states and states <= {"SUCCESS", "FAILURE"} else []
