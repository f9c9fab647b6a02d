"""An agent goes from a sweep file to a justified choice, over HTTP with a token of its own and over stdio."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from subprocess import PIPE
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.hosting.agents.task_client import KnowsTasks, ask
from tests.hosting.api.serving import HEADERS, Server
from tests.hosting.client.sending import CELLS, SWEEP
from tests.integrations.test_hostile_tools import CALLED, SCRIPTED
from tests.support.cluster import Cluster
from tests.support.project import FLOW
from tests.support.prose import sentence
from wtb.hosting.agent_calls import CHARACTERS_PER_TOKEN

# Its only tool is another one from the first time that a node has called it.
TURNING = SCRIPTED.replace("LISTED", '{"tools": [{**tool, "description": str(Path("turned").exists())}]}')
TURNING = "from pathlib import Path\n" + TURNING.replace("CALLED", CALLED)
TOOLED = """
import time
from pathlib import Path

from wtb import END, Workflow
from wtb.integrations.mcp import use_server

wf = Workflow("tooled")
use_server(wf, "files", command=["python", "turning.py"], tools=["read"])


@wf.node
def look(state, ctx):
    ctx.mcp("files").read()
    Path(__file__).with_name("turned").touch()
    time.sleep(1.1)
    ctx.mcp("files").read()
    return {"x": state["x"]}


wf.entry(look)
wf.edge(look, END)
"""


@dataclass
class Agent:
    """Calls tools as a scripted agent does, and counts what it reads."""

    client: Client
    calls: int = 0
    characters: int = 0
    decisions: list[str] = field(default_factory=list)

    async def call(self, name: str, **arguments: Any) -> Mapping[str, Any]:
        response = await self.client.call_tool(name, arguments)
        assert not response.is_error, response.content
        self.calls += 1
        self.characters += sum(len(block.text) for block in response.content if block.type == "text")
        reply: Mapping[str, Any] = response.structured_content
        self.decisions.append(reply["decision"])
        return reply

    async def agreed(self, name: str, **arguments: Any) -> Mapping[str, Any]:
        """Call twice: what it would do is read, and agreed to."""
        first = await self.call(name, **arguments)
        assert not first["done"]
        return await self.call(name, **arguments, confirm=first["confirm"]["token"])


@pytest.fixture(scope="module")
def server(module_cluster: Cluster) -> Iterator[Server]:
    project = module_cluster.project
    names = "[workflows]\nshop = 'flow:wf'\ntooled = 'tooled:wf'\n[publish]\nevaluators = ['flow:total']\n"
    project.write({"flow.py": FLOW, "tooled.py": TOOLED, "turning.py": TURNING, "wtb.toml": names})
    module_cluster.start_scheduler()
    module_cluster.start_worker(concurrency=2)
    server = Server(project)
    server.start(module_cluster.env, ["--mcp"])
    published = ("workflow", "list", "--format", "json", "--published")
    module_cluster.until(lambda: len(module_cluster.wtb(*published).json["workflows"]) == 2, "both are published")
    yield server
    server.kill()


def token_of(cluster: Cluster, name: str, *options: str) -> str:
    return cluster.wtb("admin", "token", "create", name, *options, check=0).stdout.strip()


@asynccontextmanager
async def connected(server: Server, token: str, mode: Any = "auto", *extensions: Any) -> AsyncIterator[Agent]:
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"http://127.0.0.1:{server.port}/mcp", http_client=http)
        async with Client(transport, mode=mode, extensions=extensions) as client:
            yield Agent(client)


async def choose(agent: Agent) -> tuple[str, Mapping[str, Any]]:
    """Go from a sweep file to a choice. Returns the sweep's id, and the last reply."""
    planned = await agent.call("plan", sweep=SWEEP)
    assert planned["document"]["cells"] == CELLS
    submitted = (await agent.agreed("submit", sweep=SWEEP))["document"]
    while (await agent.call("status", ref=submitted["sweep"], wait_s=20))["document"]["sweep"]["status"] == "running":
        pass
    await agent.call("matrix", ref=submitted["sweep"])
    return submitted["sweep"], await agent.call("explain", ref=submitted["sweep"])


def test_an_agent_runs_one_input_and_reads_how_it_went(module_cluster: Cluster, server: Server) -> None:
    token = token_of(module_cluster, "starter", "--scope", "read,submit,steer")

    async def go() -> Agent:
        async with connected(server, token) as agent:
            reply = await agent.agreed("start", workflow="shop", input={"x": 1}, wait_s=20)
            execution = reply["document"]["execution"]
            assert reply["decision"] == sentence("Execution {} is {}.", execution, "completed")
            assert reply["document"]["result"]
            history = await agent.call("history", ref=execution)
            last = history["document"]["checkpoints"][-1]["id"]
            checkpoint = await agent.call("checkpoint", ref=last)
            assert checkpoint["decision"].endswith("next: the end.")
            return agent

    assert anyio.run(go).calls == 4


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_agent_goes_from_a_sweep_file_to_a_choice(module_cluster: Cluster, server: Server, mode: str) -> None:
    token = token_of(module_cluster, f"agent-{mode}", "--scope", "read,submit,steer")

    async def go() -> Agent:
        async with connected(server, token, mode) as agent:
            sweep, reply = await choose(agent)
            assert reply["document"]["best"]
            assert module_cluster.wtb("matrix", sweep, "--format", "json").json["best"] == reply["document"]["best"]
            return agent

    agent = anyio.run(go)
    assert agent.calls <= 12
    assert agent.characters / CHARACTERS_PER_TOKEN <= 20_000
    assert "best" in agent.decisions[-1]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_that_knows_tasks_has_the_matrix_for_its_submission(
    module_cluster: Cluster, server: Server, mode: str
) -> None:
    token = token_of(module_cluster, f"tasks-{mode}", "--scope", "read,submit")
    tasks = KnowsTasks()

    async def go() -> Mapping[str, Any]:
        async with connected(server, token, mode, tasks) as agent:
            return await agent.agreed("submit", sweep=SWEEP)

    reply = anyio.run(go)
    if mode == "legacy":  # which has no extensions: it is told that workers have it, and waits with `status`
        assert not tasks.seen
        assert reply["document"]["sweep"]
        return
    first, *_, last = tasks.seen
    assert (first.result_type, first.result, last.status) == ("task", None, "completed")
    assert reply["document"]["best"]
    assert reply["document"]["sweep"]["id"] == first.task_id


