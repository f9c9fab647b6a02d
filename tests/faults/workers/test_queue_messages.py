"""Messages that come twice, late, in any order, or of nothing at all: they change nothing."""

from __future__ import annotations

import base64
import json
import random
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, Worker
from tests.support.invariants import CELLS, GATED, expected_trails, noted, trail_is_complete, write_trail
from tests.support.project import Project
from wtb.core.ids import new_id

ONE_NODE = (
    GATED
    + """
wf = Workflow("one")


@wf.node
def work(state, ctx):
    note(ctx.case.id)
    wait_for_gate()
    return {"done": 1}


wf.entry(work)
wf.edge(work, END)
"""
)


def write_one_node(member: Cluster, cases: int) -> None:
    """A node that waits for the gate, over so many cases."""
    member.project.write_sweep("one", ONE_NODE, cases, vary={"work": "all"}, run={"durability": "sync"})


def works_on(cluster: Cluster, worker: Worker) -> None:
    """It still does all that there is to do, and nothing has raised in it."""
    cluster.until(lambda: cluster.messages() == 0, "the worker to read them")
    cluster.start_scheduler()
    cluster.submit()
    cluster.ends_well({"succeeded": CELLS})
    trail_is_complete(cluster.project, 1)
    assert "Traceback" not in worker.log


def each_ran(project: Project, times: int, cases: int) -> None:
    """No node ran more often than there are sweeps that need it."""
    assert project.query("SELECT data FROM events WHERE kind = 'execution.taken_back'") == [], "a lease ran out"
    ran = Counter(note.trail for note in noted(project, "begun"))
    assert ran == Counter(dict.fromkeys(expected_trails(cases), times))


@pytest.mark.slow
def test_messages_that_come_three_times_in_any_order_and_of_what_is_long_over_change_nothing(cluster: Cluster) -> None:
    """Fault 7."""
    dice = random.Random(7)
    write_trail(cluster.project, 2)
    cluster.take_time()
    cluster.start_two()
    first = cluster.submit()
    cluster.wait_completed(first)
    old_tasks = cluster.tasks()

    second = cluster.submit()

    def flood() -> bool:
        messages = 3 * [*old_tasks, *cluster.tasks(), *(new_id() for _ in range(5))]
        dice.shuffle(messages)
        cluster.send(*messages)
        return cluster.sweeps()[second] == "completed"

    cluster.until(flood, "the second sweep to end under a flood of messages")
    cluster.until(lambda: cluster.messages() == 0, "the workers to read all messages")
    cluster.ends_well({"succeeded": 2 * 2 * CELLS})
    each_ran(cluster.project, 2, 2)


def test_a_message_without_words_or_with_nonsense_harms_nobody(cluster: Cluster) -> None:
    write_trail(cluster.project, 1)
    worker = cluster.start_worker(concurrency=2)
    cluster.send("", "no such id", "'; DROP TABLE cells; --", "x" * 10_000, "\u0000", "\ud7ff")
    works_on(cluster, worker)


TASK = {
    "body": base64.b64encode(b'[["x"], {}, {}]').decode(),
    "content-type": "application/json",
    "content-encoding": "utf-8",
    "headers": {"task": "wtb.execute", "id": "one", "lang": "py"},
    "properties": {
        "delivery_tag": "tag",
        "delivery_info": {"exchange": "", "routing_key": "wtb.00000000"},
        "body_encoding": "base64",
    },
}
GARBAGE = [
    *(b"", b"no JSON", b"\xff\xfe\x00", b"[" * 100_000, b"null", b"5", b"[]", b"{}", b'"text"', b'{"__type__": 1}'),
    b'{"__type__": "datetime", "__value__": 3}',
    *(
        json.dumps({**TASK, **change}).encode()
        for change in (
            {"properties": None},
            {"properties": {}},
            {"properties": {**TASK["properties"], "delivery_info": {}}},
            {"properties": {**TASK["properties"], "delivery_tag": None}},
            {"headers": None},
            {"headers": []},
            {"headers": {}},
            {"headers": {"task": "wtb.execute"}},
            {"headers": {"task": ["x"], "id": 5}},
            {"headers": {**TASK["headers"], "compression": "zlib"}},
            {"content-type": "application/x-python-serialize"},
            {"body": None},
            {"body": "***"},
            {"body": base64.b64encode(b"no JSON").decode()},
            {"body": base64.b64encode(b'["x"]').decode()},
        )
    ),
    json.dumps({**TASK, "headers": {**TASK["headers"], "task": "os.system"}}).encode(),
    json.dumps({**TASK, "headers": {**TASK["headers"], "eta": "soon", "expires": {}, "timelimit": 3}}).encode(),
]


@pytest.mark.slow
def test_what_is_no_message_of_wtb_is_dropped_and_logged_and_the_worker_continues(cluster: Cluster) -> None:
    write_trail(cluster.project, 1)
    worker = cluster.start_worker(concurrency=2)
    cluster.redis().lpush(cluster.key(), *GARBAGE)
    cluster.redis().publish("/0.celery.pidbox", "[]")
    works_on(cluster, worker)
    assert worker.log.count("was not sent by WTB") >= len(GARBAGE)


