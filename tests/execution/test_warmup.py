"""One-time loading happens before the first node of a process, or does not count as the node's time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wtb.core.tree.run_order import mixed

pytestmark = pytest.mark.nodes("started")  # others have imported everything

MODULE = """
import time

from wtb import END, Context, Workflow

wf = Workflow("warm")


@wf.node
{node}

wf.entry(asks)
wf.edge(asks, END)
"""
SCRIPT = """
import json, sys, threading
from pathlib import Path
from warm import wf
from wtb.authoring.code.calling import Caller
from wtb.core.serialization.codec import decode
from wtb.authoring.context.node_context import CaseView
from wtb.execution.engine.protocol import Root, Task
from wtb.store.files.store import FileStore
from wtb.core.tree.checkpoints import Position
from wtb.execution.engine.executor import ThreadExecutor, Surroundings
from wtb.store.files.workspaces import Workspaces

code = ThreadExecutor(wf, [], Surroundings(Caller(), None, Workspaces(FileStore(Path("files")), Path("attempts"))))
code.prepare()
loaded = [name for name in ("genai_prices.data",) if name in sys.modules]
loaded += [thread.name for thread in threading.enumerate() if thread.name == "wtb-async"]
result = code.run(Task("asks", "default", {}, Position(0, ("asks",)), Root(CaseView("one"))))
assert result.failure is None, result.failure
print(json.dumps([loaded, result.duration_s, decode(result.writes["took"].data)]))
"""


def first_run(node: str, folder: Path) -> Any:
    """Run a node in a new process. Return the modules loaded before it, its recorded time, and its own time."""
    (folder / "warm.py").write_text(MODULE.format(node=node))
    options: dict[str, Any] = {"cwd": folder, "capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run([sys.executable, "-c", SCRIPT], **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_prices_are_loaded_before_the_first_node_that_asks_for_one(tmp_path: Path) -> None:
    node = """
def asks(state, ctx: Context):
    clock = time.perf_counter()
    ctx.call(model="gpt-4o", prompt="p", response="r", tokens_in=10, tokens_out=10)
    return {"took": time.perf_counter() - clock}
"""
    modules, _, _ = first_run(node, tmp_path)
    assert "genai_prices.data" in modules


def test_prices_that_nobody_could_foresee_are_no_time_of_the_node(tmp_path: Path) -> None:
    node = """
def asks(state, ctx: Context):
    clock = time.perf_counter()
    getattr(ctx, "c" + "all")(model="gpt-4o", tokens_in=10, tokens_out=10)
    return {"took": time.perf_counter() - clock}
"""
    modules, seconds, took = first_run(node, tmp_path)
    assert "genai_prices.data" not in modules
    assert seconds < took / 2


def test_the_event_loop_of_async_nodes_is_there_before_the_first(tmp_path: Path) -> None:
    threads, _, _ = first_run('async def asks(state):\n    return {"took": 0}\n', tmp_path)
    assert threads == ["wtb-async"]  # and prices that nobody asks for are not loaded


@pytest.mark.parametrize("things", [[], ["one"], list("abcdefgh")])
def test_an_order_is_mixed_and_the_same_for_the_same_place(things: list[str]) -> None:
    assert mixed(things, 1, "case") == mixed(things, 1, "case")
    assert sorted(mixed(things, 1, "case")) == things
    firsts = [mixed(things, seed, "case")[:1] for seed in range(800)]
    assert all(60 < firsts.count([thing]) < 140 for thing in things if len(things) == 8)
