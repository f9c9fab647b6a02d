"""Policies about files, hosts and programs: an audit hook in node processes stops what they deny."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.bench import Bench
from tests.support.flows import events_of, failures
from wtb.operations.policy_rules import find_policies

POLICIES = """
permit(principal, action, resource);
@id("only-notes") forbid(principal, action == Action::"write file", resource) unless { context.path like "*/notes*" };
@id("no-hosts") forbid(principal, action == Action::"connect", resource) unless { context.host == "localhost" };
@id("no-shell") forbid(principal, action == Action::"start program", resource) when { context.command like "sh *" };
"""
Run = Callable[..., Bench]


@pytest.fixture
def port() -> Iterator[int]:
    """A local port with a listener."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


@pytest.fixture
def run(policed: Run, tmp_path: Path) -> Run:
    def run(text: str, *, policies: str = POLICIES, pool: str = "process", **input: Any) -> Bench:
        return policed(text, policies, pool, cases=[{"id": "one", "input": {"out": str(tmp_path), **input}}])

    return run


@pytest.mark.parametrize("pool", ["process", "thread"])
def test_files_outside_the_workspace(run: Run, tmp_path: Path, pool: str) -> None:
    bench = run(
        """
import sqlite3

@wf.node
def a(state, ctx):
    out = Path(state["out"])
    (ctx.workspace / "mine").write_text("allowed")
    (out / "notes.txt").write_text("allowed")
    (out / "notes.txt").read_text()
    denied = []
    acts = {
        "write": lambda: (out / "other.txt").write_text("denied"),
        "append": lambda: open(out / "other.txt", "a"),
        "low": lambda: os.open(out / "other.txt", os.O_CREAT | os.O_WRONLY),
        "folder": lambda: (out / "folder").mkdir(),
        "move": lambda: os.rename(out / "notes.txt", out / "other.txt"),
        "link": lambda: os.symlink("/etc/passwd", out / "other.txt"),
        "remove": lambda: os.remove(out / "policy" / "house.cedar"),
        "database": lambda: sqlite3.connect(out / "other.db"),
        "dots": lambda: open(ctx.workspace / ".." / ".." / ".." / ".." / ".." / "x.txt", "w"),
    }
    for name, act in acts.items():
        try:
            act()
        except PermissionError as error:
            assert "only-notes" in str(error)
            denied.append(name)
    return {"denied": denied, "files": sorted(os.listdir(ctx.workspace))}
""",
        pool=pool,
    )

    assert failures(bench) == []
    (cell,) = bench.cells()
    assert cell.state["denied"] == ["write", "append", "low", "folder", "move", "link", "remove", "database", "dots"]
    assert cell.state["files"] == ["mine"]
    assert {path.name for path in tmp_path.glob("*")} >= {"notes.txt", "policy"}
    assert not list(tmp_path.glob("other*"))
    decisions = events_of(bench, "policy.decided")
    assert {(decision["operation"], decision["allowed"], *decision["rules"]) for decision in decisions} == {
        ("write file", True, "house.cedar #1"),
        ("write file", False, "only-notes"),
    }
    assert str(tmp_path / "other.txt") in [decision["on"] for decision in decisions]


def test_an_act_that_is_denied_fails_the_node_at_once(run: Run) -> None:
    bench = run(
        """
@wf.node(retries=3)
def a(state, ctx):
    Path(state["out"], "other.txt").write_text("denied")
"""
    )

    ((kind, message),) = failures(bench)
    assert (kind, message.startswith("write file (")) == ("error", True)
    assert message.endswith("is denied: policy only-notes forbids it")


def test_hosts(run: Run, port: int) -> None:
    """Policies match the name that was looked up; clients of providers do not treat a denial as a network failure."""
    bench = run(
        """
import asyncio
import socket
import httpx

@wf.node
def a(state, ctx):
    port = state["port"]
    socket.create_connection(("localhost", port)).close()
    denied = []
    acts = {
        "address": lambda: socket.create_connection(("127.0.0.2", port), timeout=5),
        "datagram": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.2", port)),
        "loop": lambda: asyncio.run(asyncio.open_connection("127.0.0.2", port)),
    }
    for name, act in acts.items():
        try:
            act()
        except PermissionError as error:
            denied.append(name)
    left, right = socket.socketpair()
    return {"denied": denied}

@a.variant("client")
def client(state, ctx):
    httpx.get(f"http://127.0.0.2:{state['port']}/")
""",
        port=port,
    )

    states = {cell.state.get("denied", [None])[0]: cell for cell in bench.cells()}
    assert states["address"].state["denied"] == ["address", "datagram", "loop"]
    ((kind, message),) = failures(bench)
    assert (kind, "no-hosts" in message) == ("error", True)


def test_programs_and_what_they_do(run: Run, tmp_path: Path) -> None:
    """The hook sees only that a program starts."""
    bench = run(
        """
@wf.node
def a(state, ctx):
    subprocess.run(["touch", f"{state['out']}/by-program"], check=True)
    denied = []
    for start in (lambda: subprocess.run(["sh", "-c", "true"]), lambda: os.system("sh -c true")):
        try:
            start()
        except PermissionError:
            denied.append(1)
    return {"denied": len(denied)}
"""
    )

    assert (tmp_path / "by-program").exists()
    assert bench.cells()[0].state["denied"] == 2


def test_threads_of_a_node_and_processes_that_it_forks_are_held_too(run: Run, tmp_path: Path) -> None:
    bench = run(
        """
@wf.node
def a(state, ctx):
    path = Path(state["out"], "other.txt")
    seen = []

    def write():
        try:
            path.write_text("denied")
        except PermissionError:
            seen.append("denied")

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    child = os.fork()
    if not child:
        write()
        os._exit(len(seen))
    return {"seen": seen, "child": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}
"""
    )

    assert bench.cells()[0].state["seen"] == ["denied"]
    assert bench.cells()[0].state["child"] == 2
    assert not (tmp_path / "other.txt").exists()


def test_policies_of_other_actions_watch_nothing(run: Run, tmp_path: Path) -> None:
    """Without such policies, the hook costs nothing."""
    bench = run(
        """
from wtb.authoring.context import audit_hook

@wf.node
def a(state, ctx):
    return {"guards": len(audit_hook._guards)}
""",
        policies="permit(principal, action, resource);",
    )

    assert bench.cells()[0].state["guards"] == 0
    policies = find_policies()
    assert policies is not None
    assert policies.recorded("ana") is None