def test_a_worker_killed_between_commit_and_ack_loses_nothing_and_redelivery_does_nothing(cluster: Cluster) -> None:
    """Fault 4: the broker takes nothing more, so that the last commit is made and the message is not acknowledged."""
    write_one_node(cluster, 1)
    worker = cluster.start_worker()
    sweep = cluster.submit()
    (execution,) = cluster.executions()
    cluster.until(lambda: cluster.project.log() == ["c0"], "the node to begin")
    cluster.redis().client_pause(600_000, all=False)
    cluster.project.write({"gate": ""})
    cluster.until(lambda: cluster.executions("completed") == [execution], "the last commit")
    worker.end()
    cluster.redis().client_unpause()
    assert cluster.redis().hlen("unacked") == 1
    cluster.scheduler_once()
    assert cluster.sweeps() == {sweep: "completed"}
    before = cluster.query("SELECT * FROM executions"), cluster.query("SELECT * FROM node_runs")

    cluster.start_worker()
    cluster.send(*3 * cluster.tasks())
    cluster.until(lambda: cluster.messages() == 0, "the messages to be read")
    cluster.ends_well({"succeeded": 1})
    assert before == (cluster.query("SELECT * FROM executions"), cluster.query("SELECT * FROM node_runs"))
    assert cluster.project.log() == ["c0"]


@pytest.mark.slow
def test_a_case_that_runs_for_longer_than_the_visibility_timeout_runs_once(cluster: Cluster) -> None:
    """Redis delivers its message again every two seconds, to whoever has a free slot."""
    write_one_node(cluster, 1)
    for _ in range(2):
        cluster.start_worker(concurrency=2, env={"WTB_VISIBILITY_TIMEOUT_S": "2"}, ready=False)
    cluster.wait_ready()
    cluster.submit()
    cluster.until(lambda: cluster.project.log() == ["c0"], "the node to begin")
    time.sleep(10)
    cluster.project.write({"gate": ""})
    cluster.ends_well({"succeeded": 1})
    assert cluster.project.log() == ["c0"]


@pytest.mark.slow
def test_what_a_killed_worker_had_not_acknowledged_runs_elsewhere(cluster: Cluster) -> None:
    """It holds a message for each slot; their executions are reclaimed, and their messages have no effect later."""
    write_one_node(cluster, 4)
    cluster.start_scheduler()
    first = cluster.start_worker(concurrency=2, env={"WTB_VISIBILITY_TIMEOUT_S": "2"})
    cluster.submit()
    cluster.until(lambda: len(cluster.project.log()) == 2, "both slots to be at work")
    assert cluster.redis().hlen("unacked") >= 2
    first.end()
    cluster.start_worker(concurrency=2, env={"WTB_VISIBILITY_TIMEOUT_S": "2"})
    cluster.project.write({"gate": ""})
    cluster.ends_well({"succeeded": 4})
    assert Counter(cluster.project.log()).keys() == {"c0", "c1", "c2", "c3"}
    assert len(cluster.project.log()) == 6, "what was lost ran twice, and nothing else"


@pytest.mark.slow
def test_two_databases_on_one_broker_do_not_consume_each_others_tasks(
    cluster: Cluster, fresh_postgres_url: str, tmp_path: Path
) -> None:
    other_project = Project(tmp_path / "other")
    other_project.url = fresh_postgres_url
    with closing(other_project), closing(Cluster(other_project, cluster.valkey)) as other:
        other.wtb("admin", "db", "upgrade", check=0)
        for member in (cluster, other):
            write_one_node(member, 20)
            member.project.write({"gate": ""})
            member.start_worker(concurrency=1)
        for member in (cluster, other):
            member.submit()
        for member in (cluster, other):
            member.ends_well({"succeeded": 20})
            assert len(member.project.log()) == 20


@pytest.mark.slow
def test_what_somebody_else_revokes_is_published_as_another_task(cluster: Cluster) -> None:
    """Only WTB takes work away; a monitor or a person can drop a message."""
    write_one_node(cluster, 3)
    cluster.start_worker(concurrency=1)
    cluster.submit()
    cluster.until(lambda: len(cluster.project.log()) == 1, "the slot to be at work")
    waiting = cluster.tasks("pending")
    assert len(waiting) == 2
    cluster.app().control.revoke(waiting)
    cluster.project.write({"gate": ""})
    cluster.until(lambda: cluster.cells() == {"succeeded": 3}, "all to succeed without a scheduler")
    assert not set(waiting) & set(cluster.tasks("completed"))
    cluster.start_scheduler()
    cluster.ends_well({"succeeded": 3})


@pytest.mark.slow
def test_a_task_of_a_sweep_that_was_deleted_is_dropped(cluster: Cluster) -> None:
    write_trail(cluster.project, 1)
    sweep = cluster.submit("sweep.yaml", "--anyway")
    (task,) = cluster.tasks()
    cluster.wtb("cancel", sweep, "--yes", check=0)
    cluster.wtb("delete", sweep, "--yes", check=0)
    cluster.start_scheduler()
    worker = cluster.start_worker()
    cluster.send(task)
    cluster.until(lambda: cluster.messages() == 0, "the messages to be read")
    assert cluster.executions() == []
    assert "Traceback" not in worker.log
