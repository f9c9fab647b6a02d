"""Async node runs that share a process: changed globals are never seen by another run without a warning."""

from __future__ import annotations

import sys
import time
from types import ModuleType
from typing import Any

import pytest

from tests.execution.test_shared_processes import TOGETHER, kinds, read_attempts
from tests.support.bench import Bench
from tests.support.flows import Flows, events_of
from tests.support.model_server import ModelHandler, serving
from wtb.authoring.workflow import Workflow
from wtb.execution.sandbox.shared_globals import SharedGlobals
from wtb.execution.sandbox.shared_run import CLEAN, SharedRun

RUNS = 8
EIGHT: dict[str, Any] = {"cases": RUNS, "run": {"concurrency": RUNS}}
HEAD = (
    TOGETHER
    + """
import contextlib
import importlib
import io
import locale
import logging
import random
import socket

GLOBAL, CACHE, COUNT, ITEMS = 0, None, 0, []


class Settings:
    value = 0


async def pause():
    await asyncio.sleep(0.05)


def set_global(value):
    global GLOBAL
    GLOBAL = value
"""
)
NODE = """
@wf.node
async def a(state, ctx):
    n = state["n"] + 1
    if ctx.attempt == 1:
        await together(8)
    ACT
    return {"result": result}
"""


def act(*lines: str) -> str:
    return "\n    ".join(lines)


CHANGES = {
    "environment": (
        act("os.environ['TENANT'] = str(n)", "await pause()", "result = int(os.environ['TENANT'])"),
        "os.environ['TENANT']",
    ),
    "removed variable": (
        act("os.environ.pop('HOME', None)", "await pause()", "result = n"),
        "os.environ['HOME']",
    ),
    "global of the module": (act("set_global(n)", "await pause()", "result = GLOBAL"), ".GLOBAL"),
    "working directory": (
        act(
            "path = HERE / str(n)",
            "path.mkdir(exist_ok=True)",
            "os.chdir(path)",
            "await pause()",
            "result = int(os.path.basename(os.getcwd()))",
        ),
        "the working directory",
    ),
    "random.seed": (
        act(
            "random.seed(n)",
            "draw = random.Random(n).random()",
            "await pause()",
            "result = n if random.random() == draw else -1",
        ),
        "the state of module random",
    ),
    "random.setstate": (
        act(
            "random.setstate(random.Random(n).getstate())",
            "await pause()",
            "result = n if random.random() == random.Random(n).random() else -1",
        ),
        "the state of module random",
    ),
    "numpy.random.seed": (
        act(
            "import numpy",
            "numpy.random.seed(n)",
            "await pause()",
            "result = n if numpy.random.random() == numpy.random.RandomState(n).random() else -1",
        ),
        "the state of numpy.random",
    ),
    "locale": (
        act("locale.setlocale(locale.LC_ALL, ('C', 'C.UTF-8')[n % 2])", "await pause()", "result = n"),
        "the locale",
    ),
    "socket timeout": (act("socket.setdefaulttimeout(n)", "await pause()", "result = n"), "the default timeout"),
    "log handler": (
        act(
            "log = io.StringIO()",
            "handler = logging.StreamHandler(log)",
            "logging.getLogger('agent').addHandler(handler)",
            "await pause()",
            "logging.getLogger('agent').warning('%d', n)",
            "await pause()",
            "logging.getLogger('agent').removeHandler(handler)",
            "result = int(log.getvalue())",
        ),
        "the handlers of logger 'agent'",
    ),
    "log level": (
        act("logging.getLogger('agent').setLevel(10 + n)", "await pause()", "result = n"),
        "the level of logger 'agent'",
    ),
    "stdout": (
        act(
            "real, sys.stdout = sys.stdout, io.StringIO()",
            "await pause()",
            "print(n)",
            "text, sys.stdout = sys.stdout.getvalue(), real",
            "result = int(text)",
        ),
        "sys.stdout",
    ),
}