def test_a_task_outlives_the_server_that_gave_it(module_cluster: Cluster, server: Server) -> None:
    token = token_of(module_cluster, "outlives", "--scope", "read,submit")

    async def submits() -> str:
        async with connected(server, token, "auto", KnowsTasks()) as agent:
            first = await agent.call("submit", sweep=SWEEP)
            arguments = {"sweep": SWEEP, "confirm": first["confirm"]["token"]}
            return str((await agent.client.session.call_tool("submit", arguments, allow_claimed=True)).task_id)

    async def finds(task_id: str) -> str:
        async with connected(server, token, "auto", KnowsTasks()) as agent:
            return (await ask(agent.client, "tasks/get", task_id)).status

    task_id = anyio.run(submits)
    server.kill()
    server.start(module_cluster.env, ["--mcp"])
    module_cluster.until(lambda: anyio.run(finds, task_id) == "completed", "the task has ended")


def test_an_agent_is_told_that_a_server_changed_its_tools(module_cluster: Cluster, server: Server) -> None:
    """Nobody asked the server when it submitted: what counts is what the first call saw."""
    token = token_of(module_cluster, "tooled", "--scope", "read,submit")
    case = {"id": "c0", "input": {"x": 1}}
    sweep = {"sweep": "tooled", "workflow": "tooled", "cases": [case], "vary": {"look": ["default"]}}

    async def go() -> Mapping[str, Any]:
        async with connected(server, token, "auto", KnowsTasks()) as agent:
            return await agent.agreed("submit", sweep=sweep)

    warnings = anyio.run(go)["document"]["warnings"]
    assert sentence("changed tools: servers changed {} while the sweep ran", "files.read") in warnings
    compared = module_cluster.wtb("compare", "tooled", "tooled", "--format", "json", check=0).json["changed"]
    assert compared["settings"] == []


def test_what_an_agent_spends_is_bound_by_the_budget_of_its_token(module_cluster: Cluster, server: Server) -> None:
    token = token_of(module_cluster, "poor", "--scope", "read,submit", "--budget", "1usd")

    async def go() -> str:
        async with connected(server, token) as agent:
            return str((await agent.agreed("submit", sweep=SWEEP))["document"]["sweep"])

    sweep = anyio.run(go)
    assert module_cluster.scalar("SELECT token FROM sweeps WHERE id = :id", id=sweep) == "poor"


@pytest.mark.parametrize("token", ["", "wtb_no", "nobody"])
def test_who_is_nobody_gets_nothing(server: Server, token: str) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    sent = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept": "application/json"}
    assert _posted(server, body, sent) == 401
    assert _posted(server, body, {**sent, "Host": "evil.example"}) == 421


@pytest.mark.parametrize("body", ["", "not JSON", "[]", "{}", '{"jsonrpc": "2.0"}', "[" * 10_000, "x" * 2_000_000])
def test_what_is_no_request_is_refused(module_cluster: Cluster, server: Server, body: str) -> None:
    sent = {**HEADERS, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    assert 400 <= _posted(server, body, sent) < 500


def _posted(server: Server, body: str, headers: Mapping[str, str]) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        try:
            connection.request("POST", "/mcp", body, dict(headers))
        except (BrokenPipeError, ConnectionResetError):  # it was told before it had sent all
            return connection.getresponse().status
        return connection.getresponse().status


def test_a_request_over_stdio_that_does_not_end_is_not_collected(module_cluster: Cluster) -> None:
    environment = module_cluster.project.environment(module_cluster.env)
    command = [sys.executable, "-m", "wtb", "mcp", "--db", module_cluster.project.url]
    with subprocess.Popen(
        command, cwd=module_cluster.project.folder, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE
    ) as process:
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            while process.poll() is None:
                process.stdin.write(b"x" * 1_000_000)
        _, stderr = process.communicate()
    assert process.returncode == 2
    assert sentence("a request of more than {} bytes came; nothing after it is read", "8,000,000") in stderr.decode()


def test_an_agent_of_this_machine_is_served_over_stdio(module_cluster: Cluster, server: Server) -> None:
    environment = module_cluster.project.environment(module_cluster.env)
    process = StdioServerParameters(
        command=sys.executable,
        args=["-m", "wtb", "mcp", "--db", module_cluster.project.url],
        cwd=str(module_cluster.project.folder),
        env={**environment},
    )

    async def go() -> Agent:
        async with Client(process) as client:
            agent = Agent(client)
            published = await agent.call("find", what="workflows")
            assert published["decision"].startswith("2 workflows: shop (A: default")
            assert published["document"]["workflows"][0]["nodes"]["A"]["v1"] == {"by": 1}
            assert "flow:total" in published["document"]["evaluators"]
            assert published["document"]["workflows"][1]["tools"] == ["files.read"]
            assert agent.characters < 5_000
            refused = await client.call_tool("matrix", {"ref": "iiiiiiii"})
            assert refused.is_error
            return agent

    assert anyio.run(go).decisions
