"""Logs as JSON are one object a line, with the ids of what a thread is busy with; words in a terminal stay.

Server, worker and scheduler are started once for what they log and for the metrics that they tell.
"""

from __future__ import annotations

import http.client
import io
import json
import logging
import signal
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing

import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.hosting.api.serving import HEADERS, Server
from tests.support.bench import in_memory
from tests.support.cluster import Cluster
from tests.support.project import Project
from wtb.core.errors import InputError
from wtb.core.ids import log_ids
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.json_logs import wants_json, write_json_logs
from wtb.hosting.servers.server import free_port
from wtb.operations.context import Context
from wtb.operations.identity import OPERATOR


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root, ours = logging.getLogger(), logging.getLogger("wtb")
    handlers, levels, hook = root.handlers, (root.level, ours.level), threading.excepthook
    stream = io.StringIO()
    write_json_logs("worker", stream)
    yield stream
    root.handlers = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    threading.excepthook = hook
    logging.captureWarnings(False)


def test_a_line_is_an_object_with_the_ids_of_what_is_under_way(stream: io.StringIO) -> None:
    log = logging.getLogger("wtb")
    with log_ids(sweep="s1", execution=None), log_ids(execution="e1"):
        log.info("it %s\nand goes on", "began")
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("it failed")
    logging.getLogger("elsewhere").info("nobody asked")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["level"], first["part"]) == ("it began\nand goes on", "info", "worker")
    assert (first["sweep"], first["execution"]) == ("s1", "e1")
    assert first["at"].endswith("Z")
    assert "sweep" not in second
    assert "ValueError: broken" in second["exception"]


def test_a_setting_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch, empty_project: Project) -> None:
    monkeypatch.setenv("WTB_LOG", "xml")
    with pytest.raises(InputError, match="WTB_LOG is 'xml'; expected text or json"):
        wants_json()
    monkeypatch.setenv("WTB_LOG", "")
    assert not wants_json()


NOTED = """
import logging

from wtb import END, Workflow

wf = Workflow("noted")


@wf.node
def note(state):
    logging.getLogger("mine").warning("it is %s", state["x"])
    return {"y": 1}


wf.entry(note)
wf.edge(note, END)
"""
NOTED_SWEEP = """
sweep: noted
workflow: noted:wf
cases: cases.jsonl
vary: {note: all}
run: {pool: thread}
"""


def test_each_part_tells_metrics_and_writes_objects_with_the_ids_of_what_it_does(cluster: Cluster) -> None:
    project = cluster.project
    project.write({"noted.py": NOTED, "noted.yaml": NOTED_SWEEP, "cases.jsonl": Project.cases(2)})
    cluster.let_nodes_run_in_workers()  # whose log has what they log
    project.inside("schedule", "add", "nightly", "noted.yaml", "--cron", "0 3 * * *", check=0)
    cluster.env["WTB_LOG"] = "json"
    cluster.take_time()
    ports = free_port(), free_port()
    worker, server = cluster.start_worker(options=["--metrics", str(ports[0])]), Server(project)
    server.start(cluster.env, ["--mcp"])
    sweep = cluster.submit("noted.yaml")
    cluster.wait_completed(sweep)
    execution = cluster.scalar("SELECT id FROM executions WHERE case_number = 0")
    with socket.create_connection(("127.0.0.1", server.port)) as nonsense:
        nonsense.sendall(b"nonsense\r\n\r\n")
        nonsense.recv(100)
    assert posted(server, f"/sweeps/{sweep}/resume") == 200
    project.write({"noted.yaml": NOTED_SWEEP.replace("noted:wf", "gone:wf")})
    project.change("UPDATE schedules SET next_at = next_at - 86400")
    scheduler = cluster.start_scheduler(options=["--metrics", f"127.0.0.1:{ports[1]}"])
    cluster.until(lambda: cluster.query("SELECT status FROM fires") == [("failed",)], "the fire has failed")
    by_worker, by_scheduler, by_server = (scraped(port) for port in (*ports, server.port))
    stderr = {"worker": worker.stop().stderr, "scheduler": scheduler.stop().stderr}
    assert server.running is not None
    server.running.signal(signal.SIGTERM)
    stderr["server"] = server.running.wait().stderr
    lines = {part: [json.loads(line) for line in text.splitlines()] for part, text in stderr.items()}
    assert all(
        record["part"] == part and record["at"] and record["level"]
        for part, records in lines.items()
        for record in records
    )

    assert by_scheduler["wtb_cells", "succeeded"] == by_server["wtb_cells", "succeeded"] == 2
    assert by_scheduler["wtb_attempts", "succeeded"] == by_server["wtb_attempts", "succeeded"] == 2
    assert (by_scheduler["wtb_slots", None], by_scheduler["wtb_slots_busy", None]) == (1, 0)
    assert by_worker["wtb_flush_seconds_count", None] > 0
    assert by_worker["wtb_claim_seconds_count", None] > 0
    assert ("wtb_cells", "succeeded") not in by_worker, "what the database has, it leaves to others"

    noted = next(record for record in lines["worker"] if record["event"] == "it is 0")
    assert (noted["logger"], noted["sweep"], noted["execution"]) == ("mine", sweep, execution)
    assert noted["runner"]
    assert any("Invalid HTTP request" in record["event"] for record in lines["server"])
    resumed = next(record for record in lines["server"] if "is completed; `wtb retry`" in record["event"])
    assert (resumed["operation"], bool(resumed["request"])) == ("sweeps.resume", True)
    refused = next(record for record in lines["scheduler"] if "its sweep was refused" in record["event"])
    assert refused["schedule"] == "nightly"


def scraped(port: int) -> dict[tuple[str, str | None], float]:
    """Return the metrics at a port, by the names of samples and their `status`."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=HEADERS)
    with urllib.request.urlopen(request, timeout=20) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        (sample.name, sample.labels.get("status")): sample.value for family in families for sample in family.samples
    }


def posted(server: Server, path: str) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        connection.request("POST", PREFIX + path, "{}", {**HEADERS, "Content-Type": "application/json"})
        return connection.getresponse().status


def test_a_thread_that_ends_by_an_error_is_in_the_log(stream: io.StringIO) -> None:
    thread = threading.Thread(target=lambda: 1 / 0, name="broken")
    thread.start()
    thread.join()
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["level"], line["event"]) == ("critical", "thread broken ended")
    assert "ZeroDivisionError" in line["exception"]


def test_what_agents_ask_for_has_ids_in_the_log(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mcp")
    from mcp import Client

    from wtb.hosting import agent_server
    from wtb.hosting.agent_calls import Caller

    def fails(*_: object) -> None:
        raise RuntimeError("SELECT secret")

    monkeypatch.setattr(agent_server.Calls, "call", fails)

    async def talk() -> None:
        mcp = agent_server.make_server(Context(in_memory()), lambda _: Caller(OPERATOR))
        async with Client(mcp) as client:
            assert (await client.call_tool("matrix", {"ref": "x"})).is_error

    anyio.run(talk)
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["operation"], bool(line["request"])) == ("mcp matrix", True)
    assert "SELECT secret" in line["exception"]