@pytest.mark.nodes("started")
@pytest.mark.parametrize(("change", "what"), CHANGES.values(), ids=CHANGES)
def test_runs_that_change_a_global_have_their_own_results_and_a_warning(flows: Flows, change: str, what: str) -> None:
    bench = flows.run(HEAD + NODE.replace("ACT", change), **EIGHT)
    assert {cell.case: cell.state.get("result") for cell in bench.cells()} == {f"c{n}": n + 1 for n in range(RUNS)}
    assert kinds(bench).keys() <= {"lost"}
    messages = findings(bench)
    assert messages
    for message in messages:
        assert message.startswith("node 'a' changes ")
        assert what in message
        assert message.endswith("Its runs have a process each from now on")


REDIRECTS = {
    "redirect_stdout": act(
        "with contextlib.redirect_stdout(io.StringIO()) as out:",
        "    await pause()",
        "    print(n)",
        "    await asyncio.to_thread(print, n)",
        "    await pause()",
        "print('printed', n)",
        "result = sum(map(int, out.getvalue().split())) / 2",
    ),
    "nested": act(
        "with contextlib.redirect_stderr(io.StringIO()) as out:",
        "    with contextlib.redirect_stderr(None):",
        "        print('nowhere', file=sys.stderr)",
        "        await pause()",
        "    print(n, file=sys.stderr)",
        "print('printed', n)",
        "result = int(out.getvalue())",
    ),
}


@pytest.mark.parametrize("redirect", REDIRECTS.values(), ids=REDIRECTS)
def test_runs_that_redirect_their_output_share_a_process(flows: Flows, redirect: str) -> None:
    bench = flows.run(HEAD + NODE.replace("ACT", redirect), **EIGHT)
    assert {cell.case: cell.state.get("result") for cell in bench.cells()} == {f"c{n}": n + 1 for n in range(RUNS)}
    assert [row["stdout"] for row in read_attempts(bench)] == [f"printed {n + 1}\n" for n in range(RUNS)]
    assert kinds(bench) == {}
    assert events_of(bench, "node.log") == []


INNOCENT = (
    "global CACHE",
    # Jitter, and generators of its own.
    *("await asyncio.sleep(random.uniform(0, 0.1))", "random.shuffle([1, 2, 3])", "random.seed()"),
    *("import numpy", "numpy.random.default_rng(n).random()", "random.Random(n).random()"),
    # A cache, and the same value.
    *("CACHE = CACHE or 'text'", "await pause()", "ITEMS.append(n)", "Settings.value = n"),
    *("os.environ['HOME'] = os.environ['HOME']", "await pause()", "os.chdir(os.getcwd())"),
    # A library that sets variables, and a query.
    *("importlib.import_module(f'library_{n % 2}')", "await pause()", "locale.setlocale(locale.LC_ALL)"),
    # Logging as usual, and processes.
    *("logging.basicConfig(level=logging.INFO)", "logging.getLogger('library').addHandler(logging.NullHandler())"),
    *("logging.getLogger('httpx').setLevel(logging.WARNING)", "await pause()"),
    *("subprocess.run(['true'], env={'TENANT': str(n)}, check=True)", "await pause()"),
)


@pytest.mark.nodes("started")
def test_what_changes_no_result_is_no_finding(flows: Flows) -> None:
    for number in range(2):
        text = f"import os, random\nos.environ['LIBRARY_{number}'] = '1'\nrandom.seed(0)\n"
        (flows.code / f"library_{number}.py").write_text(text)
    bench = flows.run(HEAD + NODE.replace("ACT", act(*INNOCENT, "result = n")), **EIGHT)
    assert {cell.case: cell.state.get("result") for cell in bench.cells()} == {f"c{n}": n + 1 for n in range(RUNS)}
    assert (kinds(bench), findings(bench)) == ({}, [])


BESIDE = """
@wf.node
async def culprit(state, ctx):
    if ctx.attempt == 1:
        await together(8)
    os.environ["TENANT"] = "1"
    await pause()
    COST


@wf.node
async def victim(state, ctx):
    if ctx.attempt == 1:
        await together(8)
    await pause()
    await pause()
    COST
    return {"tenant": os.environ.get("TENANT")}


for node in (culprit, victim):
    wf.entry(node)
    wf.edge(node, END)
"""
BOTH: dict[str, Any] = {"cases": 4, "run": {"concurrency": 8}, "vary": {"culprit": "all", "victim": "all"}, "end": ""}


def test_runs_that_a_change_may_have_harmed_are_repeated_if_that_costs_nothing(flows: Flows) -> None:
    bench = flows.run(HEAD + BESIDE.replace("COST", "ctx.call(tool='search', prompt='x')"), **BOTH)
    assert [cell.state.get("tenant") for cell in bench.cells()] == [None] * 4
    assert set(kinds(bench)) == {"lost"}
    lost = [event["error"] for event in events_of(bench, "attempt.lost")]
    assert all("os.environ['TENANT'] (node culprit)" in error for error in lost)
    assert {event["node"] for event in events_of(bench, "node.log")} == {"culprit"}


@pytest.mark.parametrize("cost", ["ctx.cost(usd=0.25)", "ctx.call(model='m', prompt='x', response='y')"])
def test_runs_that_made_model_calls_are_marked_with_what_a_repeat_costs(flows: Flows, cost: str) -> None:
    bench = flows.run(HEAD + BESIDE.replace("COST", cost), **BOTH)
    assert kinds(bench) == {}
    marked = [event["message"] for event in events_of(bench, "node.log") if event["node"] == "victim"]
    assert len(marked) == 4
    price = "0.25" if "usd" in cost else "0"
    for message in marked:
        assert message.startswith("the result may be that of another run")
        assert "os.environ['TENANT'] (node culprit)" in message
        assert message.endswith(f"A repeat by `wtb rollback` costs about ${price}")


class Idle:
    """A channel without a listener."""

    def send(self, *frame: Any) -> None:
        """Send nothing."""


def test_what_is_looked_at_takes_less_than_fifty_microseconds_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_module")
    lines = [f"def set_{n}(value):\n    global value_{n}\n    value_{n} = value\n" for n in range(50)]
    exec("\n".join([f"value_{n} = {n}" for n in range(50)] + lines), vars(module))
    monkeypatch.setitem(sys.modules, "own_module", module)
    shared = SharedGlobals(Workflow("flow").facts())
    from wtb.execution.sandbox.shared_globals import _Global

    shared._own._globals = {(module.__name__, f"value_{n}"): _Global(module, f"value_{n}") for n in range(50)}
    channel: Any = Idle()
    loop: Any = None
    neighbours = [SharedRun(channel, number, loop) for number in range(63)]
    for run in neighbours:
        shared.begin(run)
    runs = [SharedRun(channel, number, loop) for number in range(100)]
    best = min(_time(shared, runs) for _ in range(20))
    assert best < 50e-6, f"{best * 1e6:.1f} µs"


def _time(shared: SharedGlobals, runs: list[SharedRun]) -> float:
    """Return the seconds that the start and the end of a run take."""
    began = time.perf_counter()
    for run in runs:
        shared.begin(run)
        assert shared.end(run, CLEAN, 0.0) is CLEAN
    return (time.perf_counter() - began) / len(runs)


class Provider(ModelHandler):
    """A provider of models that speaks to clients of OpenAI and Anthropic; every third request is to be repeated."""

    requests = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        type(self).requests += 1
        if self.requests % 3 == 0:
            self.send(429, {"error": {"message": "slow down", "type": "rate_limit_error"}})
        elif self.path.endswith("/messages"):
            usage = {"input_tokens": 1, "output_tokens": 1}
            content = [{"type": "text", "text": "14"}]
            message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content}
            self.send(200, {**message, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage})
        else:
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "14"}}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            completion = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
            self.send(200, {**completion, "choices": [choice], "usage": usage})

    def do_GET(self) -> None:
        self.send(200, {"text": "14"})


CLIENTS = {
    "openai": act(
        "import openai",
        "async with openai.AsyncOpenAI(base_url=URL + '/v1', api_key='k', max_retries=8) as client:",
        "    reply = await client.chat.completions.create(model='m', messages=[{'role': 'user', 'content': '?'}])",
        "result = int(reply.choices[0].message.content)",
    ),
    "anthropic": act(
        "import anthropic",
        "async with anthropic.AsyncAnthropic(base_url=URL, api_key='k', max_retries=8) as client:",
        "    messages = [{'role': 'user', 'content': '?'}]",
        "    reply = await client.messages.create(model='m', max_tokens=9, messages=messages)",
        "result = int(reply.content[0].text)",
    ),
    "httpx": act(
        "import httpx",
        "async with httpx.AsyncClient() as client:",
        "    replies = await asyncio.gather(*(client.get(URL) for _ in range(3)))",
        "result = int(replies[2].json()['text'])",
    ),
    "aiohttp": act(
        "import aiohttp",
        "async with aiohttp.ClientSession() as session, session.get(URL) as reply:",
        "    result = int((await reply.json())['text'])",
    ),
    "requests": act(
        "import requests",
        "result = int((await asyncio.to_thread(requests.get, URL)).json()['text'])",
    ),
    "tenacity": act(
        "import tenacity",
        "waits = tenacity.wait_random_exponential(multiplier=0.01, max=0.02)",
        "result = 0",
        "async for attempt in tenacity.AsyncRetrying(wait=waits, stop=tenacity.stop_after_attempt(3)):",
        "    with attempt:",
        "        result += 7",
        "        if result == 7: raise ValueError('again')",
    ),
    "langchain-core": act(
        "from langchain_core.language_models import FakeListChatModel",
        "from langchain_core.prompts import ChatPromptTemplate",
        "chain = ChatPromptTemplate.from_template('{q}') | FakeListChatModel(responses=['14'])",
        "result = int((await chain.ainvoke({'q': '?'})).content)",
        "result = int((await chain.with_retry().abatch([{'q': '?'}, {'q': '!'}]))[1].content)",
    ),
    "numpy": act(
        "import numpy",
        "with numpy.errstate(all='ignore'):",
        "    result = int(numpy.random.default_rng(n).integers(14, 15)) + int(numpy.random.rand() * 0)",
    ),
    "pandas": act("import pandas", "result = int(pandas.DataFrame({'a': [7, 7]}).sample(2)['a'].sum())"),
    "mcp": act(
        "from mcp import ClientSession",
        "from mcp.server.mcpserver import MCPServer",
        "result = 14",
    ),
}


@pytest.mark.nodes("started")
def test_common_clients_are_no_finding(flows: Flows) -> None:
    for client in CLIENTS:
        pytest.importorskip(client.replace("-", "_"))
    uses = [act(lines, f"results[{client!r}] = result") for client, lines in CLIENTS.items()]
    with serving(Provider) as url:
        text = HEAD + f"URL = {url!r}\n" + NODE.replace("ACT", act("results = {}", *uses, "result = results"))
        bench = flows.run(text, cases=16, run={"concurrency": RUNS})
    outcomes = [cell.state.get("result") or cell.error for cell in bench.cells()]
    assert outcomes == [dict.fromkeys(CLIENTS, 14)] * 16
    assert (kinds(bench), findings(bench)) == ({}, [])


def findings(bench: Bench) -> list[str]:
    """Return the warnings, without those of imports that take long."""
    messages = [event["message"] for event in events_of(bench, "node.log")]
    return [message for message in messages if "holds up the event loop" not in message]
